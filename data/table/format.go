package table

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Formats of a schema, after a colon: price=number:comma€, when=date:DD/MM/YYYY.
const (
	// point and comma are the decimal signs of a number's format. A unit or symbol of all values
	// can follow.
	point, comma = "point", "comma"
	// unix and unixMilli are dates as seconds and milliseconds since 1970.
	unix, unixMilli = "unix", "unix-ms"
	// isoDate and isoZone are the patterns of ISO 8601, without and with a time zone.
	isoDate, isoZone = "YYYY-MM-DD", "YYYY-MM-DDZ"
)

// split returns a kind and its format; empty: the default format.
func (k Kind) split() (Kind, string) {
	base, format, _ := strings.Cut(string(k), ":")
	return Kind(base), format
}

// with returns a kind with a format.
func (k Kind) with(format string) Kind {
	if format == "" {
		return k
	}
	return k + ":" + Kind(format)
}

// check returns an error for a kind or format that a schema cannot have.
func (k Kind) check() error {
	base, format := k.split()
	if !slices.Contains(kinds(), base) {
		return fmt.Errorf("%q: want number, category, date, label, target or ignore", string(k))
	}
	switch {
	case format == "" && base == k:
		return nil
	case base == Date:
		return checkDate(format)
	case base == Number || base == Target:
		if decimal, unit := numberFormat(format); decimal == "" || strings.ContainsAny(unit, "0123456789.,+-") {
			return fmt.Errorf("%q: want %s:point or %s:comma, the decimal sign, and a unit if all values have it, such as %s:comma€", string(k), base, base, base)
		}
		return nil
	}
	return fmt.Errorf("%q: a %s has no format", string(k), base)
}

// numberFormat splits a number's format into decimal sign and unit.
func numberFormat(format string) (decimal, unit string) {
	for _, d := range []string{point, comma} {
		if rest, ok := strings.CutPrefix(format, d); ok {
			return d, strings.TrimSpace(rest)
		}
	}
	return "", format
}

// Digits of numbers with separators of thousands, by decimal sign. Constant.
var (
	pointDigits = regexp.MustCompile(`^([0-9]+|[0-9]{1,3}(,[0-9]{3})+|[0-9]{1,3}([' \x{a0}\x{202f}\x{2019}][0-9]{3})+)?(\.[0-9]+)?$`)
	commaDigits = regexp.MustCompile(`^([0-9]+|[0-9]{1,3}(\.[0-9]{3})+|[0-9]{1,3}([' \x{a0}\x{202f}\x{2019}][0-9]{3})+)?(,[0-9]+)?$`)
)

// parseNumber reads a number in a format; empty: a decimal point without separators of thousands. A
// format's unit is part of every value, before or after the digits, such as -3 €, €3 and €-3.
func parseNumber(word, format string) (x float64, ok bool) {
	word = strings.TrimSpace(word)
	if format == "" {
		x, err := strconv.ParseFloat(word, 64)
		return x, err == nil && x-x == 0
	}
	decimal, unit := numberFormat(format)
	sign, rest := signOf(word)
	if unit != "" {
		before, isBefore := strings.CutPrefix(rest, unit)
		after, isAfter := strings.CutSuffix(rest, unit)
		switch {
		case isBefore:
			rest = strings.TrimSpace(before)
		case isAfter:
			rest = strings.TrimSpace(after)
		default:
			return 0, false
		}
		if sign == "" {
			sign, rest = signOf(rest)
		}
	}
	digits, drop := pointDigits, ",' \u00a0\u202f\u2019"
	if decimal == comma {
		digits, drop = commaDigits, ".' \u00a0\u202f\u2019"
	}
	if rest == "" || !digits.MatchString(rest) {
		return 0, false
	}
	rest = strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(drop, r):
			return -1
		case r == ',':
			return '.'
		}
		return r
	}, rest)
	x, err := strconv.ParseFloat(sign+rest, 64)
	return x, err == nil && x-x == 0
}

// signOf splits a number's sign from the rest.
func signOf(word string) (sign, rest string) {
	if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+") {
		return word[:1], strings.TrimSpace(word[1:])
	}
	return "", word
}

// notations returns the formats in which a word is a number: with a decimal point, with a decimal
// comma, or both if no character decides.
func notations(w string) (formats []string) {
	unit := strings.Trim(w, "0123456789.,' +-\u00a0\u202f\u2019")
	for _, f := range []string{point + unit, comma + unit} {
		if _, ok := parseNumber(w, f); ok && Number.with(f).check() == nil && !strings.ContainsAny(unit, ",=") {
			formats = append(formats, f)
		}
	}
	return formats
}

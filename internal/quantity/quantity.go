// Package quantity writes numbers with their units and nouns for people: bytes, counts, rates, times and shares.
// Every message uses it, so that one value looks the same everywhere:
//
//	quantity.Count(1, "row")       // 1 row
//	quantity.Bytes(22797 << 20)    // 22.3 GiB
//	quantity.Float(6.767e-05)      // 6.77e-5
//
// # Limits
//
// JSON, CSV and metrics hold plain numbers, never these texts.
package quantity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Count writes n with its noun in the singular or plural, such as "1 row" or "2,000 files without an ending".
func Count[N int | int32 | int64 | uint32 | uint64](n N, noun string) string {
	if n != 1 {
		noun = Plural(noun)
	}
	return group(int64(n)) + " " + noun
}

// Plural returns the plural of a noun. A phrase has its noun before the first preposition.
func Plural(noun string) string {
	end := len(noun)
	for _, preposition := range []string{" of ", " in ", " without ", " outside ", " to "} {
		if i := strings.Index(noun, preposition); i >= 0 {
			end = min(end, i)
		}
	}
	head, rest := noun[:end], noun[end:]
	switch {
	case strings.HasSuffix(head, "batch"), strings.HasSuffix(head, "ss"), strings.HasSuffix(head, "x"), strings.HasSuffix(head, "switch"):
		head += "es"
	case strings.HasSuffix(head, "y") && !strings.HasSuffix(head, "ey") && !strings.HasSuffix(head, "ay"):
		head = head[:len(head)-1] + "ies"
	default:
		head += "s"
	}
	return head + rest
}

// Group writes n with commas between thousands.
func Group[N int | int32 | int64 | uint32 | uint64](n N) string { return group(int64(n)) }

func group(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Bytes writes a number of bytes in the largest unit of 1024 that it fills, with three digits.
func Bytes[N int | int64 | uint64 | float64](n N) string { return bytes(float64(n)) }

func bytes(v float64) string {
	unit := 0
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for ; math.Abs(v) >= 1023.5 && unit < len(units)-1; unit++ {
		v /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%.0f B", v)
	}
	return threeDigits(v) + " " + units[unit]
}

// threeDigits writes a value from 1 to 1023 with three digits, without zeros behind the point.
func threeDigits(v float64) string {
	if math.Abs(v) >= 99.95 {
		return fmt.Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Rate writes a number per second: a whole one, or below 10 with a decimal place.
func Rate(perSecond float64) string {
	if perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return Group(int64(perSecond))
}

// Float writes a value with three digits, and without zeros in the exponent, such as 0.000313, 6.77e-5 or 5.5e8.
func Float(v float64) string { return FloatDigits(v, 3) }

// FloatDigits is Float with another number of digits.
func FloatDigits(v float64, digits int) string {
	return exponent(strconv.FormatFloat(v, 'g', digits, 64))
}

// Exact writes the shortest text that reads back as v, as people write settings.
func Exact(v float64) string { return exponent(strconv.FormatFloat(v, 'g', -1, 64)) }

// exponent removes the plus sign and the leading zeros of an exponent.
func exponent(text string) string {
	mantissa, power, ok := strings.Cut(text, "e")
	if !ok {
		return text
	}
	sign := ""
	if strings.HasPrefix(power, "-") {
		sign = "-"
	}
	return mantissa + "e" + sign + strings.TrimLeft(power, "+-0")
}

// Milliseconds writes a time with a decimal place, or below 100 ms with two, or below 1 ms with three.
func Milliseconds(ms float64) string {
	switch {
	case ms == 0:
		return "0"
	case ms < 0.9995:
		return fmt.Sprintf("%.3f", ms)
	case ms < 99.95:
		return fmt.Sprintf("%.2f", ms)
	}
	return fmt.Sprintf("%.1f", ms)
}

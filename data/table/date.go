package table

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// dateParts are the inputs of a model for a date: days since 1970, with the time as a fraction, and
// year, month from 1, weekday from 1 for Monday, and hour.
var dateParts = [...]string{"days", "year", "month", "weekday", "hour"} // constant

// values returns the values of dateParts.
func values(t time.Time) [len(dateParts)]float64 {
	days := (float64(t.Unix()) + float64(t.Nanosecond())/1e9) / (24 * 60 * 60)
	return [...]float64{days, float64(t.Year()), float64(t.Month()), float64((t.Weekday()+6)%7 + 1), float64(t.Hour())}
}

// instant converts seconds since 1970; ok is false outside the years 0 to 9999.
func instant(seconds float64) (t time.Time, ok bool) {
	const first, end = -62167219200, 253402300800
	if !(seconds >= first && seconds < end) {
		return t, false
	}
	whole := int64(seconds)
	return time.Unix(whole, int64((seconds-float64(whole))*1e9)).UTC(), true
}

// checkDate returns an error for a date's format that is unknown or incomplete.
func checkDate(format string) error {
	if format == unix || format == unixMilli {
		return nil
	}
	has, twice := map[string]int{}, false
	for p := format; p != ""; {
		token := tokenOf(p)
		if p = p[max(1, len(token)):]; token != "" {
			twice = twice || has[token[:1]] > 0
			has[token[:1]] = len(token) // YY and YYYY, M to MMM
		}
	}
	year := has["Y"] == 2 || has["Y"] == 4
	if twice || !year || has["M"] < 1 || has["M"] > 3 || has["D"] < 1 || has["D"] > 2 || has["h"] > 2 || has["m"] > 2 || has["s"] > 2 || has["Z"] > 1 {
		return fmt.Errorf("\"date:%s\": want a pattern of YYYY or YY, MM or MMM, DD, and perhaps hh, mm, ss and Z, once each, such as date:DD/MM/YYYY; or date:unix or date:unix-ms", format)
	}
	return nil
}

// tokenOf returns the letter of a part of a date, with repetitions, at the start of a pattern; ""
// for other characters.
func tokenOf(pattern string) string {
	if !strings.ContainsRune("YMDhmsZ", rune(pattern[0])) {
		return ""
	}
	return pattern[:len(pattern)-len(strings.TrimLeft(pattern, pattern[:1]))]
}

// parseDate reads a date in a format. A time can follow the date if the format has no time. Times
// with a zone become UTC.
func parseDate(word, format string) (t time.Time, ok bool) {
	word = strings.TrimSpace(word)
	if format == unix || format == unixMilli {
		x, err := strconv.ParseFloat(word, 64)
		if format == unixMilli {
			x /= 1000
		}
		if err != nil {
			return t, false
		}
		return instant(x)
	}
	d, joined := dateText{rest: word}, false // joined: no character before the next part
	for format != "" && !d.bad {
		token := tokenOf(format)
		if token == "" {
			d.literal(format)
			format, joined = format[1:], false
			continue
		}
		format = format[len(token):]
		d.token(token, joined || format != "" && tokenOf(format) != "" && format[0] != 'Z')
		joined = true
	}
	if !d.hasTime && !d.hasZone {
		d.clock()
	}
	return d.time()
}

// dateText is a date during reading.
type dateText struct {
	rest                                 string
	year, month, day, hour, minute, zone int
	second                               float64
	hasTime, hasZone, bad                bool
}

// literal reads the first character of a pattern. A space stands for any number of spaces.
func (d *dateText) literal(pattern string) {
	rest, ok := strings.CutPrefix(d.rest, pattern[:1])
	if pattern[0] == ' ' {
		rest, ok = strings.TrimLeft(d.rest, " "), true
	}
	d.rest, d.bad = rest, d.bad || !ok
}

// token reads a part of a date. fixed means that no character separates the part from the next: the
// part then has as many digits as its token has letters.
func (d *dateText) token(token string, fixed bool) {
	least, most := 1, 2
	if fixed || token[0] == 'Y' {
		least, most = len(token), len(token)
	}
	switch token[0] {
	case 'Y':
		if d.year = d.digits(least, most); len(token) == 2 { // as in POSIX
			d.year += 1900
			if d.year < 1969 {
				d.year += 100
			}
		}
	case 'M':
		if len(token) == 3 {
			d.name()
			return
		}
		d.month = d.digits(least, most)
	case 'D':
		d.day = d.digits(least, most)
	case 'h':
		d.hour, d.hasTime = d.digits(least, most), true
	case 'm':
		d.minute = d.digits(2, 2)
	case 's':
		d.seconds()
	case 'Z':
		if !d.hasTime {
			d.clock()
		}
		d.offset()
	}
}

// digits reads a number of least to most digits.
func (d *dateText) digits(least, most int) (x int) {
	n := 0
	for n < min(most, len(d.rest)) && d.rest[n] >= '0' && d.rest[n] <= '9' {
		x = 10*x + int(d.rest[n]-'0')
		n++
	}
	d.rest, d.bad = d.rest[n:], d.bad || n < least
	return x
}

// name reads the first three letters of a month, or its whole name, in English.
func (d *dateText) name() {
	for m := time.January; m <= time.December; m++ {
		for _, name := range []string{m.String(), m.String()[:3]} {
			if len(d.rest) >= len(name) && strings.EqualFold(d.rest[:len(name)], name) {
				d.month, d.rest = int(m), d.rest[len(name):]
				return
			}
		}
	}
	d.bad = true
}

// seconds reads seconds, with a fraction after a point or comma.
func (d *dateText) seconds() {
	if d.second = float64(d.digits(2, 2)); d.rest == "" || d.rest[0] != '.' && d.rest[0] != ',' {
		return
	}
	n := 1
	for n < len(d.rest) && d.rest[n] >= '0' && d.rest[n] <= '9' {
		n++
	}
	x, err := strconv.ParseFloat("0."+d.rest[1:n], 64)
	d.second, d.rest, d.bad = d.second+x, d.rest[n:], d.bad || n == 1 || err != nil
}

// clock reads an optional time of day after a space or T: hh:mm, hh:mm:ss, with AM or PM.
func (d *dateText) clock() {
	if d.rest == "" || d.rest[0] != ' ' && d.rest[0] != 'T' && d.rest[0] != 't' {
		return
	}
	rest := strings.TrimLeft(d.rest[1:], " ")
	if rest == "" || rest[0] < '0' || rest[0] > '9' { // a zone
		return
	}
	d.rest, d.hasTime = rest, true
	d.hour = d.digits(1, 2)
	d.literal(":")
	if d.minute = d.digits(2, 2); strings.HasPrefix(d.rest, ":") {
		d.rest = d.rest[1:]
		d.seconds()
	}
	half := strings.ToUpper(strings.TrimLeft(d.rest, " "))
	if half != "AM" && half != "PM" {
		return
	}
	d.rest, d.bad = "", d.bad || d.hour < 1 || d.hour > 12
	if d.hour %= 12; half == "PM" {
		d.hour += 12
	}
}

// offset reads a zone: Z, UTC, GMT, +hh, +hhmm or +hh:mm.
func (d *dateText) offset() {
	d.rest, d.hasZone = strings.TrimLeft(d.rest, " "), true
	for _, name := range []string{"Z", "z", "UTC", "GMT"} {
		if d.rest == name {
			d.rest = ""
			return
		}
	}
	sign, rest := signOf(d.rest)
	if d.rest = rest; sign == "" {
		d.bad = true
		return
	}
	hours, minutes := d.digits(2, 2), 0
	if d.rest = strings.TrimPrefix(d.rest, ":"); d.rest != "" {
		minutes = d.digits(2, 2)
	}
	d.bad = d.bad || hours > 14 || minutes > 59
	if d.zone = 60 * (60*hours + minutes); sign == "-" {
		d.zone = -d.zone
	}
}

// time returns the date in UTC; ok is false for a text that is not read to the end, or for a date
// that does not exist.
func (d *dateText) time() (t time.Time, ok bool) {
	if d.bad || d.rest != "" || d.hour > 23 || d.minute > 59 || d.second >= 60 {
		return t, false
	}
	whole := int(d.second)
	t = time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, whole, int((d.second-float64(whole))*1e9), time.UTC)
	if t.Year() != d.year || int(t.Month()) != d.month || t.Day() != d.day {
		return t, false
	}
	return t.Add(-time.Duration(d.zone) * time.Second), true
}

// Package quantity formats numbers with units and nouns for people: bytes, counts, rates, times and
// shares. All messages use the package, for one form per value:
//
//	quantity.Count(1, "row")       // 1 row
//	quantity.Bytes(22797 << 20)    // 22.3 GiB
//	quantity.Float(6.767e-05)      // 6.77e-5
//	quantity.Duration(1234567890)  // 1.23s
//	quantity.Percent(0.1234)       // 12.3%
//
// Sizes of memory and files are in units of 1024, traffic and rates of links in units of 1000.
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
	"time"
)

// Count writes n with a noun in the singular or plural, such as "1 row" or "2,000 files without an
// ending".
func Count[N int | int32 | int64 | uint32 | uint64](n N, noun string) string {
	if n != 1 {
		noun = Plural(noun)
	}
	return group(int64(n)) + " " + noun
}

// Plural returns a noun's plural. In a phrase the noun comes before the first preposition.
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

// Bytes writes a number of bytes in the largest filled unit of 1024, with three digits.
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

// Traffic writes a number of transferred bytes in the largest filled unit of 1000, with three
// digits.
func Traffic(bytes float64) string {
	unit := 0
	units := [...]string{"B", "kB", "MB", "GB", "TB", "PB"}
	for ; math.Abs(bytes) >= 999.5 && unit < len(units)-1; unit++ {
		bytes /= 1000
	}
	if unit == 0 {
		return fmt.Sprintf("%.0f B", bytes)
	}
	return threeDigits(bytes) + " " + units[unit]
}

// threeDigits writes a value from 1 to 1023 with three digits, without final decimal zeros.
func threeDigits(v float64) string {
	if math.Abs(v) >= 99.95 {
		return fmt.Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Rate writes a number per second: whole, or below 10 with a decimal place.
func Rate(perSecond float64) string {
	if perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return Group(int64(perSecond))
}

// Float writes a value with three digits, and without zeros in the exponent, such as 0.000313,
// 6.77e-5 or 5.5e8.
func Float(v float64) string { return FloatDigits(v, 3) }

// FloatDigits is Float with the given number of digits.
func FloatDigits(v float64, digits int) string {
	return exponent(strconv.FormatFloat(v, 'g', digits, 64))
}

// Exact writes the shortest text that parses to v, and whole numbers below 1e15 without an
// exponent.
func Exact[N float32 | float64](v N) string {
	x, bits := float64(v), 64
	if _, short := any(v).(float32); short {
		bits = 32
	}
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', -1, bits)
	}
	return exponent(strconv.FormatFloat(x, 'g', -1, bits))
}

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

// Percent writes a share with three digits, such as 12.3% for 0.1234. A share below 0.005% is 0%.
func Percent(share float64) string {
	v := 100 * share
	if math.Abs(v) < 0.005 {
		return "0%"
	}
	return threeDigits(v) + "%"
}

// Duration writes a time with three digits, from a minute on in whole seconds, in the notation of
// settings: 340ms, 1.23s, 12.3s, 1m12s.
func Duration(d time.Duration) string {
	unit := time.Second
	if size := d.Abs(); size < time.Minute {
		unit = 1
		for ; size >= 1000; size /= 10 {
			unit *= 10
		}
	}
	return d.Round(unit).String()
}

// Seconds is Duration for a number of seconds.
func Seconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }

// Milliseconds writes a time with a decimal place, or below 100 ms with two, or below 1 ms with
// three.
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

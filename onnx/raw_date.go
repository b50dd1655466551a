package onnx

import (
	"math"

	"github.com/ringo-ml/ringo/data/table"
)

// Seconds since 1970 of the years 0 to 9999, the range of table.Encoder: its first second, and its
// end.
const (
	firstSecond = -62167219200
	endSecond   = 253402300800
)

// encodeDate returns the inputs of a date column, [batch, 1] each, from its seconds since 1970 in
// UTC, all in float64. They are NaN for a missing date. Year and month are computed from the number
// of days by the algorithm civil_from_days (Hinnant, "chrono-compatible low-level date
// algorithms"), whose years begin in March.
func (b *builder) encodeDate(c table.Column) (parts []string) {
	x := func(v float64) string { return b.doubles("date", nil, v) }
	op := func(kind, a, with string) string { return b.add(kind, []string{a, with}) }
	quotient := func(a string, n float64) string { return b.add("Floor", []string{op("Div", a, x(n))}) }
	rest := func(a, quotient string, n float64) string { return op("Sub", a, op("Mul", quotient, x(n))) }

	seconds := b.add("Unsqueeze", []string{c.Name, b.list(1)})
	day := quotient(seconds, 24*60*60)
	days := op("Add", day, x(719468)) // from 0000-03-01
	era := quotient(days, 146097)     // of 400 years
	ofEra := rest(days, era, 146097)
	leap := op("Sub", op("Add", quotient(ofEra, 36524), op("Sub", ofEra, quotient(ofEra, 1460))), quotient(ofEra, 146096))
	yearOfEra := quotient(leap, 365)
	ofYear := op("Add", rest(ofEra, yearOfEra, 365), op("Sub", quotient(yearOfEra, 100), quotient(yearOfEra, 4)))
	march := quotient(op("Add", op("Mul", ofYear, x(5)), x(2)), 153) // months from March
	next := quotient(march, 10)                                      // 1 in January and February
	values := map[string]func() string{
		"days":  func() string { return op("Div", seconds, x(24*60*60)) },
		"year":  func() string { return op("Add", op("Add", yearOfEra, op("Mul", era, x(400))), next) },
		"month": func() string { return rest(op("Add", march, x(3)), next, 12) },
		"weekday": func() string {
			return op("Add", rest(op("Add", day, x(3)), quotient(op("Add", day, x(3)), 7), 7), x(1))
		},
		"hour": func() string { return quotient(rest(seconds, day, 24*60*60), 60*60) },
	}
	for _, p := range c.Parts {
		parts = append(parts, values[p.Name]())
	}
	early, late := op("Less", seconds, x(firstSecond)), b.add("Not", []string{op("Less", seconds, x(endSecond))})
	wrong := op("And", op("Or", early, late), b.add("Not", []string{b.add("IsNaN", []string{seconds})}))
	b.raw.wrong = append(b.raw.wrong, b.cast(b.add("Where", []string{wrong, x(math.NaN()), x(0)}), float32Type))
	return parts
}

package table

import (
	"strings"
	"testing"
)

// TestParseNumberReadsFormats checks numbers in each notation, and texts that a format rejects.
func TestParseNumberReadsFormats(t *testing.T) {
	for _, c := range []struct {
		format, text string
		want         float64
		ok           bool
	}{
		{"", " 1.5 ", 1.5, true},
		{"", "1,5", 0, false},
		{"comma", "1,5", 1.5, true},
		{"comma", "-1.234.567,25", -1234567.25, true},
		{"comma", "1 234,5", 1234.5, true},
		{"comma", "1\u202f234,5", 1234.5, true},
		{"comma", "1.5", 0, false},
		{"comma", "1.2345", 0, false},
		{"comma", "1234.567", 0, false},
		{"comma", ",5", 0.5, true},
		{"comma", "5,", 0, false},
		{"comma", "1.234 567", 0, false},
		{"comma", "1,234,567", 0, false},
		{"comma", "", 0, false},
		{"comma", "-", 0, false},
		{"point", "1,234.5", 1234.5, true},
		{"point", "1'234'567", 1234567, true},
		{"point", "1,5", 0, false},
		{"point", "1e5", 0, false},
		{"point", "inf", 0, false},
		{"point$", "$1,234.50", 1234.5, true},
		{"point$", "-$3", -3, true},
		{"point$", "$-3", -3, true},
		{"point$", "3 $", 3, true},
		{"point$", "3", 0, false},
		{"point$", "€3", 0, false},
		{"point$", "$", 0, false},
		{"point$", "--$3", 0, false},
		{"comma€", "1.234,50 €", 1234.5, true},
		{"comma€", "- 2 €", -2, true},
		{"point%", "12.5 %", 12.5, true},
		{"point km/h", "120 km/h", 120, true},
	} {
		if got, ok := parseNumber(c.text, c.format); ok != c.ok || ok && got != c.want {
			t.Errorf("%q as %q: got %v, %v, want %v, %v", c.text, c.format, got, ok, c.want, c.ok)
		}
	}
}

// TestSchemaFormatsAreChecked: a schema's formats are read and printed, or rejected with the
// column.
func TestSchemaFormatsAreChecked(t *testing.T) {
	for _, text := range []string{"a=date", "a=date:DD/MM/YYYY", "a=date:unix-ms", "a=date:YYYY-MM-DDThh:mm:ssZ", "a=date:D. MMM YY", "a=number:comma€", "a=target:point%"} {
		if s, err := ParseSchema(text); err != nil || s.String() != text {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	for text, want := range map[string]string{
		"a=date:":                `column "a" is to be "date:"`,
		"a=date:DD/MM":           "want a pattern of YYYY or YY",
		"a=date:DD/MM/YYYYY":     "want a pattern",
		"a=date:DD/MM/YYYY/YYYY": "want a pattern",
		"a=date:iso":             "want a pattern",
		"a=number:":              `"number:"`,
		"a=number:€":             "want number:point or number:comma, the decimal sign",
		"a=number:comma.5":       "want number:point or number:comma",
		"a=category:x":           "a category has no format",
		"a=floor:x":              "want number, category, date, label, target or ignore",
	} {
		if _, err := ParseSchema(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestFormatsOfNumbersAreEncoded: numbers and targets with a format have the samples of the same
// numbers without one, and a value in another notation is an error with its line.
func TestFormatsOfNumbersAreEncoded(t *testing.T) {
	plain := column("c", func(i int) string { return strings.Repeat("1", 1+i%6) + ".5" })
	german := column("c", func(i int) string {
		return map[int]string{0: "1,5 €", 1: "11,5 €", 2: "111,5 €", 3: "1.111,5 €", 4: "11.111,5 €", 5: "111.111,5 €"}[i%6]
	})
	german = strings.NewReplacer(",\"", "\t", ",", ";").Replace(german)
	lines := strings.Split(german, "\n")
	for i, l := range lines {
		if parts := strings.Split(l, ";"); len(parts) > 3 { // x;1;5 €;y: the comma of c is its own
			lines[i] = parts[0] + ";" + parts[1] + "," + parts[2] + ";" + parts[3]
		}
	}
	samples := func(content string, schema Schema) (*Encoder, Samples) {
		e, err := InferEncoder(text(t, content), Options{Target: "y", Schema: schema}, none, strict)
		if err != nil {
			t.Fatal(err)
		}
		var s Samples
		if err := e.Encode(text(t, content), true, 1<<20, func(int64) *Samples { return &s }, strict); err != nil {
			t.Fatal(err)
		}
		return e, s
	}
	_, want := samples(plain, nil)
	e, got := samples(strings.Join(lines, "\n"), Schema{"c": "number:comma€"})
	if len(got.Values) != 600 || e.Columns[1].Format != "comma€" || e.Schema()["c"] != "number:comma€" {
		t.Errorf("%d values, column %+v", len(got.Values), e.Columns[1])
	}
	for i := range got.Values {
		if got.Values[i] != want.Values[i] {
			t.Fatalf("value %d is %v, want %v", i, got.Values[i], want.Values[i])
		}
	}
	lines[120] = "1.5;7;1.25"
	_, err := InferEncoder(text(t, strings.Join(lines, "\n")), Options{Target: "y", Schema: Schema{"c": "number:comma€"}}, none, strict)
	if want := `f.csv: line 121: column "c": "7" is no finite number of the format comma€`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

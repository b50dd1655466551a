package table

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestParseDateReadsFormats compares texts in each format with the standard library's reading, or
// rejects them.
func TestParseDateReadsFormats(t *testing.T) {
	for _, c := range []struct{ format, text, want string }{
		{isoDate, "2024-02-29", "2024-02-29T00:00:00Z"},
		{isoDate, "2023-02-29", ""},
		{isoDate, " 2024-1-5 ", "2024-01-05T00:00:00Z"},
		{isoDate, "2024-01-05 7:08", "2024-01-05T07:08:00Z"},
		{isoDate, "2024-01-05T07:08:09.5", "2024-01-05T07:08:09.5Z"},
		{isoDate, "2024-01-05T07:08:09Z", ""},
		{isoDate, "2024-01-05T24:00", ""},
		{isoDate, "2024-01-05T07:60", ""},
		{isoDate, "2024-01-05T07:08:60", ""},
		{isoDate, "2024-13-05", ""},
		{isoDate, "2024-00-05", ""},
		{isoDate, "24-01-05", ""},
		{isoDate, "2024-01-05 x", ""},
		{isoDate, "", ""},
		{isoZone, "2024-01-05T07:08:09Z", "2024-01-05T07:08:09Z"},
		{isoZone, "2024-01-05 07:08:09+02:00", "2024-01-05T05:08:09Z"},
		{isoZone, "2024-01-05T01:08:09.25+0530", "2024-01-04T19:38:09.25Z"},
		{isoZone, "2024-01-05T07:08 -03", "2024-01-05T10:08:00Z"},
		{isoZone, "2024-01-05 07:08:09 UTC", "2024-01-05T07:08:09Z"},
		{isoZone, "2024-01-05", ""},
		{isoZone, "2024-01-05T07:08", ""},
		{"DD/MM/YYYY", "31/12/2024", "2024-12-31T00:00:00Z"},
		{"DD/MM/YYYY", "1/2/2024 3:04 PM", "2024-02-01T15:04:00Z"},
		{"DD/MM/YYYY", "1/2/2024 12:04 am", "2024-02-01T00:04:00Z"},
		{"DD/MM/YYYY", "1/2/2024 13:04 PM", ""},
		{"MM/DD/YYYY", "31/12/2024", ""},
		{"DD.MM.YY", "31.12.68", "2068-12-31T00:00:00Z"},
		{"DD.MM.YY", "31.12.69", "1969-12-31T00:00:00Z"},
		{"DD-MMM-YYYY", "05-mar-2024", "2024-03-05T00:00:00Z"},
		{"MMM D, YYYY", "September 5, 2024", "2024-09-05T00:00:00Z"},
		{"YYYYMMDD", "20240305", "2024-03-05T00:00:00Z"},
		{"YYYYMMDD", "2024035", ""},
		{"YYYYMMDDhhmmss", "20240305112233", "2024-03-05T11:22:33Z"},
		{unix, "1709634153.5", "2024-03-05T10:22:33.5Z"},
		{unixMilli, "1709634153500", "2024-03-05T10:22:33.5Z"},
		{unix, "1e300", ""},
		{unix, "NaN", ""},
		{unix, "-1.5", "1969-12-31T23:59:58.5Z"},
	} {
		got, ok := parseDate(c.text, c.format)
		if want, err := time.Parse(time.RFC3339, c.want); ok != (c.want != "") || ok && (err != nil || !got.Equal(want)) {
			t.Errorf("%q as %s: got %v, %v, want %s", c.text, c.format, got, ok, c.want)
		}
	}
}

// TestDatePartsMatchCalendar compares the inputs of random instants with the calendar of package
// time.
func TestDatePartsMatchCalendar(t *testing.T) {
	for i := range 2000 {
		at := time.Unix(int64(i)*4_000_003-4_000_000_000, 0).UTC()
		day, _ := time.Parse(time.DateOnly, at.Format(time.DateOnly))
		weekday := slices.Index([]string{"", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}, at.Format("Monday"))
		want := [...]float64{day.Sub(time.Unix(0, 0)).Hours()/24 + at.Sub(day).Hours()/24, float64(at.Year()), float64(at.Month()), float64(weekday), float64(at.Hour())}
		for k, x := range values(at) {
			if math.Abs(x-want[k]) > 1e-9 {
				t.Fatalf("%v: %s is %v, want %v", at, dateParts[k], x, want[k])
			}
		}
	}
}

func day(i int) string { return time.Unix(int64(i)*86400*11, 0).UTC().Format(time.DateOnly) }

// slashed writes dates with the day first.
func slashed(most int) func(i int) string {
	return func(i int) string { return fmt.Sprintf("%d/%02d/%d", 1+i%most, 1+i%12, 2000+i%20) }
}

// TestDatesAreGuessed checks the format of columns of dates, or the remark on undecided ones.
func TestDatesAreGuessed(t *testing.T) {
	for name, c := range map[string]struct {
		value          func(i int) string
		format, remark string
	}{
		"days":           {day, isoDate, "from dates: c (YYYY-MM-DD: days, year, month, weekday)"},
		"times":          {func(i int) string { return fmt.Sprintf("%sT%02d:00", day(i), i%24) }, isoDate, "(YYYY-MM-DD: days, year, month, weekday, hour)"},
		"zones":          {func(i int) string { return fmt.Sprintf("%s %02d:00:00+01:00", day(i), i%24) }, isoZone, "from dates: c (YYYY-MM-DDZ: "},
		"missing":        {but("", day), isoDate, "missing values: c 1 (empty)"},
		"the day first":  {slashed(13), "DD/MM/YYYY", "from dates: c"},
		"year and slash": {func(i int) string { return strings.ReplaceAll(day(i), "-", "/") }, "YYYY/MM/DD", "from dates: c"},
		"points":         {func(i int) string { return strings.ReplaceAll(slashed(28)(i), "/", ".") }, "DD.MM.YYYY", "from dates: c"},
		"undecided":      {slashed(12), "", `column "c": dates such as "1/01/2000" can have the day or the month first, and no value decides: data.schema=c=date:DD/MM/YYYY or c=date:MM/DD/YYYY makes them inputs`},
		"words":          {func(i int) string { return []string{"1/1/2024x", "a/b/c/d/e"}[i%2] }, "", "from categories: c (2)"},
	} {
		r := text(t, column("c", c.value))
		e, err := InferEncoder(r, Options{}, none, strict)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := e.Columns[1]; (got.Kind == Date) != (c.format != "") || got.Format != c.format {
			t.Errorf("%s: got %s of format %q, want %q", name, got.Kind, got.Format, c.format)
		}
		if notes := strings.Join(e.Notes(r), "\n"); !strings.Contains(notes, c.remark) {
			t.Errorf("%s:\n got %s\nwant %s", name, notes, c.remark)
		}
	}
}

// TestInvalidDatesAreErrors: one value does not change a column of dates, also after 39,000 rows.
func TestInvalidDatesAreErrors(t *testing.T) {
	var b strings.Builder
	b.WriteString("x,when,y\n")
	for i := range 40_000 {
		when := day(i % 3000)
		if i == 39_000 {
			when = "2023-02-29"
		}
		fmt.Fprintf(&b, "%d,%s,%d.5\n", i%7, when, i)
	}
	long := b.String()
	for name, c := range map[string]struct {
		content, reports string
		schema           Schema
	}{
		"an invalid date":     {long, `f.csv: line 39002: column "when": "2023-02-29" is no date YYYY-MM-DD, and 39999 of 40000 values are: correct it, or name the column's kind with data.schema: when=date:YYYY-MM-DD, when=category or when=ignore`, nil},
		"by a schema":         {long, `f.csv: line 39002: column "when": "2023-02-29" is no date YYYY-MM-DD`, Schema{"when": Date}},
		"by its format":       {long, `f.csv: line 39002: column "when": "2023-02-29" is no date YYYY-MM-DD`, Schema{"when": "date:YYYY-MM-DD"}},
		"in the first row":    {column("c", func(i int) string { return []string{"?x", day(i)}[min(i, 1)] }), `f.csv: line 2: column "c": "?x" is no date YYYY-MM-DD, and 299 of 300`, nil},
		"a number":            {column("c", but("20240101", day)), `line 122: column "c": "20240101" is no date YYYY-MM-DD`, nil},
		"a number first":      {column("c", func(i int) string { return []string{"5", day(i)}[min(i, 1)] }), `line 2: column "c": "5" is no date`, nil},
		"a zone among others": {column("c", but("2024-01-01T10:00Z", day)), `line 122: column "c": "2024-01-01T10:00Z" is no date YYYY-MM-DD, and 299`, nil},
		"undecided":           {column("c", slashed(12)), `line 2: column "c": "1/01/2000" can have the day or the month first, and no value decides: data.schema=c=date:DD/MM/YYYY or c=date:MM/DD/YYYY`, Schema{"c": Date}},
		"no date":             {column("c", fractions), `line 2: column "c": "0.0" is no date of a known format: name it with data.schema, such as c=date:DD-MMM-YYYY`, Schema{"c": Date}},
		"a date to find":      {goalOf300(day), `its kind in the schema is date: want label or target`, Schema{"y": Date}},
	} {
		_, err := InferEncoder(text(t, c.content), Options{Target: "y", Schema: c.schema}, none, strict)
		if err == nil || !strings.Contains(err.Error(), c.reports) {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.reports)
		}
	}
	skipped := 0
	e, err := InferEncoder(text(t, long), Options{Schema: Schema{"when": Date}}, none, func(error) error { skipped++; return nil })
	if err != nil || skipped != 1 || e.Columns[1].Kind != Date {
		t.Errorf("skipping bad dates: %v, %d skipped", err, skipped)
	}
}

// TestDatesAreEncoded compares the samples of dates with a naive computation, from the encoder and
// from its JSON.
func TestDatesAreEncoded(t *testing.T) {
	content := column("c", but("NA", day))
	held := func(row int64) bool { return row%5 == 0 }
	e, err := InferEncoder(text(t, content), Options{}, held, strict)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := json.Marshal(e)
	read := new(Encoder)
	if err = joined(err, json.Unmarshal(saved, read)); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(read); string(again) != string(saved) {
		t.Errorf("got %s\nwant %s", again, saved)
	}
	for _, enc := range []*Encoder{e, read} {
		var s Samples
		if err := enc.Encode(text(t, content), true, 1<<20, func(int64) *Samples { return &s }, strict); err != nil {
			t.Fatal(err)
		}
		if enc.Numbers() != 5 || len(s.Values) != 5*300 {
			t.Fatalf("%d numbers, %d values", enc.Numbers(), len(s.Values))
		}
		for k := range 4 {
			var sum, squares, n float64
			of := func(i int) float64 { return values(time.Unix(int64(i)*86400*11, 0).UTC())[k] }
			for i := range 300 {
				if i != 120 && !held(int64(i)) {
					sum, n = sum+of(i), n+1
				}
			}
			for i := range 300 {
				if i != 120 && !held(int64(i)) {
					squares += (of(i) - sum/n) * (of(i) - sum/n)
				}
			}
			for i := range 300 {
				want := (of(i) - sum/n) / math.Sqrt(squares/n)
				if i == 120 {
					want = 0
				}
				if got := float64(s.Values[5*i+1+k]); math.Abs(got-want) > 1e-5 {
					t.Fatalf("row %d: %s is %v, want %v", i, dateParts[k], got, want)
				}
			}
		}
	}
}

func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestDatesOfSharedTables: two parts of a table have the encoder of the whole, except for rounding,
// and an invalid date in either part is an error.
func TestDatesOfSharedTables(t *testing.T) {
	lines := strings.SplitAfter(column("c", day), "\n")
	first, second := strings.Join(lines[:100], ""), lines[0]+strings.Join(lines[100:], "")
	held := func(row int64) bool { return row < 99 && row%4 == 3 || row >= 99 && (row-99)%4 == 3 }
	whole, err := InferEncoder(text(t, column("c", day)), Options{}, held, strict)
	both, errs := together(t, Options{}, first, second)
	if err = joined(err, errs[0], errs[1]); err != nil {
		t.Fatal(err)
	}
	for k, p := range both[1].Columns[1].Parts {
		if q := whole.Columns[1].Parts[k]; p.Name != q.Name || math.Abs(p.Mean-q.Mean) > 1e-9 || math.Abs(p.Deviation-q.Deviation) > 1e-9 {
			t.Errorf("%+v, want %+v", p, q)
		}
	}
	broken := strings.Replace(second, "\n", "\n1.5,2020-13-01,7\n", 1)
	for _, files := range [][]string{{first, broken}, {broken, first}} {
		_, errs := together(t, Options{}, files...)
		for _, err := range errs {
			if err == nil || !strings.Contains(err.Error(), `"2020-13-01" is no date YYYY-MM-DD`) {
				t.Errorf("got %v", err)
			}
		}
	}
}

// TestDatesOfPreviousEncoder: a run that starts from a checkpoint reads dates in the checkpoint's
// format, with its means, even if other values decide otherwise.
func TestDatesOfPreviousEncoder(t *testing.T) {
	was, err := InferEncoder(text(t, column("c", slashed(28))), Options{}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	now, err := InferEncoder(text(t, column("c", slashed(12))), Options{Previous: was}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := now.Columns[1], was.Columns[1]; got.Format != want.Format || !slices.Equal(got.Parts, want.Parts) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// FuzzParseDate: no text makes the reader of dates panic, and a date that is read is one of the
// years 0 to 9999, up to the zone.
func FuzzParseDate(f *testing.F) {
	f.Add("2024-01-05T07:08:09.5+02:00", isoZone)
	f.Add("05-mar-2024 3:04 PM", "DD-MMM-YYYY")
	f.Add("20240305112233", "YYYYMMDDhhmmss")
	f.Fuzz(func(t *testing.T, word, format string) {
		dateFormats(word)
		if checkDate(format) != nil {
			return
		}
		if at, ok := parseDate(word, format); ok && (at.Year() < -1 || at.Year() > 10_000) {
			t.Errorf("%q as %s: %v", word, format, at)
		}
	})
}

// TestResumedTablesKeepIgnoredColumns: a resumed run ignores the columns that its checkpoint
// ignores, although their values are dates; a new run from the checkpoint reads the dates.
func TestResumedTablesKeepIgnoredColumns(t *testing.T) {
	content := column("c", day)
	was, err := InferEncoder(text(t, content), Options{Schema: Schema{"c": Ignore}}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	was.Columns[1].Reason = "it has 300 different words in 300 rows"
	resumed, err := InferEncoder(text(t, content), Options{Previous: was, Resumed: true}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", resumed.Columns), fmt.Sprintf("%+v", was.Columns); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	started, err := InferEncoder(text(t, content), Options{Previous: was}, none, strict)
	if err != nil || started.Columns[1].Kind != Date {
		t.Errorf("a new run: %v, %+v", err, started)
	}
}

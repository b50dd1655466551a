package data

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

const dayLayout = `
separator: comma
header: true
columns:
  - {name: click, kind: label}
  - {name: item, kind: category}
  - {name: tags, kind: bag}
`

// dayRows returns rows with columns that no model uses, and each row's day and rank.
func dayRows(n int) (text string, days, ranks []string) {
	text = "\ufeffwhen,tags,item,click,rank,\"a,b\"\r\n"
	for i := range n {
		day, rank := fmt.Sprintf("2014-10-%02d", 28+i%3), []string{"9", "10", "", "b", "-1"}[i%5]
		days, ranks = append(days, day), append(ranks, rank)
		text += fmt.Sprintf("%s %02d:00:00,x|y,%d,%d,%s,\"%d, \"\"q\"\"\"\r\n", day, i%24, i%7, i%2, rank, i%2)
	}
	return text, days, ranks
}

func groupsEqual(t *testing.T, s *Dataset, column string, want []string, sorted ...string) {
	t.Helper()
	of, values, err := s.Groups(column)
	if err != nil || len(of) != len(want) || !slices.Equal(slices.Sorted(slices.Values(values)), sorted) {
		t.Fatalf("%s: %d samples, values %q, %v; want %d, %q", column, len(of), values, err, len(want), sorted)
	}
	for i, k := range of {
		if values[k] != want[i] {
			t.Fatalf("%s of sample %d: %q, want %q", column, i, values[k], want[i])
		}
	}
}

// TestGroupsOfClicks reads columns of a file that the layout lacks: times by day, numbers by value,
// and quoted texts; in memory, streamed, compressed and limited.
func TestGroupsOfClicks(t *testing.T) {
	text, days, ranks := dayRows(4000)
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"train.csv": []byte(text), "test.csv": []byte(text), "test.csv.gz": datatest.Compress([]byte(text)), "l.yaml": []byte(dayLayout)})
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []Config{{}, {Stream: true}, {EvalFile: file("test.csv.gz")}, {EvalLimit: 1000}} {
		c.TrainFile, c.Layout = file("train.csv"), file("l.yaml")
		if c.EvalFile == "" {
			c.EvalFile = file("test.csv")
		}
		s, err := Open("clicks", c)
		if err != nil {
			t.Fatal(err)
		}
		n := s.Eval.Len()
		groupsEqual(t, s, "when", days[:n], "2014-10-28", "2014-10-29", "2014-10-30")
		groupsEqual(t, s, "rank", ranks[:n], "", "-1", "10", "9", "b")
		if _, values, err := s.Groups("a,b"); err != nil || !slices.Equal(values, []string{`0, "q"`, `1, "q"`}) {
			t.Errorf("%q, %v", values, err)
		}
		for column, want := range map[string]string{"wen": `(did you mean "when"?)`, "tags": `column "tags" has several values in a row`} {
			if _, _, err := s.Groups(column); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

// TestGroupsOfTables reads the rows of a split, and of another file.
func TestGroupsOfTables(t *testing.T) {
	text, days, _ := dayRows(500)
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"t.csv": []byte(text), "u.csv": []byte(text)})
	file := filepath.Join(dir, "t.csv")
	for _, c := range []Config{{Dir: file, Split: 0.3}, {TrainFile: file, EvalFile: filepath.Join(dir, "u.csv")}} {
		c.Target, c.Schema = "click", table.Schema{"rank": table.Ignore}
		s, err := Open("table", c)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i, day := range days {
			if c.EvalFile != "" || Held(i, 0.3) {
				want = append(want, day)
			}
		}
		groupsEqual(t, s, "when", want, "2014-10-28", "2014-10-29", "2014-10-30")
	}
}

// TestGroupsRejectData names the reason for data without a column for each sample.
func TestGroupsRejectData(t *testing.T) {
	text, _, _ := dayRows(50)
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{
		"good.csv": []byte(text), "bad.csv": []byte(text + "bad\n"), "twice.csv": []byte(strings.Replace(text, "rank", "when", 1)), "l.yaml": []byte(dayLayout),
	})
	of := func(name string, skip int) Config {
		return Config{TrainFile: filepath.Join(dir, "good.csv"), EvalFile: filepath.Join(dir, name), Layout: filepath.Join(dir, "l.yaml"), SkipBad: skip}
	}
	for _, c := range []struct {
		set  string
		cfg  Config
		want string
	}{
		{"mnist", Config{Dir: Synthetic, TrainLimit: 10, EvalLimit: 10}, "data set mnist has no columns"},
		{"criteo", Config{Dir: Synthetic, TrainLimit: 10, EvalLimit: 10}, "these are generated, or rows were skipped"},
		{"clicks", of("bad.csv", 3), "these are generated, or rows were skipped"},
		{"clicks", of("twice.csv", 0), `fields 1 and 5 are both called "when"`},
	} {
		s, err := Open(c.set, c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Groups("when"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.set, err, c.want)
		}
	}
	s, err := Open("clicks", of("good.csv", 0))
	if err != nil {
		t.Fatal(err)
	}
	datatest.Write(t, dir, map[string][]byte{"good.csv": []byte(text[:len(text)/2])})
	if _, _, err := s.Groups("item"); err == nil {
		t.Error("a shortened file has groups")
	}
}

// numberReader is a table with a column of numbers, as in Parquet files.
type numberReader struct {
	values  []float64
	seconds float64
}

func (r numberReader) Name() string      { return "n.parquet" }
func (r numberReader) Columns() []string { return []string{"n"} }
func (r numberReader) Scan(_ []int, _ func(error) error, visit func(*table.Chunk) error) error {
	return visit(&table.Chunk{N: len(r.values), Columns: []table.Vector{{Numbers: r.values, Seconds: r.seconds}}})
}

// TestGroupsOfTypedTables prints times in any unit as their days, midnight included, numbers
// exactly, and rejects numbers that float64 rounds.
func TestGroupsOfTypedTables(t *testing.T) {
	days := []int64{-1, 0, 10957}
	for day := range int64(3000) {
		days = append(days, 19000+day)
	}
	for _, c := range []struct{ seconds, perDay, last float64 }{{86400, 1, 0}, {1, 86400, 86399}, {1e-3, 864e5, 864e5 - 1}, {1e-6, 864e8, 864e8 - 1}, {1e-9, 864e11, 864e11 - 1000}} {
		r, want := numberReader{seconds: c.seconds}, []string(nil)
		for _, day := range days {
			text := time.Unix(day*86400, 0).UTC().Format(time.DateOnly)
			r.values, want = append(r.values, float64(day)*c.perDay, float64(day)*c.perDay+c.last), append(want, text, text)
		}
		i := 0
		if err := (tableRows{r, func(int64) bool { return true }}).eachValue("n", func(value string) bool {
			if value[:10] != want[i] {
				t.Errorf("unit of %v s: %v is %s, want %s", c.seconds, r.values[i], value, want[i])
			}
			i++
			return i < len(want)
		}); err != nil || i != len(want) {
			t.Fatalf("%d of %d values, %v", i, len(want), err)
		}
	}
	for value, want := range map[float64]string{
		1<<53 - 1: "9007199254740991", -0.5: "-0.5", math.NaN(): "",
		1 << 53:    `n.parquet: row 1: column "n": 9007199254740992, rounded: want numbers below 2^53`,
		-(1 << 60): "-1152921504606847000, rounded",
	} {
		got := ""
		err := (tableRows{numberReader{values: []float64{7, value}}, func(row int64) bool { return row == 1 }}).eachValue("n", func(text string) bool {
			got = text
			return true
		})
		if strings.Contains(want, "rounded") && (err == nil || !strings.Contains(err.Error(), want)) || !strings.Contains(want, "rounded") && (err != nil || got != want) {
			t.Errorf("%v: %q, %v, want %q", value, got, err, want)
		}
	}
}

package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// readClicks parses a text to the end, or to row limit.
func readClicks(name string, r io.Reader, f *clicks.Format, threads, limit int, bad *datafile.Skips) (*clickPages, error) {
	return collectClicks(name, f, limit, func(collect func(*clicks.Chunk) bool) error {
		_, err := f.Each(name, r, clicks.ChunkBytes, threads, bad, collect)
		return err
	})
}

// naiveClicks is the parser's twin: split, convert.
func naiveClicks(t *testing.T, text []byte, rows int) (out clicks.Rows) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		fields := strings.Split(strings.TrimSuffix(line, "\r"), "\t")
		if len(fields) != clicks.CriteoFields {
			t.Fatalf("%d fields", len(fields))
		}
		for i, f := range fields {
			switch {
			case i == 0:
				l, _ := strconv.Atoi(f)
				out.Labels = append(out.Labels, int32(l))
			case i <= clicks.CriteoNumbers:
				x, _ := strconv.ParseInt(f, 10, 64)
				out.Numbers = append(out.Numbers, float32(math.Log1p(math.Max(0, float64(x)))))
			case f == "":
				out.IDs = append(out.IDs, 0)
			default:
				x, _ := strconv.ParseUint(f, 16, 64)
				out.IDs = append(out.IDs, clicks.SlotID(i-1-clicks.CriteoNumbers, x, rows))
			}
		}
	}
	return out
}

func read(t *testing.T, text []byte, threads, limit, most int) (*clickPages, *datafile.Skips) {
	t.Helper()
	bad := &datafile.Skips{Max: most}
	got, err := readClicks("f", bytes.NewReader(text), clicks.CriteoFormat(1000, false), threads, limit, bad)
	if err != nil {
		t.Fatal(err)
	}
	return got, bad
}

func (c *clickPages) flat() (out clicks.Rows) {
	for _, p := range c.pages {
		out.Numbers, out.IDs, out.Labels = append(out.Numbers, p.Numbers...), append(out.IDs, p.IDs...), append(out.Labels, p.Labels...)
	}
	return out
}

func sameRows(a, b clicks.Rows) bool {
	return slices.Equal(a.Numbers, b.Numbers) && slices.Equal(a.IDs, b.IDs) && slices.Equal(a.Labels, b.Labels)
}

func TestCriteoParser(t *testing.T) {
	// Several chunks, the last of a single line without an end; and two pages.
	text := datatest.ClickText(10_000)
	text = text[:len(text)-1]
	want := naiveClicks(t, text, 1000)
	for _, threads := range []int{1, 2, 5} {
		if got, _ := read(t, text, threads, 0, 0); got.n != 10_000 || !sameRows(got.flat(), want) {
			t.Errorf("%d threads: %d rows differ from the twin's", threads, got.n)
		}
	}
	windows := bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	if got, _ := read(t, windows, 2, 0, 0); !sameRows(got.flat(), want) {
		t.Error("lines that end in CR LF")
	}
	for _, limit := range []int{1, 4000, 9_999} {
		got, _ := read(t, text, 3, limit, 0)
		if flat := got.flat(); got.n != limit || !slices.Equal(flat.Labels, want.Labels[:limit]) || !slices.Equal(flat.IDs, want.IDs[:limit*clicks.CriteoSlots]) {
			t.Errorf("limit %d: %d rows", limit, got.n)
		}
	}
	got, _ := read(t, text, 1, 0, 0)
	b := fill(t, got, Draw{}, 9_999, 8_192, 0)
	for i, n := range []int{9_999, 8_192, 0} {
		if b.Labels[i] != want.Labels[n] || !slices.Equal(b.IDs[i*26:][:26], want.IDs[n*26:][:26]) || !slices.Equal(b.Values[i*13:][:13], want.Numbers[n*13:][:13]) {
			t.Errorf("sample %d", n)
		}
	}
	checkReuse(t, got, Draw{})
}

func TestSlotID(t *testing.T) {
	if a, b := clicks.SlotID(0, 5, 1_000_001), clicks.SlotID(1, 5, 1_000_001); a == b {
		t.Error("two slots share a value's row")
	}
	// A run must read the same ids on every host and in every version.
	if got := clicks.SlotID(3, 0x68fd1e64, 1_000_001); got != 134656 {
		t.Errorf("the hash changed: %d", got)
	}
	const rows, draws = 11, 50_000
	var count [rows]int
	for v := range draws {
		count[clicks.SlotID(v%26, uint64(v), rows)]++
	}
	for row, n := range count {
		if row == 0 && n != 0 || row > 0 && (n < 4700 || n > 5300) {
			t.Errorf("row %d: %d of %d", row, n, draws)
		}
	}
}

func TestCriteoFaults(t *testing.T) {
	good := strings.Split(strings.TrimSuffix(string(datatest.ClickText(3)), "\n"), "\n")
	numbers, categories := make([]string, 13), make([]string, 26)
	with := func(s []string, i int, v string) []string {
		s = slices.Clone(s)
		s[i] = v
		return s
	}
	for _, c := range []struct {
		name, line, says string
		offset           int // in the line
	}{
		{"no label", datatest.ClickLine("", numbers, categories), "the label is missing", 0},
		{"label", datatest.ClickLine("2", numbers, categories), `label "2"`, 0},
		{"long label", datatest.ClickLine("11", numbers, categories), `label "11"`, 0},
		{"empty line", "", "the label is missing", 0},
		{"one field", "1", `label "1"`, 0},
		{"number", datatest.ClickLine("1", with(numbers, 2, "12x"), categories), `field 4 is "12x", want an integer`, 6},
		{"minus", datatest.ClickLine("1", with(numbers, 2, "-"), categories), `field 4 is "-"`, 4},
		{"huge number", datatest.ClickLine("1", with(numbers, 0, strings.Repeat("9", 20)), categories), "field 2", 20},
		{"number that overflows", datatest.ClickLine("1", with(numbers, 0, strings.Repeat("9", 19)), categories), "field 2", 20},
		{"huge negative", datatest.ClickLine("1", with(numbers, 0, "-"+strings.Repeat("9", 19)), categories), "field 2", 21},
		{"category", datatest.ClickLine("1", numbers, with(categories, 0, "68fd1g64")), `field 15 is "68fd1g64", want a category`, 20},
		{"long category", datatest.ClickLine("1", numbers, with(categories, 25, strings.Repeat("a", 17))), "field 40", 56},
		{"last category", datatest.ClickLine("1", numbers, with(categories, 25, "xyz")), `field 40 is "xyz"`, 40},
		{"few fields", datatest.ClickLine("1", numbers, categories[:20]), "the line ends in field 34 of 40", 34},
		{"few numbers", datatest.ClickLine("1", numbers[:5], nil), "the line ends in field 6 of 40", 6},
		{"many fields", datatest.ClickLine("1", numbers, append(categories, "")), "field 40", 40},
	} {
		for _, last := range []bool{false, true} {
			text := good[0] + "\n" + good[1] + "\n" + c.line + "\n" + good[2] + "\n"
			if last {
				if text = strings.TrimSuffix(text, good[2]+"\n"); c.line != "" {
					text = strings.TrimSuffix(text, "\n")
				}
			}
			_, err := readClicks("f", strings.NewReader(text), clicks.CriteoFormat(1000, false), 2, 0, new(datafile.Skips))
			want := fmt.Sprintf("f: byte %d: line 3: ", len(good[0])+len(good[1])+2+c.offset)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "data.max-bad-records") {
				t.Errorf("%s: %v\nwant %s…%s", c.name, err, want, c.says)
			}
			got, bad := read(t, []byte(text), 2, 0, 1)
			lines := good
			if last {
				lines = good[:2]
			}
			if left := naiveClicks(t, []byte(strings.Join(lines, "\n")), 1000); bad.Count() != 1 || !sameRows(got.flat(), left) {
				t.Errorf("%s: %d skipped, %d rows left", c.name, bad.Count(), got.n)
			}
		}
	}
	two := "x\n" + good[0] + "\n\ny\n"
	_, err := readClicks("f", strings.NewReader(two), clicks.CriteoFormat(1000, false), 1, 0, &datafile.Skips{Max: 2})
	if err == nil || !strings.Contains(err.Error(), "line 4") || !strings.Contains(err.Error(), "2 more before it were left out") || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("one too many: %v", err)
	}
	if _, err := readClicks("f", strings.NewReader(""), clicks.CriteoFormat(1000, false), 1, 0, new(datafile.Skips)); err == nil || !strings.Contains(err.Error(), "no rows") {
		t.Errorf("empty: %v", err)
	}
	if _, err := readClicks("f", bytes.NewReader(make([]byte, clicks.ChunkBytes+1)), clicks.CriteoFormat(1000, false), 1, 0, new(datafile.Skips)); err == nil || !strings.Contains(err.Error(), "no file of text lines") {
		t.Errorf("no lines: %v", err)
	}
}

// Faults are told in order, with the line's number, however many chunks and
// goroutines there are.
func TestCriteoFaultsInOrder(t *testing.T) {
	lines := bytes.SplitAfter(datatest.ClickText(20_000), []byte("\n"))
	first, second := 9_000, 15_000
	lines[first], lines[second] = []byte("bad\n"), []byte("worse\n")
	text := bytes.Join(lines, nil)
	for _, threads := range []int{1, 4} {
		_, err := readClicks("f", bytes.NewReader(text), clicks.CriteoFormat(1000, false), threads, 0, &datafile.Skips{Max: 1})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line %d: label \"worse", second+1)) || !strings.Contains(err.Error(), fmt.Sprintf("line %d: label \"bad", first+1)) {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}

func TestOpenCriteo(t *testing.T) {
	train, eval := datatest.ClickText(50), datatest.ClickText(20)
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"day_train.tsv.gz": datatest.Compress(train), "day_dev.tsv": eval, "README.md": []byte("train"), "test.part": nil})
	set, err := Open("criteo", Config{Dir: dir, Rows: 500, TrainLimit: 30})
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len() != 30 || set.Eval.Len() != 20 || set.Classes != 2 || set.Rows != 500 || slices.Max(all(t, set.Train).IDs) >= 500 {
		t.Errorf("%+v", set)
	}
	set, err = Open("criteo", Config{TrainFile: filepath.Join(dir, "day_dev.tsv"), EvalFile: filepath.Join(dir, "day_dev.tsv")})
	if err != nil || set.Train.Len() != 20 || set.Rows != 1_000_001 {
		t.Errorf("files by name: %v", err)
	}
	packed := datatest.Compress(train)
	datatest.Write(t, dir, map[string][]byte{"day_train.tsv.gz": packed[:len(packed)-20]})
	var fault *datafile.FormatError
	if _, err = Open("criteo", Config{Dir: dir}); !errors.As(err, &fault) || !strings.Contains(fault.File, "day_train.tsv.gz") || !strings.Contains(fault.Problem, "truncated") {
		t.Errorf("cut: %v", err)
	}
}

func TestFindPair(t *testing.T) {
	for _, c := range []struct {
		files       []string
		train, eval string
		says        string
	}{
		{[]string{"train.txt", "test.txt", "valid.txt"}, "train.txt", "test.txt", ""},
		{[]string{"wiki.train.tokens", "wiki.valid.tokens"}, "wiki.train.tokens", "wiki.valid.tokens", ""},
		{[]string{"train.tsv", "train.tsv.gz", "eval.tsv.gz"}, "train.tsv", "eval.tsv.gz", ""},
		{[]string{"TRAIN.TXT", "Dev.txt"}, "TRAIN.TXT", "Dev.txt", ""},
		{[]string{"a_train.txt", "b_train.txt", "test.txt"}, "", "", "2 files with \"train\""},
		{[]string{"train.txt", "train.tar.gz"}, "", "", "has test, dev, valid, eval in its name"},
		{[]string{"valid.txt", "test.txt"}, "", "", "with train in its name"},
	} {
		dir := t.TempDir()
		for _, f := range c.files {
			datatest.Write(t, dir, map[string][]byte{f: nil})
		}
		set := "text"
		if strings.HasSuffix(c.eval, ".tsv.gz") {
			if _, err := datafile.FindPair(set, dir, "", ""); err == nil {
				t.Errorf("%q: tables were taken for text", c.files)
			}
			set = "criteo"
		}
		p, err := datafile.FindPair(set, dir, "", "")
		if c.says != "" {
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "with test", "has test"), c.says) || !strings.Contains(err.Error(), "data.train-file") {
				t.Errorf("%q: %v, want %q", c.files, err, c.says)
			}
			continue
		}
		if err != nil || p.Train != filepath.Join(dir, c.train) || p.Eval != filepath.Join(dir, c.eval) {
			t.Errorf("%q: %+v, %v", c.files, p, err)
		}
	}
	for _, c := range []Config{{Dir: "/nowhere"}, {TrainFile: "/nowhere", EvalFile: "/nowhere"}, {TrainFile: t.TempDir(), EvalFile: "x"}} {
		if _, err := datafile.FindPair("criteo", c.Dir, c.TrainFile, c.EvalFile); err == nil {
			t.Errorf("%+v: found", c)
		}
	}
}

// auc is the area under the ROC curve.
func auc(scores []float64, labels []int32) float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if scores[a] < scores[b] {
			return -1
		}
		return 1
	})
	ranks, clicked := 0.0, 0.0
	for rank, i := range order {
		if labels[i] == 1 {
			ranks += float64(rank + 1)
			clicked++
		}
	}
	return (ranks - clicked*(clicked+1)/2) / clicked / (float64(len(scores)) - clicked)
}

// logisticAUC trains a logistic regression on the numbers and the ids.
func logisticAUC(t *testing.T, set *Dataset) float64 {
	t.Helper()
	w, v := make([]float64, set.Rows), make([]float64, clicks.CriteoNumbers+1)
	score := func(b *Batch, i int) float64 {
		sum := v[clicks.CriteoNumbers]
		for j, x := range b.Values[i*clicks.CriteoNumbers:][:clicks.CriteoNumbers] {
			sum += v[j] * float64(x)
		}
		for _, id := range b.IDs[i*clicks.CriteoSlots:][:clicks.CriteoSlots] {
			sum += w[id]
		}
		return sum
	}
	train, eval := all(t, set.Train), all(t, set.Eval)
	for i := range train.N {
		g := 0.03 * (clicks.Sigmoid(score(train, i)) - float64(train.Labels[i]))
		for j, x := range train.Values[i*clicks.CriteoNumbers:][:clicks.CriteoNumbers] {
			v[j] -= 0.1 * g * float64(x)
		}
		v[clicks.CriteoNumbers] -= g
		for _, id := range train.IDs[i*clicks.CriteoSlots:][:clicks.CriteoSlots] {
			w[id] -= g
		}
	}
	scores := make([]float64, eval.N)
	for i := range scores {
		scores[i] = score(eval, i)
	}
	return auc(scores, eval.Labels)
}

func TestSyntheticCriteo(t *testing.T) {
	set, err := Open("criteo", Config{Dir: Synthetic, Seed: 1, Rows: 100_001, TrainLimit: 20_000, EvalLimit: 5_000})
	if err != nil {
		t.Fatal(err)
	}
	got := logisticAUC(t, set)
	clicked := 0
	labels := all(t, set.Train).Labels
	for _, l := range labels {
		clicked += int(l)
	}
	t.Logf("AUC of a logistic regression %.3f, %d clicks in %d rows", got, clicked, len(labels))
	if got < 0.65 || got > 0.9 {
		t.Errorf("AUC %.3f", got)
	}
	if clicked < len(labels)/6 || clicked > len(labels)/3 {
		t.Errorf("%d clicks in %d rows", clicked, len(labels))
	}
	again, err := Open("criteo", Config{Dir: Synthetic, Seed: 1, Rows: 100_001, TrainLimit: 100, EvalLimit: 1})
	if err != nil || !slices.Equal(all(t, again.Train).IDs, all(t, set.Train).IDs[:2600]) {
		t.Errorf("a smaller set is not a prefix (%v)", err)
	}
}

// The real rows, where they are.
func TestCriteoReal(t *testing.T) {
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		t.Skip("RINGO_DATA is not set: no rows of Criteo in its folder criteo to read")
	}
	set, err := Open("criteo", Config{Dir: filepath.Join(root, "criteo")})
	if err != nil {
		t.Fatal(err)
	}
	if set.Train.Len() != 7200 || set.Eval.Len() != 391 {
		t.Errorf("%d + %d rows", set.Train.Len(), set.Eval.Len())
	}
	text, err := os.ReadFile(filepath.Join(root, "criteo", "criteo_8000_train.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	if !sameRows(set.Train.(*clickPages).flat(), naiveClicks(t, text, 1_000_001)) {
		t.Error("not the rows that the twin reads")
	}
}

func BenchmarkCriteo(b *testing.B) { // parses 50,000 rows
	text := datatest.ClickText(50_000)
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("%d", threads), func(b *testing.B) {
			if threads > runtime.GOMAXPROCS(0) {
				b.Skip("fewer cores")
			}
			p := clicks.NewCriteoParser(clicks.TableRows, false)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := readClicks("f", bytes.NewReader(text), &clicks.Format{Default: p}, threads, 0, new(datafile.Skips)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(50_000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// Whatever the bytes, every line is a row or a named fault, and the same ones
// whatever the chunks.
func FuzzCriteo(f *testing.F) {
	f.Add(datatest.ClickText(3), 40)
	f.Add([]byte("1\t\n0\n\n"), 3)
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		p := clicks.NewCriteoParser(100, false)
		var whole, parts clicks.Rows
		b := new(clicks.Block)
		p.Parse(raw, b)
		lines := bytes.Count(raw, []byte("\n"))
		if len(raw) > 0 && raw[len(raw)-1] != '\n' {
			lines++
		}
		if b.Lines != lines || len(b.Labels)+len(b.Faults) != lines || len(b.IDs) != 26*len(b.Labels) || len(b.Numbers) != 13*len(b.Labels) {
			t.Fatalf("%d lines: %d counted, %d rows, %d faults", lines, b.Lines, len(b.Labels), len(b.Faults))
		}
		for _, fault := range b.Faults {
			if fault.Offset < 0 || fault.Offset > len(raw) || fault.Text == "" || bytes.Count(raw[:fault.Offset], []byte("\n")) != fault.Line {
				t.Fatalf("%+v in %d bytes", fault, len(raw))
			}
		}
		for _, id := range b.IDs {
			if id < 0 || id >= 100 {
				t.Fatalf("id %d", id)
			}
		}
		whole = b.Rows
		in := &clicks.Chunks{Name: "f", R: bytes.NewReader(raw), Size: 1 + size&1023}
		err := clicks.ParseLines(in, 2, p.Parse, func(c *clicks.Chunk) (bool, error) {
			parts.Numbers, parts.IDs, parts.Labels = append(parts.Numbers, c.Block.Numbers...), append(parts.IDs, c.Block.IDs...), append(parts.Labels, c.Block.Labels...)
			return true, nil
		})
		if err == nil && !sameRows(whole, parts) {
			t.Fatal("the chunks matter")
		}
	})
}

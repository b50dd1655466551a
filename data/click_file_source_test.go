package data

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// evalSets opens a file to evaluate on twice: rows of which are in memory, and read again.
func evalSets(t *testing.T, text []byte, limit, most int) (memory, again *Dataset) {
	t.Helper()
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"train.tsv": datatest.ClickText(10), "test.tsv": text})
	var sets []*Dataset
	for _, stream := range []bool{false, true} {
		s, err := Open("criteo", Config{Dir: dir, Rows: 1000, Stream: stream, EvalLimit: limit, SkipBad: most, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, s)
	}
	return sets[0], sets[1]
}

// Rows that are read again are those of the set in memory, in any order, asked for by
// several goroutines at once.
func TestClicksReadAgain(t *testing.T) {
	lines := bytes.SplitAfter(datatest.ClickText(2000), []byte("\n"))
	bad := 0
	for i := range len(lines) - 1 {
		if i%311 == 7 || i >= 900 && i < 1300 { // one here and there, and a part without rows
			lines[i] = append([]byte("bad "), lines[i]...)
			bad++
		}
	}
	text := bytes.Join(lines, nil)
	limits, draws := []int{0, 1, 700, 5000}, 10
	if testing.Short() {
		limits, draws = []int{0, 700}, 3
	}
	for _, limit := range limits {
		memory, again := evalSets(t, text, limit, bad)
		if limit == 0 && (memory.skips.Count() != bad || again.skips.Count() != bad) || again.Eval.Len() != memory.Eval.Len() || again.Eval.Shape().IDs != clicks.CriteoSlots {
			t.Fatalf("limit %d: %d rows, want %d; %d and %d bad lines of %d", limit, again.Eval.Len(), memory.Eval.Len(), again.skips.Count(), memory.skips.Count(), bad)
		}
		if _, ok := again.Eval.(*clickFileSource); !ok && limit == 0 {
			t.Fatalf("rows are in memory: %T", again.Eval)
		}
		var one, other bytes.Buffer
		evidenceOf(t, memory.Eval).evidence(&one)
		evidenceOf(t, again.Eval).evidence(&other)
		if !bytes.Equal(one.Bytes(), other.Bytes()) {
			t.Errorf("limit %d: other evidence", limit)
		}
		want := all(t, memory.Eval)
		if got := all(t, again.Eval); !slices.Equal(got.Values, want.Values) || !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Labels, want.Labels) {
			t.Fatalf("limit %d: other rows", limit)
		}
		var together sync.WaitGroup
		for seed := range uint64(3) {
			together.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 1))
				for range draws {
					idx := make([]int32, 1+rng.IntN(300))
					at := rng.IntN(want.N)
					for i := range idx {
						idx[i] = int32((at + i) % want.N)
						if seed == 0 {
							idx[i] = int32(rng.IntN(want.N))
						}
					}
					var b Batch
					if err := again.Eval.Fill(&b, idx, Draw{}); err != nil {
						t.Error(err)
						return
					}
					for i, n := range idx {
						if b.Labels[i] != want.Labels[n] || !slices.Equal(b.IDs[i*clicks.CriteoSlots:][:clicks.CriteoSlots], want.IDs[int(n)*clicks.CriteoSlots:][:clicks.CriteoSlots]) ||
							!slices.Equal(b.Values[i*clicks.CriteoNumbers:][:clicks.CriteoNumbers], want.Values[int(n)*clicks.CriteoNumbers:][:clicks.CriteoNumbers]) {
							t.Errorf("limit %d: row %d differs", limit, n)
							return
						}
					}
				}
			})
		}
		together.Wait()
	}
}

// evidenceOf is what tells the rows of a source from others.
func evidenceOf(t *testing.T, s Source) interface{ evidence(w io.Writer) } {
	t.Helper()
	if h, ok := s.(head); ok {
		s = h.Source
	}
	e, ok := s.(interface{ evidence(w io.Writer) })
	if !ok {
		t.Fatalf("%T has no evidence", s)
	}
	return e
}

// Rows in their order are parsed once, whatever the batch.
func TestClicksReadOnce(t *testing.T) {
	_, again := evalSets(t, datatest.ClickText(1500), 0, 0)
	c := again.Eval.(*clickFileSource)
	reads, last := 0, clickPart{}
	var b Batch
	for lo := 0; lo < c.Len(); lo += 40 {
		idx := make([]int32, min(40, c.Len()-lo))
		for i := range idx {
			idx[i] = int32(lo + i)
		}
		if err := c.Fill(&b, idx, Draw{}); err != nil || len(c.idle) != 1 {
			t.Fatal(err, len(c.idle))
		}
		if c.idle[0].part != last {
			reads, last = reads+1, c.idle[0].part
		}
	}
	if reads != len(c.parts) || reads < 3 {
		t.Errorf("%d parts were read, there are %d", reads, len(c.parts))
	}
}

// A file that is not what it was when it was opened is told, and what is no file of rows.
func TestClicksChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.tsv")
	text := datatest.ClickText(600)
	open := func() (*clickFileSource, error) {
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		return openClickFile(path, clicks.CriteoFormat(100, false), 1, 0, new(datafile.Skips))
	}
	for _, c := range []struct {
		change func() error
		says   string
	}{
		{func() error { return os.Truncate(path, 1000) }, "ends"},
		{func() error { return os.Remove(path) }, "no such file"},
		{func() error { return os.WriteFile(path, bytes.ReplaceAll(text, []byte("\n"), []byte("\t")), 0o666) }, "the file has changed"},
	} {
		source, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := source.Fill(new(Batch), []int32{3}, Draw{}); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q", err, c.says)
			}
		}
	}
	text = nil
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "no rows") {
		t.Errorf("%v", err)
	}
}

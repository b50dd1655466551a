package data

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// TestCheckGrowthOfFiles: sets of each kind accept further samples at the end, images anywhere, and
// report a changed or missing sample.
func TestCheckGrowthOfFiles(t *testing.T) {
	lines := func(n int, of func(i int) string) (all []string) {
		for i := range n {
			all = append(all, of(i))
		}
		return all
	}
	click := func(i int) string {
		return fmt.Sprintf("%d\t%s%s\n", i%2, strings.Repeat(fmt.Sprintf("%d\t", i), 13), strings.Repeat(fmt.Sprintf("%08x\t", i), 25)+"0000000f")
	}
	text := func(i int) string {
		return fmt.Sprintf("the line %d of a text that grows day by day and week by week\n", i)
	}
	for name, of := range map[string]func(i int) string{"criteo": click, "chars": text} {
		train, eval := filepath.Join(t.TempDir(), "train.txt"), filepath.Join(t.TempDir(), "eval.txt")
		open := func(rows []string) *Dataset {
			t.Helper()
			for path, text := range map[string]string{train: strings.Join(rows, ""), eval: strings.Join(lines(40, of), "")} {
				if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Open(name, Config{TrainFile: train, EvalFile: eval})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		rows := lines(90, of)
		before := saved(t, open(rows[:60]))
		checkGrowth(t, name+", equal", open(rows[:60]), before, "")
		checkGrowth(t, name+", appended", open(rows), before, "new samples: ")
		checkGrowth(t, name+", shorter", open(rows[:30]), before, " training samples of the checkpoint differ or are missing: first number ")
		changed := append([]string{}, rows...)
		changed[1] = of(77)
		checkGrowth(t, name+", changed", open(changed), before, "training samples of the checkpoint differ or are missing: ")
	}
}

// TestCheckGrowthOfImages: files added to any folder are new samples, and removed ones are
// reported.
func TestCheckGrowthOfImages(t *testing.T) {
	dir := t.TempDir()
	put := func(part, class string, names ...string) {
		if err := os.MkdirAll(filepath.Join(dir, part, class), 0o777); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			datatest.Write(t, dir, map[string][]byte{filepath.Join(part, class, name+".png"): datatest.EncodePNG(datatest.Colourful(8, 8, uint64(i)))})
		}
	}
	put("train", "ant", "b", "d")
	put("train", "bee", "b", "d", "e")
	put("val", "ant", "v")
	put("val", "bee", "v")
	open := func() *Dataset {
		s, err := Open("images", Config{Dir: dir, ImageSize: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	before := saved(t, open())
	put("train", "ant", "a", "c")
	checkGrowth(t, "added", open(), before, "new samples: 2 to train on, 0 to evaluate on; the 5 and 2 of the checkpoint are unchanged")
	if err := os.Remove(filepath.Join(dir, "train", "bee", "d.png")); err != nil {
		t.Fatal(err)
	}
	checkGrowth(t, "removed", open(), before, "1 of the 5 training samples of the checkpoint are missing")
}

// TestDigestOfBlocks: above 65,536 samples a checksum is of several, a difference names the block,
// and appended rows need no full last block.
func TestDigestOfBlocks(t *testing.T) {
	n := maxSums + 101
	set := func(n, changed int) *Dataset {
		s := table.Samples{N: n, Values: make([]float32, n), Targets: make([]float32, n)}
		for i := range s.Values {
			s.Values[i] = float32(i)
		}
		if changed >= 0 {
			s.Values[changed] = -1
		}
		m := &memory{Shape{Values: []int{1}, Targets: 1}, Batch{N: n, Values: s.Values, Targets: s.Targets}}
		other := &memory{m.shape, Batch{N: 10, Values: []float32{-2, -3, -4, -5, -6, -7, -8, -9, -10, -11}, Targets: make([]float32, 10)}}
		return &Dataset{Name: "table", Train: m, Eval: other}
	}
	before := saved(t, set(n, -1))
	if before.Train.Per != 2 || before.Eval.Per != 1 {
		t.Fatalf("%d and %d samples of a checksum", before.Train.Per, before.Eval.Per)
	}
	checkGrowth(t, "appended", set(n+3, -1), before, "new samples: 3 to train on")
	checkGrowth(t, "changed", set(n+3, 40_001), before, "1 of the groups of 2 of the 65,637 training samples of the checkpoint differ or are missing: samples 40,001 to 40,002")
	if _, err := set(n+3, 1).CheckGrowth(before, true); err == nil || !strings.Contains(err.Error(), "samples 1 to 2, but 65,635 of these are here: a file of another name has") {
		t.Errorf("edited copy: %v", err)
	}
	checkGrowth(t, "last", set(n+3, n-1), before, "groups of 2 of the 65,637 training samples of the checkpoint differ or are missing: samples 65,637: append")
}

// saved is a set's digest as a checkpoint has it.
func saved(t *testing.T, s *Dataset) *Digest {
	t.Helper()
	d := s.Digest()
	if d == nil {
		t.Fatal("no digest")
	}
	text, err := json.Marshal(d)
	out := new(Digest)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func checkGrowth(t *testing.T, what string, s *Dataset, before *Digest, want string) {
	t.Helper()
	lines, err := s.CheckGrowth(before, false)
	got := strings.Join(lines, "\n")
	if err != nil {
		got = err.Error()
	}
	if !strings.Contains(got, want) || want == "" && got != "" {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

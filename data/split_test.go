package data

import (
	"archive/zip"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// numbersOf returns the number of every sample, by the value that a test gave its row, and the
// mean of the first inputs.
func numbersOf(t *testing.T, src Source, number func(b *Batch) float64) (out []int, mean float64) {
	t.Helper()
	var b Batch
	for i := range src.Len() {
		if err := src.Fill(&b, []int32{int32(i)}, Draw{}); err != nil {
			t.Fatal(err)
		}
		out = append(out, int(math.Round(number(&b))))
		mean += float64(b.Values[0]) / float64(src.Len())
	}
	return out, mean
}

// Every row of a table and of arrays is in the evaluation part of one fold, and in the training
// part of all others; the encoder's mean is of the training rows alone.
func TestFoldsAreDisjointAndCoverAllRows(t *testing.T) {
	const n, folds = 250, 7
	text, dir, xs := "x,y\n", t.TempDir(), make([]byte, n)
	for i := range n {
		text += fmt.Sprintf("%d.5,%d.25\n", i*i%n, i)
		xs[i] = byte(i)
	}
	datatest.Write(t, dir, map[string][]byte{"t.csv": []byte(text)})
	for set, file := range map[string]string{"table": filepath.Join(dir, "t.csv"), "arrays": npz(t, zip.Store, "x", "|u1", "(250,)", xs, "y", "|u1", "(250,)", xs)} {
		var evaluated []int
		for fold := range folds {
			s, err := Open(set, Config{Dir: file, Folds: folds, Fold: fold})
			if err != nil {
				t.Fatal(err)
			}
			number := func(b *Batch) float64 { return float64(b.Labels[0]) }
			if set == "table" {
				goal, _ := s.Encoder.Goal()
				number = func(b *Batch) float64 { return goal.Value(b.Targets[0]) - 0.25 }
			}
			in, mean := numbersOf(t, s.Train, number)
			out, _ := numbersOf(t, s.Eval, number)
			if set == "table" && math.Abs(mean) > 1e-6 {
				t.Errorf("fold %d: the training rows have the mean %v after encoding", fold, mean)
			}
			all := slices.Concat(in, out)
			if slices.Sort(all); !slices.Equal(all, upTo(n)) || len(out) == 0 || !strings.Contains(strings.Join(s.Notes, "\n"), fmt.Sprintf("fold %d of %d", fold+1, folds)) {
				t.Errorf("%s, fold %d: %d and %d samples, %q", set, fold, len(in), len(out), s.Notes)
			}
			evaluated = append(evaluated, out...)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if slices.Sort(evaluated); !slices.Equal(evaluated, upTo(n)) {
			t.Errorf("%s: the folds evaluate on the rows %v", set, evaluated)
		}
	}
}

// The first of K folds is the split of a share of 1/K, and folds without samples are an error.
func TestFoldsAgreeWithSplit(t *testing.T) {
	for i := range 1000 {
		if (Config{Folds: 5}).holdout().holds(uint64(i)) != Held(i, 0.2) {
			t.Fatalf("row %d", i)
		}
	}
	s, err := FromBatch(Shape{Labels: 1}, Batch{N: 3, Labels: make([]int32, 3)})
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for k := range 9 {
		if _, _, err := (Config{Folds: 9, Fold: k}).holdout().split(s); err != nil {
			if bad++; !strings.Contains(err.Error(), "use fewer folds") {
				t.Error(err)
			}
		}
	}
	if bad < 6 {
		t.Errorf("%d of 9 folds of 3 samples are an error", bad)
	}
}

// Folds are rejected where an evaluation part exists or no number selects samples.
func TestFoldsRejectOtherData(t *testing.T) {
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"t.csv": []byte("x,y\n1,2\n3,4\n"), "u.csv": []byte("x,y\n1,2\n3,4\n")})
	file := filepath.Join(dir, "t.csv")
	for want, try := range map[string]func() (*Dataset, error){
		"given by data.eval-file": func() (*Dataset, error) {
			return Open("table", Config{TrainFile: file, EvalFile: filepath.Join(dir, "u.csv"), Folds: 3})
		},
		"no effect on synthetic data":       func() (*Dataset, error) { return Open("table", Config{Dir: Synthetic, Folds: 3}) },
		"with data.eval-split 0.1":          func() (*Dataset, error) { return Open("table", Config{Dir: file, Folds: 3, Split: 0.1}) },
		"data set mnist are not held out":   func() (*Dataset, error) { return Open("mnist", Config{Dir: dir, Folds: 3}) },
		"3, part 3: want 2 to 1000":         func() (*Dataset, error) { return Open("table", Config{Dir: file, Folds: 3, Fold: 3}) },
		"criteo are not held out by number": func() (*Dataset, error) { return Open("criteo", Config{Dir: dir, Folds: 3}) },
	} {
		if _, err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

package main

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
)

func TestArguments(t *testing.T) {
	seconds, sizes, err := arguments([]string{"0.5", "1", "65536", "0"})
	if err != nil || seconds != 0.5 || !reflect.DeepEqual(sizes, []int{1, 65536, 0}) {
		t.Error(seconds, sizes, err)
	}
	for line, want := range map[string]string{
		"": "want SECONDS and then FLOATS", "1": "want SECONDS and then FLOATS", "x 1": "SECONDS", "0 1": "SECONDS", "NaN 1": "SECONDS", "1 -1": "FLOATS", "1 2 y": "FLOATS",
	} {
		if _, _, err := arguments(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// Short and long operands are measured on all ranks alike, in ascending order, and a wrong result is not.
func TestLoop(t *testing.T) {
	for _, n := range []int{0, 1, batchFloats, batchFloats + 1} {
		var found [3][]float64
		err := ringo.Local(context.Background(), 3, ringo.Config{}, func(job *ringo.Job) (err error) {
			found[job.Rank()], err = newLoop(job, n).measure(1e-3)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if us := found[0]; len(us) < least || len(us) > most || us[0] <= 0 || !slices.IsSorted(us) || !slices.Equal(us, found[1]) || !slices.Equal(us, found[2]) {
			t.Errorf("%d values: %v on rank 0, %v on rank 1", n, us, found[1])
		}
	}
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		l := newLoop(job, 8)
		l.want[1][3]++
		_, err := l.measure(1e-3)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "wrong result") {
		t.Error(err)
	}
}

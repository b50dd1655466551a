package train

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
)

// endsOn is the error of a run on n ranks.
func endsOn(n int, cfg Config) error {
	return ringo.Local(context.Background(), n, ringo.Config{}, func(job *ringo.Job) error {
		_, err := observed(job, cfg, new(recorder))
		return err
	})
}

// A run whose last losses are far over the first one's ends with an error; one that has only risen does not.
func TestDivergedRunIsAnError(t *testing.T) {
	for _, c := range []struct {
		start, training, evaluation float64
		want                        string
	}{
		{4.51, 3.2, 5.5e8, "the evaluation loss is 5.5e8, that of the first step was 4.51"},
		{2.31, 444, 1.3e4, "the training loss is 444"},
		{2.31, 2, math.NaN(), "the evaluation loss is NaN"},
		{2.31, 29, 180, ""}, {1e-6, 0.5, 9, ""}, {0, 1e9, 1e9, ""}, {-3, 1e9, 1e9, ""},
	} {
		if got := divergedBy(c.start, c.training, c.evaluation); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %q", c, got)
		}
	}
	cfg := small()
	cfg.Epochs, cfg.TrainLimit, cfg.LR = 2, 96, 20
	if err := endsOn(2, cfg); err == nil || !strings.Contains(err.Error(), "training has diverged: the training loss is ") || !strings.Contains(err.Error(), "lower the learning rate (20)") {
		t.Errorf("got %v", err)
	}
}

// The last checkpoint that losses have confirmed remains, however few are kept, and a diverged one is not resumed without a word.
func TestHealthyCheckpointRemains(t *testing.T) {
	for _, keep := range []int{1, 2, 3} {
		dir := t.TempDir()
		cfg := small()
		cfg.TrainLimit, cfg.Checkpoint = 96, Checkpoint{Dir: dir, Keep: keep}
		onRanks(t, 2, cfg)
		healthy, err := checkpoint.Steps(dir)
		if err != nil || len(healthy) != 1 {
			t.Fatalf("%v, %v", healthy, err)
		}
		cfg.Epochs, cfg.LR, cfg.Checkpoint.Every, cfg.Checkpoint.Resume = 9, 20, 1, true
		if err := endsOn(2, cfg); err == nil {
			t.Fatal("a rate of 20 is no bad one")
		}
		steps, err := checkpoint.Steps(dir)
		if err != nil || len(steps) < keep || steps[len(steps)-1] != healthy[0] {
			t.Fatalf("keep %d: %v, %v: want that of step %d among them", keep, steps, err, healthy[0])
		}
		cfg.LR, cfg.Epochs = 0.005, 2
		err = endsOn(2, cfg)
		if name := filepath.Base(checkpoint.PathOf(dir, healthy[0])); err == nil || !strings.Contains(err.Error(), "has diverged: the training loss is ") || !strings.Contains(err.Error(), "the last healthy checkpoint is "+name) {
			t.Fatalf("keep %d: %v", keep, err)
		}
		cfg.Checkpoint.Dir = onlyFile(t, checkpoint.PathOf(dir, healthy[0]))
		if err := endsOn(2, cfg); err != nil {
			t.Errorf("keep %d: from the healthy one: %v", keep, err)
		}
	}
}

// A loss that is not finite names the sample that brought it in, or else the learning rate.
func TestLossThatIsNotFinite(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		b    data.Batch
		want string
	}{
		{data.Batch{N: 2, Values: []float32{1, 2, 3, 4}}, "all inputs are finite: training has diverged; lower the learning rate (now 0.5)"},
		{data.Batch{N: 2, Values: []float32{1, 2, 3, nan}, Index: []int32{40, 77}}, "row 77 of the training samples (counted from 0) has NaN as value 1"},
		{data.Batch{N: 2, Values: []float32{nan, 2, 3, 4}}, "row 0 of the batch (counted from 0) has NaN as value 0"},
		{data.Batch{N: 2, Values: []float32{1, 2}, Targets: []float32{1, nan}, Index: []int32{5, 6}}, "row 6 of the training samples (counted from 0) has NaN as target 0"},
	} {
		if err := notFinite(math.NaN(), 0.5, &c.b); !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	set := stripes(t, 100)
	bad, err := data.FromSlice([]int{0, 1, 2, 3, 4, 5, 6, 7}, set.Eval.Shape(), func(i int, s data.Sample) error {
		if i == 5 {
			s.Values[1] = nan
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	set.Train = bad
	err = ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		_, err := Run(job.Context(), job, mine(), set, Config{LR: 0.1, Batch: 2, Epochs: 1})
		return err
	})
	if at := (*StepError)(nil); !errors.As(err, &at) || !strings.Contains(err.Error(), "row 5 of the training samples (counted from 0) has NaN as value 1") {
		t.Errorf("got %v", err)
	}
}

package train

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
)

// A run on samples that functions of one's own change ends with the same bits on any number of threads, and where it went on from the
// middle of an epoch; without those functions it ends with others.
func TestTransformedSets(t *testing.T) {
	shake := func(s data.Sample, _ data.Shape, r *data.Random) error {
		if r != nil {
			s.Values[r.IntN(2)] += float32(r.Float64()) / 10
		}
		return nil
	}
	normalise := data.Normalise([]float32{0.5}, []float32{0.25})
	run := func(cfg Config, transforms ...data.Transform) (sum Summary) {
		set := stripes(t, 300)
		set.Train, set.Eval = data.Transformed(set.Train, append(transforms, normalise)...), data.Transformed(set.Eval, normalise)
		err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
			s, err := Run(job.Context(), job, mine(), set, cfg)
			if job.Rank() == 0 {
				sum = s
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	cfg := Config{LR: 0.5, Batch: 16, Epochs: 3, Seed: 4, Threads: 1, Checkpoint: Checkpoint{Dir: t.TempDir(), Every: 4, Keep: 100}}
	want := run(cfg, shake)
	middle := filepath.Base(checkpoint.PathOf(cfg.Checkpoint.Dir, 8)) // of seven steps an epoch
	resumed := cfg
	resumed.Threads, resumed.Checkpoint = 3, Checkpoint{Dir: onlyFile(t, filepath.Join(cfg.Checkpoint.Dir, middle)), Resume: true}
	cfg.Checkpoint = Checkpoint{}
	two, five := cfg, cfg
	two.Threads, five.Threads = 2, 5
	for name, got := range map[string]Summary{"two threads": run(two, shake), "five": run(five, shake), "resumed": run(resumed, shake)} {
		if got.ParamsSHA256 != want.ParamsSHA256 || got.EvalLoss != want.EvalLoss {
			t.Errorf("%s: %s, loss %v, want %s, %v", name, got.ParamsSHA256, got.EvalLoss, want.ParamsSHA256, want.EvalLoss)
		}
	}
	if got := run(cfg); got.ParamsSHA256 == want.ParamsSHA256 {
		t.Error("without the functions the run ends with the same parameters")
	}
}

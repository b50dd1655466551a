package train

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
)

// TestAverageEqualsItsDefinition: the average after each of 120 steps is that of a loop in float64,
// of parameters and of a table, and the same on every rank.
func TestAverageEqualsItsDefinition(t *testing.T) {
	cfg := custom(tinyClick())
	cfg.Average, cfg.Epochs, cfg.Batch = 0.9, 4, 8
	for _, np := range []int{1, 3} {
		cfg := cfg
		var mu sync.Mutex
		last := map[int]string{}
		err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
			var mean [][]float64
			steps := 0.
			r, err := NewReplica(job, cfg, optionsOf(cfg.Model, 2, 0, cfg.Model.Rows))
			if err != nil {
				return err
			}
			defer r.Close()
			a := r.params.(*replicatedParams).average
			for i, x := range a.live() {
				mean = append(mean, make([]float64, len(x)))
				for k, v := range x {
					mean[i][k] = float64(v)
				}
			}
			for range 120 {
				for i, x := range a.live() {
					for k := range x {
						x[k] += float32(math.Sin(float64(k)+steps)) / 8
					}
					steps++
					if i > 0 {
						steps--
					}
				}
				a.update(int64(steps))
				d := min(0.9, (1+steps)/(10+steps))
				for i, x := range a.live() {
					for k, v := range x {
						mean[i][k] = d*mean[i][k] + (1-d)*float64(v)
						if got := float64(a.means[i][k]); math.Abs(got-mean[i][k]) > 1e-5 {
							return fmt.Errorf("step %v: value %d of %d: %v, want %v", steps, k, i, got, mean[i][k])
						}
					}
				}
			}
			mu.Lock()
			last[job.Rank()] = fmt.Sprint(a.means)
			mu.Unlock()
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks: %v", np, err)
		}
		for rank := range np {
			if last[rank] != last[0] || len(last[0]) < 100 {
				t.Errorf("rank %d has another average than rank 0", rank)
			}
		}
	}
}

// TestAverageIsEvaluatedAndSaved: training has the bits of a run without an average, the evaluation
// has not, and the checkpoint evaluates as the run did.
func TestAverageIsEvaluatedAndSaved(t *testing.T) {
	for name, cfg := range map[string]Config{"mlp": small(), "table": custom(tinyClick())} {
		for _, np := range []int{1, 2, 3} {
			want, _ := onRanks(t, np, cfg)
			averaging := cfg
			averaging.Average, averaging.Checkpoint.Dir = 0.99, t.TempDir()
			got, _ := onRanks(t, np, averaging)
			if got.ParamsSHA256 != want.ParamsSHA256 || got.TrainLoss != want.TrainLoss || got.EvalLoss == want.EvalLoss {
				t.Errorf("%s, %d ranks: sha256 %s, losses %v and %v; without an average %s, %v, %v", name, np, got.ParamsSHA256, got.TrainLoss, got.EvalLoss, want.ParamsSHA256, want.TrainLoss, want.EvalLoss)
			}
			var found SavedEvaluation
			err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
				own := cfg // the reader need not know of the average
				own.Checkpoint.Dir = averaging.Checkpoint.Dir
				e, err := Evaluate(job.Context(), job, cfg.Model, nil, own)
				if job.Rank() == 0 {
					found = e
				}
				return err
			})
			if err != nil || found.EvalLoss != got.EvalLoss {
				t.Errorf("%s, %d ranks: the checkpoint has loss %v, the run %v, %v", name, np, found.EvalLoss, got.EvalLoss, err)
			}
			file, _, err := checkpoint.Choose(averaging.Checkpoint.Dir)
			if err != nil {
				t.Fatal(err)
			}
			f, err := checkpoint.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			both := 0
			for _, a := range f.Arrays() {
				if strings.HasPrefix(a.Name, "trained/param/") || strings.HasPrefix(a.Name, "trained/table/") {
					both++
				}
			}
			if err := f.Close(); err != nil || both < 4 {
				t.Errorf("%s: %v, %d arrays with trained weights", filepath.Base(file), err, both)
			}
		}
	}
}

// TestAverageSkipsSkippedSteps: a step that all ranks skip leaves the average as it was.
func TestAverageSkipsSkippedSteps(t *testing.T) {
	cfg := small()
	cfg.Average, cfg.Exchange.NonFinite = 0.9, "skip"
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		l, err := NewLoop(job.Context(), job, zoo("mlp"), cfg)
		if err != nil {
			return err
		}
		r := l.Replica()
		set, err := data.Open("mnist", data.Config{Dir: data.Synthetic, TrainLimit: 32, EvalLimit: 8})
		if err != nil {
			return err
		}
		var batch data.Batch
		idx := make([]int32, 16)
		for i := range idx {
			idx[i] = int32(i)
		}
		if err := set.Train.Fill(&batch, idx, data.Draw{}); err != nil {
			return err
		}
		a := r.params.(*replicatedParams).average
		if _, err = l.TrainOneBatch(r.Batch(&batch), "", 0); err != nil {
			return err
		}
		before := fmt.Sprint(a.means)
		if job.Rank() == 1 {
			batch.Values[3] = float32(math.NaN())
		}
		if _, err = l.TrainOneBatch(r.Batch(&batch), "", 0); err != nil {
			return err
		}
		if after := fmt.Sprint(a.means); after != before || r.Opt.Times().Skipped == nil {
			return fmt.Errorf("skipped: %v; the average has changed: %v", r.Opt.Times().Skipped, after != before)
		}
		if _, err := l.TrainOneBatch(r.Batch(&batch), distopt.PartialUpdate, 0); err == nil || !strings.Contains(err.Error(), "training.average 0.9: under strategy partialUpdate") {
			return fmt.Errorf("partialUpdate: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAverageIsRefused: a decay out of range, parameters on servers and replicas that differ have
// errors with the reason.
func TestAverageIsRefused(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"training.average 1: want a decay above 0 and below 1":                 func(c *Config) { c.Average = 1 },
		"training.average -0.5: want a decay":                                  func(c *Config) { c.Average = -0.5 },
		"training.average NaN: want a decay":                                   func(c *Config) { c.Average = math.NaN() },
		"training.average 0.9: the parameters are on servers":                  func(c *Config) { c.Servers.Consistency = "bsp" },
		"training.average 0.9: under strategy partialUpdate the ranks' parame": func(c *Config) { c.Exchange.Strategy = distopt.PartialUpdate },
		"training.average 0.9: heter-trainers have a part of the parameters: ": func(c *Config) { c.Heter.Count = 1 },
	} {
		cfg := small()
		cfg.Average = 0.9
		edit(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

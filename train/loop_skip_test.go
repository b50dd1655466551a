package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// memory is a state that a model carries: the sum of its inputs.
type memory struct{ sum []float32 }

func (m *memory) Slices() [][]float32 { return [][]float32{m.sum} }
func (m *memory) Reset()              { clear(m.sum) }

// carrying has running statistics and a state, which it adds to its inputs.
func carrying() model.Spec {
	return model.Spec{Name: "carrying", Input: []int{2}, Labels: 1, Classes: 2, Build: func(ps *nn.Params, o model.Options) model.Model {
		state := &memory{sum: make([]float32, 2)}
		hidden, norm, out := ps.Dense("hidden", 2, 8), ps.BatchNorm("norm", 8), ps.Dense("out", 8, 2)
		carry := &nn.Operation{Name: "carry", Forward: func(p *nn.Pass) {
			for i, v := range p.Inputs[0].Data {
				p.Output.Data[i] = v + state.sum[i%2]
				state.sum[i%2] += v / 100
			}
		}}
		return model.Model{
			State: state, Loss: model.CrossEntropy, Metrics: []model.Metric{model.Accuracy()},
			Forward: func(t *nn.Tape, b model.Batch) model.Outputs {
				x := t.Apply(carry, b.Values.Shape, []*nn.Tensor{b.Values})
				return model.Outputs{t.Dense(t.BatchNorm(t.Dense(x, hidden, nn.Identity), norm, nil, nn.ReLU), out, nn.Identity)}
			},
		}
	}}
}

// carried is the end of a rank.
type carried struct {
	hash    string
	moved   [][]float32
	skipped int64
}

// trainCarrying trains 6 steps of several batches on each rank. Batches of steps in bad have a NaN
// on one rank, or the steps are left out.
func trainCarrying(np int, cfg Config, bad map[int]int, without bool) ([]carried, error) {
	out, k := make([]carried, np), max(1, cfg.Exchange.Accumulation)
	err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
		r, err := NewReplica(job, cfg, model.Options{Input: []int{2}, Classes: 2})
		if err != nil {
			return err
		}
		defer r.Close()
		for step := range 6 {
			batch, has := bad[step]
			if has && without {
				continue
			}
			for i := range k {
				b := randomBatch(uint64(100*step+i), uint64(job.Rank()))
				if has && i == batch && job.Rank() == np-1 {
					b.Values[3] = float32(math.NaN())
				}
				if _, err := r.Backward(r.Batch(b), i == k-1); err != nil {
					return err
				}
			}
			if err := r.Step(); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		sum, _, err := r.hash()
		end := carried{hash: fmt.Sprintf("%x", sum), skipped: r.Opt.Setup().Skipped}
		for _, x := range r.moved() {
			end.moved = append(end.moved, slices.Clone(x))
		}
		out[job.Rank()] = end
		return err
	})
	return out, err
}

// randomBatch has 6 samples.
func randomBatch(seed, rank uint64) *data.Batch {
	r := rand.New(rand.NewPCG(seed, rank))
	b := &data.Batch{N: 6}
	for range b.N {
		x, y := r.NormFloat64(), r.NormFloat64()
		b.Values = append(b.Values, float32(x), float32(y))
		b.Labels = append(b.Labels, int32(r.IntN(2)))
	}
	return b
}

// A run that skips steps of a batch without a finite loss ends with the bits of a run without these
// steps: parameters, running statistics and the state that the model carries, also where another
// batch of the step was fine.
func TestSkippedBatchChangesNoBit(t *testing.T) {
	for _, optimizer := range []string{"sgd", "adam"} {
		for _, strategy := range []distopt.Strategy{distopt.FP32, distopt.FP16, distopt.TopK, distopt.PartialUpdate} {
			for _, accumulation := range []int{1, 2} {
				for np := 1; np <= 3; np++ {
					cfg := Defaults(carrying(), "")
					cfg.SetOptimizer(optimizer)
					cfg.LR, cfg.Batch = 0.05, 6
					cfg.Exchange.Strategy, cfg.Exchange.Accumulation, cfg.Exchange.ClipNorm = strategy, accumulation, float64(accumulation-1)
					bad := map[int]int{0: 0, 3: accumulation - 1, 4: 0}
					want, err := trainCarrying(np, cfg, bad, true)
					cfg.Exchange.NonFinite = "skip"
					got, err2 := trainCarrying(np, cfg, bad, false)
					if err := errors.Join(err, err2); err != nil {
						t.Fatalf("%s, %s, np %d: %v", optimizer, strategy, np, err)
					}
					for rank := range got {
						if got[rank].skipped != int64(len(bad)) || got[rank].hash != want[rank].hash || !slices.EqualFunc(got[rank].moved, want[rank].moved, slices.Equal[[]float32]) {
							t.Errorf("%s, %s, accumulation %d, rank %d of %d: %+v, want %+v", optimizer, strategy, accumulation, rank, np, got[rank], want[rank])
						}
					}
				}
			}
		}
	}
}

// skipped runs mine on stripes with NaN in rows of the training samples, and with servers that sum.
func skipped(t *testing.T, np, servers int, cfg Config, rows ...int) (sums []Summary, rec *recorder, err error) {
	t.Helper()
	set := stripes(t, 100)
	all := make([]int, set.Train.Len())
	for i := range all {
		all[i] = i
	}
	clean := set.Train
	bad, err := data.FromSlice(all, clean.Shape(), func(i int, s data.Sample) error {
		s.Values[0], s.Values[1] = float32(i%17)/17, float32(i%29)/29
		if s.Values[0]+s.Values[1] > 1 {
			s.Labels[0] = 1
		}
		if slices.Contains(rows, i) {
			s.Values[1] = float32(math.NaN())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	set.Train = bad
	var mu sync.Mutex
	sums, rec = make([]Summary, np), new(recorder)
	err = ringo.Local(context.Background(), np, ringo.Config{Servers: servers}, func(job *ringo.Job) error {
		c := cfg
		if job.Rank() == 0 {
			c.Observer = rec
		}
		s, err := Run(job.Context(), job, mine(), set, c)
		mu.Lock()
		defer mu.Unlock()
		sums[job.Rank()] = s
		return err
	})
	return sums, rec, err
}

// Skipped steps are counted in epochs, the summary and remarks, of which the first names the row;
// the training figures leave them out.
func TestSkippedStepsAreCounted(t *testing.T) {
	for np := 1; np <= 3; np++ {
		for _, accumulation := range []int{1, 2} {
			cfg := Config{LR: 0.1, Batch: 3, Epochs: 3, Exchange: distopt.Config{NonFinite: "skip", Accumulation: accumulation}}
			sums, rec, err := skipped(t, np, 0, cfg, 11)
			if err != nil {
				t.Fatalf("np %d: %v", np, err)
			}
			for rank, s := range sums {
				if s.Skipped != 3 || s.ParamsSHA256 != sums[0].ParamsSHA256 {
					t.Errorf("rank %d of %d: %d steps skipped, want 3", rank, np, s.Skipped)
				}
			}
			for _, e := range rec.epochs {
				if e.Skipped != 1 || !finite(e.TrainLoss) || !finite(e.EvalLoss) {
					t.Errorf("np %d: %+v", np, e)
				}
			}
			var first, counts []string
			for _, m := range rec.remarks {
				switch {
				case strings.Contains(m.Text, "row 11 of the training samples (counted from 0) has NaN as value 1"):
					first = append(first, m.Text)
				case strings.Contains(m.Text, fmt.Sprintf("epoch %d skipped 1 of %d steps", m.Epoch, rec.info.StepsPerEpoch)):
					counts = append(counts, m.Text)
				}
			}
			if len(first) != 1 || len(counts) != 3 {
				t.Errorf("np %d: remarks %q and %q", np, first, counts)
			}
		}
	}
}

// Servers that sum take part in a skipped step like ranks: the parameters have the bits of a run
// without them.
func TestSkipWithServersThatSum(t *testing.T) {
	for _, strategy := range []distopt.Strategy{distopt.FP32, distopt.FP16, distopt.Int8, distopt.TopK} {
		cfg := Config{LR: 0.1, Batch: 3, Epochs: 2, Exchange: distopt.Config{NonFinite: "skip", Strategy: strategy}}
		want, _, err := skipped(t, 2, 0, cfg, 11, 40)
		got, _, err2 := skipped(t, 2, 2, cfg, 11, 40)
		if err := errors.Join(err, err2); err != nil {
			t.Fatalf("%s: %v", strategy, err)
		}
		if got[0].Skipped != want[0].Skipped || got[1].Skipped < 2 || strategy != distopt.Int8 && got[0].ParamsSHA256 != want[0].ParamsSHA256 {
			t.Errorf("%s: %d steps and %s, without servers %d and %s", strategy, got[0].Skipped, got[0].ParamsSHA256, want[0].Skipped, want[0].ParamsSHA256)
		}
	}
}

// A run that is saved in the middle of an epoch goes on with the bits, the figures and the counts
// of one that never stopped.
func TestSkippedStepsSurviveAResume(t *testing.T) {
	for _, strategy := range []distopt.Strategy{distopt.FP32, distopt.TopK} {
		cfg := Config{LR: 0.1, Batch: 3, Epochs: 2, Exchange: distopt.Config{NonFinite: "skip", Strategy: strategy}, Checkpoint: Checkpoint{Dir: t.TempDir(), Every: 5, Keep: 100}}
		want, whole, err := skipped(t, 2, 0, cfg, 3, 30, 60)
		if err != nil {
			t.Fatal(err)
		}
		stopped := cfg
		stopped.Checkpoint.Dir = t.TempDir()
		stopped.AfterStep = func(s Step) error {
			if s.Done == 18 {
				return ErrStop
			}
			return nil
		}
		if _, _, err := skipped(t, 2, 0, stopped, 3, 30, 60); err != nil {
			t.Fatal(err)
		}
		stopped.AfterStep, stopped.Checkpoint.Resume = nil, true
		got, rec, err := skipped(t, 2, 0, stopped, 3, 30, 60)
		if err != nil {
			t.Fatal(err)
		}
		last, end := whole.epochs[len(whole.epochs)-1], rec.epochs[len(rec.epochs)-1]
		if got[0].ParamsSHA256 != want[0].ParamsSHA256 || got[0].Skipped != want[0].Skipped || end.Skipped != last.Skipped || end.TrainLoss != last.TrainLoss || want[0].Skipped < 4 {
			t.Errorf("%s: %d skipped, %+v, want %d, %+v", strategy, got[0].Skipped, end, want[0].Skipped, last)
		}
	}
}

// A run whose steps are all skipped, in an epoch or a hundred times in a row, is an error with the
// last reason.
func TestOnlySkippedStepsAreAnError(t *testing.T) {
	every := make([]int, 100)
	for i := range every {
		every[i] = i
	}
	skip := distopt.Config{NonFinite: "skip"}
	_, rec, err := skipped(t, 2, 0, Config{LR: 0.1, Batch: 10, Epochs: 3, Exchange: skip}, every...)
	if err == nil || !strings.Contains(err.Error(), "all 5 steps of the epoch were skipped, the last one because rank") || !strings.Contains(err.Error(), "has NaN as value 1") || len(rec.epochs) > 0 {
		t.Errorf("an epoch: %v after %v", err, rec.epochs)
	}
	spec := carrying()
	err = ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		l, err := NewLoop(job.Context(), job, spec, Config{LR: 0.1, Batch: 6, Exchange: skip})
		if err != nil {
			return err
		}
		for i := range 1000 {
			b := randomBatch(uint64(i), uint64(job.Rank()))
			if i > 50 || i == 7 {
				b.Values[0] = float32(math.NaN())
			}
			if _, err = l.TrainOneBatch(l.Replica().Batch(b), "", 0); err != nil {
				break
			}
		}
		if n := l.Steps(); n != 151 && n != 150 { // the other rank may end this one's last step
			t.Errorf("a loop ended after %d steps, want 151", n)
		}
		return errors.Join(err, l.Close())
	})
	if err == nil || !strings.Contains(err.Error(), "100 consecutive steps were skipped, the last one because rank 0: the loss is NaN: row 0 of the batch") {
		t.Errorf("a loop: %v", err)
	}
}

// Steps cannot be skipped where servers move the parameters, or where a plan is chosen by times.
func TestSkipIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"training.non-finite skip with sync bsp: pushed gradients cannot be withdrawn": func(c *Config) { c.Servers.Consistency = "bsp" },
		"training.non-finite skip has updates after the exchange":                      func(c *Config) { c.Exchange.Strategy, c.Tuning.Measure = "auto", true },
		`training.non-finite "drop" is not known: use end or skip`:                     func(c *Config) { c.Exchange.NonFinite = "drop" },
	} {
		cfg := Defaults(zoo("ctr-dnn"), data.Synthetic)
		cfg.Exchange.NonFinite = "skip"
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

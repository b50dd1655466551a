package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
)

// small is a run of a moment: few samples and a small model.
func small() Config {
	cfg := Defaults(zoo("mlp"), data.Synthetic)
	cfg.TrainLimit, cfg.EvalLimit, cfg.Epochs, cfg.Batch = 480, 101, 1, 16
	return cfg
}

// recorder keeps what an observer is told.
type recorder struct {
	info     Info
	epochs   []Epoch
	remarks  []Remark
	progress []Progress
}

func (r *recorder) Start(i Info)        { r.info = i }
func (r *recorder) Progress(p Progress) { r.progress = append(r.progress, p) }
func (r *recorder) Step(Step)           {}
func (r *recorder) Epoch(e Epoch)       { r.epochs = append(r.epochs, e) }
func (r *recorder) Remark(m Remark)     { r.remarks = append(r.remarks, m) }

// onRanks runs cfg on n ranks in memory and returns rank 0's summary and what
// its observer saw. Every rank must return the same summary but for the time.
func onRanks(t *testing.T, n int, cfg Config) (Summary, *recorder) {
	t.Helper()
	var mu sync.Mutex
	sums, rec := make([]Summary, n), new(recorder)
	err := ringo.Local(context.Background(), n, ringo.Config{}, func(job *ringo.Job) error {
		own := rec
		if job.Rank() != 0 {
			own = new(recorder)
		}
		s, err := observed(job, cfg, own)
		mu.Lock()
		sums[job.Rank()] = s
		mu.Unlock()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank, s := range sums {
		s.WallS = sums[0].WallS
		if !reflect.DeepEqual(s, sums[0]) {
			t.Errorf("rank %d says %+v, rank 0 %+v", rank, s, sums[0])
		}
	}
	return sums[0], rec
}

// The same run twice has the same bits, for any number of ranks and threads.
func TestReproducible(t *testing.T) {
	for _, np := range []int{1, 2, 3, 5} {
		cfg := small()
		first, _ := onRanks(t, np, cfg)
		cfg.Threads = 2
		again, _ := onRanks(t, np, cfg)
		if first.ParamsSHA256 != again.ParamsSHA256 || len(first.ParamsSHA256) != 64 {
			t.Errorf("np %d: sha256 %s, then %s", np, first.ParamsSHA256, again.ParamsSHA256)
		}
		cfg.Seed++
		if other, _ := onRanks(t, np, cfg); other.ParamsSHA256 == first.ParamsSHA256 {
			t.Errorf("np %d: another seed has the same parameters", np)
		}
	}
}

// Plans and algorithms change when values travel, not what is learned.
func TestPlansAgree(t *testing.T) {
	cfg := small()
	want, _ := onRanks(t, 2, cfg)
	for _, plan := range distopt.Plans() {
		cfg.Exchange.Plan = plan
		if got, _ := onRanks(t, 2, cfg); got.ParamsSHA256 != want.ParamsSHA256 {
			t.Errorf("plan %s: sha256 %s, want %s: with two ranks every sum has one order", plan, got.ParamsSHA256, want.ParamsSHA256)
		}
	}
}

func TestPartialUpdateRuns(t *testing.T) {
	cfg := small()
	cfg.Exchange.Strategy = distopt.PartialUpdate
	s, _ := onRanks(t, 3, cfg)
	if s.Strategy != "partialUpdate" || s.ParamsSHA256 == "" {
		t.Errorf("%+v", s)
	}
}

// What the observer is told adds up, and the JSON names are those promised.
func TestEvents(t *testing.T) {
	cfg := small()
	cfg.Epochs = 2
	s, rec := onRanks(t, 2, cfg)
	steps := 480 / 2 / 16
	if rec.info.StepsPerEpoch != steps || rec.info.TrainSamples != 480 || rec.info.EvalSamples != 101 || len(rec.epochs) != 2 {
		t.Errorf("%+v, %d epochs", rec.info, len(rec.epochs))
	}
	e := rec.epochs[1]
	if e.Eval["accuracy"] != s.Eval["accuracy"] || e.Epoch != 2 || e.SamplesPerS <= 0 || e.StepMS <= 0 || e.ExposedCommMS < 0 {
		t.Errorf("epoch %+v, summary %+v", e, s)
	}
	if k := e.Eval["accuracy"] * 101; math.Abs(k-math.Round(k)) > 1e-9 {
		t.Errorf("evaluation accuracy %v is not a share of 101 samples: some were seen twice or not at all", e.Eval["accuracy"])
	}
	// Two ranks send every padded gradient once per step; besides, the figures.
	if least := int64(2 * steps * s.Params * 4); e.BytesSent < least || e.BytesSent > least+least/100 || e.WireBytes < e.BytesSent {
		t.Errorf("%d bytes sent, %d on the wire, want a little over %d", e.BytesSent, e.WireBytes, least)
	}
	last := rec.progress[len(rec.progress)-1]
	if last.Phase != "evaluate" || last.Done != last.Total {
		t.Errorf("the last progress is %+v", last)
	}
	for _, c := range []struct {
		v    any
		keys string
	}{
		{e, "event epoch seed lr train_loss train_accuracy eval_loss eval_accuracy samples_per_s step_ms exposed_comm_ms bytes_sent wire_bytes"},
		{s, "event model np strategy plan optimizer seed train_loss eval_loss eval_accuracy samples_per_s params_sha256 wall_s"},
	} {
		text, _ := json.Marshal(c.v)
		for _, k := range strings.Fields(c.keys) {
			if !strings.Contains(string(text), `"`+k+`":`) {
				t.Errorf("%s has no %q", text, k)
			}
		}
	}
}

// One worker that is fed the union of two workers' batches follows the same
// losses over 100 steps.
func TestUnionOfBatches(t *testing.T) {
	const steps, batch = 100, 16
	images := synthetic(t, 3, 2*steps*batch)
	cfg := Defaults(zoo("mnist"), data.Synthetic)
	two := make([][2]float64, steps)
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		return follow(job, cfg, images, batch, func(step int) []int32 {
			return part(images, job.Rank(), step, batch)
		}, func(step int, loss float64) { two[step][job.Rank()] = loss })
	})
	if err != nil {
		t.Fatal(err)
	}
	one := make([]float64, steps)
	err = ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		return follow(job, cfg, images, 2*batch, func(step int) []int32 {
			return append(part(images, 0, step, batch), part(images, 1, step, batch)...)
		}, func(step int, loss float64) { one[step] = loss })
	})
	if err != nil {
		t.Fatal(err)
	}
	for step := range one {
		mean := (two[step][0] + two[step][1]) / 2
		// Equal but for rounding (2e-7), until in some step a max-pool picks
		// another of two equal values and training spreads that: 5e-4 at the end.
		tolerance := 1e-5
		if step >= steps/2 {
			tolerance = 1e-2
		}
		if math.Abs(mean-one[step]) > tolerance {
			t.Fatalf("step %d: two workers' mean loss %v, one worker's %v", step, mean, one[step])
		}
	}
	if one[steps-1] > one[0]/2 {
		t.Errorf("the loss only went from %v to %v: the test has not trained", one[0], one[steps-1])
	}
}

// synthetic is the training part of so many drawn digits.
func synthetic(t *testing.T, seed uint64, n int) data.Source {
	t.Helper()
	set, err := data.Open("mnist", data.Config{Dir: data.Synthetic, Seed: seed, TrainLimit: n, EvalLimit: 16})
	if err != nil {
		t.Fatal(err)
	}
	return set.Train
}

// part is rank's batch of a step.
func part(images data.Source, rank, step, batch int) []int32 {
	s, err := data.NewSampler(data.SamplerConfig{N: images.Len(), Batch: batch, Rank: rank, Size: 2, Seed: 5})
	if err != nil {
		panic(err)
	}
	s.Start(1)
	for range step {
		s.Next()
	}
	index, ok := s.Next()
	if !ok {
		panic(fmt.Sprintf("no step %d", step))
	}
	return append([]int32(nil), index...)
}

// follow trains for 100 steps on the given batches.
func follow(job *ringo.Job, cfg Config, images data.Source, batch int, pick func(int) []int32, saw func(int, float64)) error {
	cfg.Batch = batch
	r, err := NewReplica(job, cfg, model.Options{})
	if err != nil {
		return err
	}
	defer r.Close()
	var b data.Batch
	for step := range 100 {
		if err := images.Fill(&b, pick(step), data.Draw{}); err != nil {
			return err
		}
		res, err := r.Backward(r.Batch(&b), true)
		if err != nil {
			return err
		}
		saw(step, float64(res.Loss.Mean.Data[0]))
		if err := r.Step(); err != nil {
			return err
		}
	}
	return nil
}

// Two batches of 8 accumulated are one of 16.
func TestAccumulation(t *testing.T) {
	images := synthetic(t, 3, 64)
	losses := func(batch, accumulate int) (loss float64) {
		cfg := Defaults(zoo("mnist"), data.Synthetic)
		cfg.Exchange.Accumulation = accumulate
		err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
			cfg.Batch = 16
			r, err := NewReplica(job, cfg, model.Options{})
			if err != nil {
				return err
			}
			defer r.Close()
			var b data.Batch
			for range 5 {
				for k := range accumulate {
					index := make([]int32, batch)
					for i := range index {
						index[i] = int32(k*batch + i)
					}
					if err := images.Fill(&b, index, data.Draw{}); err != nil {
						return err
					}
					if _, err := r.Backward(r.Batch(&b), k == accumulate-1); err != nil {
						return err
					}
				}
				if err := r.Step(); err != nil {
					return err
				}
			}
			if err := images.Fill(&b, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, data.Draw{}); err != nil {
				return err
			}
			res, err := r.Evaluate(r.Batch(&b))
			loss = float64(res.Loss.Mean.Data[0])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return loss
	}
	if whole, halves := losses(16, 1), losses(8, 2); math.Abs(whole-halves) > 1e-4 {
		t.Errorf("loss %v after whole batches, %v after accumulated halves", whole, halves)
	}
}

// Wrong settings and data are errors that say what and where.
func TestFaults(t *testing.T) {
	folders := []string{writeMNIST(t, 40), writeMNIST(t, 41)}
	for _, c := range []struct {
		np   int
		edit func(*Config, int)
		want []string
	}{
		{1, func(c *Config, _ int) { c.LR, c.Batch, c.Data = math.NaN(), 0, "" }, []string{"training.lr NaN", "training.batch 0", "no data"}},
		{1, func(c *Config, _ int) { c.Data = "nowhere" }, []string{"nowhere", "synthetic"}},
		{1, func(c *Config, _ int) { c.Model.Build, c.Name = nil, "mine" }, []string{`model "mine" has no Build`}},
		{3, func(c *Config, _ int) { c.Batch = 200 }, []string{"480", "200"}},
		{2, func(c *Config, rank int) { c.LR = float64(1 + rank) }, []string{"settings", "rank 1"}},
		{2, func(c *Config, rank int) { c.Data = folders[rank] }, []string{"data set of rank 1", "same files"}},
		{2, func(c *Config, _ int) { c.LR = 1e30 }, []string{"epoch 1", "step", "learning rate"}},
	} {
		err := ringo.Local(context.Background(), c.np, ringo.Config{}, func(job *ringo.Job) error {
			cfg := small()
			c.edit(&cfg, job.Rank())
			_, err := observed(job, cfg, new(recorder))
			return err
		})
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v does not contain %q", err, w)
			}
		}
	}
}

// writeMNIST writes n digits in MNIST's format, and as many for the test.
func writeMNIST(t *testing.T, n int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, set := range []string{"train", "t10k"} {
		images := append(idxHeader(3, n, 28, 28), make([]byte, n*28*28)...)
		labels := append(idxHeader(1, n), make([]byte, n)...)
		for name, content := range map[string][]byte{"images-idx3": images, "labels-idx1": labels} {
			if err := os.WriteFile(filepath.Join(dir, set+"-"+name+"-ubyte"), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func idxHeader(dims ...int) []byte {
	b := []byte{0, 0, 8, byte(dims[0])}
	for _, d := range dims[1:] {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return b
}

package train

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
)

// Models with tables, carried state, dropout and running statistics give the
// same bits again, on any number of threads, under every strategy.
func TestTasksAreReproducible(t *testing.T) {
	for _, spec := range []model.Spec{tinyClick(), tinyLSTM(), tinyNorm()} {
		for _, np := range []int{1, 2, 3} {
			for _, strategy := range distopt.Strategies() {
				if np != 2 && strategy != distopt.FP32 && strategy != distopt.PartialUpdate {
					continue // time
				}
				cfg := custom(spec)
				cfg.Exchange.Strategy, cfg.Exchange.ClipNorm = strategy, 1
				first, _ := onRanks(t, np, cfg)
				cfg.Threads = 3
				if again, _ := onRanks(t, np, cfg); again.ParamsSHA256 != first.ParamsSHA256 {
					t.Errorf("%s, np %d, %s: sha256 %s, then %s", spec.Name, np, strategy, first.ParamsSHA256, again.ParamsSHA256)
				}
			}
		}
	}
}

// What a task reports, and nothing of another one's.
func TestFiguresOfTasks(t *testing.T) {
	for _, c := range []struct {
		spec                      model.Spec
		perplexity, click, tokens bool
	}{{tinyClick(), false, true, false}, {tinyLSTM(), true, false, true}, {tinyNorm(), false, false, false}} {
		sum, rec := onRanks(t, 2, custom(c.spec))
		e := rec.epochs[0]
		has := func(f model.Metrics, names ...string) bool {
			return !slices.ContainsFunc(names, func(name string) bool { _, ok := f[name]; return !ok })
		}
		if has(e.Eval, "perplexity") != c.perplexity || has(e.Train, "perplexity") != c.perplexity || !maps.Equal(sum.Eval, e.Eval) {
			t.Errorf("%s: perplexities %+v, %+v", c.spec.Name, e, sum)
		}
		if has(e.Eval, "auc", "logloss") != c.click || has(e.Train, "auc") || has(e.Train, "logloss") {
			t.Errorf("%s: click figures %+v, %+v", c.spec.Name, e, sum)
		}
		if e.TokensPerS.Known != c.tokens || sum.TokensPerS.Known != c.tokens || (rec.info.Unit == "tokens") != c.tokens {
			t.Errorf("%s: rates %+v, %+v, %+v", c.spec.Name, e, sum, rec.info)
		}
		if c.perplexity && (e.Eval["perplexity"] != math.Exp(e.EvalLoss) || e.Train["perplexity"] != math.Exp(e.TrainLoss)) {
			t.Errorf("perplexities %v and %v of losses %v and %v", e.Train, e.Eval, e.TrainLoss, e.EvalLoss)
		}
		if c.tokens && math.Abs(e.TokensPerS.Value/e.SamplesPerS-7) > 1e-9 {
			t.Errorf("%v tokens and %v samples a second, of 7 tokens each", e.TokensPerS, e.SamplesPerS)
		}
		if c.click && e.Eval["logloss"] != e.EvalLoss {
			t.Errorf("log-loss %v, loss %v", e.Eval, e.EvalLoss)
		}
	}
}

// The table has the rows that are asked for, and categories are hashed to all of them.
func TestTableRows(t *testing.T) {
	cfg := custom(tinyClick())
	first, rec := onRanks(t, 2, cfg)
	cfg.TableRows = cfg.Model.Rows / 2
	again, half := onRanks(t, 2, cfg)
	if got := rec.info.Params - half.info.Params; got != 3*cfg.TableRows || first.ParamsSHA256 == again.ParamsSHA256 {
		t.Errorf("half the rows: %d parameters fewer, sha256 %s and %s", got, first.ParamsSHA256, again.ParamsSHA256)
	}
	for rows, want := range map[int]string{1: "data.table-rows 1: want at least 2", 1 << 31: "data.table-rows 2147483648: want 0 to 2147483647"} {
		cfg.TableRows = rows
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
	mlp := small()
	mlp.TableRows = 5
	if err := mlp.Validate(); err == nil || !strings.Contains(err.Error(), "data.table-rows 5 has no effect on model mlp") {
		t.Errorf("a model without a table: %v", err)
	}
}

// However many ranks share the evaluation set, and however uneven their shards,
// its figures are those of the whole set.
func TestEvaluationIsExact(t *testing.T) {
	for _, spec := range []model.Spec{tinyClick(), tinyNorm()} {
		var want Epoch
		for _, np := range []int{1, 2, 3, 5, 7} {
			cfg := custom(spec)
			cfg.LR, cfg.Batch, cfg.EvalLimit = 1e-30, 6, 43 // the model stays what it is
			if spec.Name == "tiny-norm" {
				cfg.Epochs = 0 // not even its statistics move
			}
			var e Epoch
			err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
				r := newRun(context.Background(), job, cfg, nil)
				r.obs = new(recorder)
				defer r.close()
				if err := r.prepare(); err != nil {
					return err
				}
				at := position{epoch: 1, step: r.data.steps, tally: r.replica.newTally()}
				at.tally.train.Terms = 1
				err := r.loop.epoch(&at)
				if job.Rank() == 0 {
					e = r.reports.past.Last
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if np == 1 {
				want = e
			}
			if math.Abs(e.EvalLoss-want.EvalLoss) > 1e-7 || e.Eval["accuracy"] != want.Eval["accuracy"] || math.Abs(e.Eval["auc"]-want.Eval["auc"]) > 1e-12 {
				t.Errorf("%s, np %d: %+v, want %+v", spec.Name, np, e, want)
			}
		}
	}
}

// Running statistics are each rank's own in training and the mean of all after
// Sync; the hash sees them, and tables.
func TestSyncAndHash(t *testing.T) {
	const np = 3
	var mu sync.Mutex
	own, after := make([][]float32, np), make([][]float32, np)
	err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
		r, err := NewReplica(job, custom(tinyNorm()), model.Options{})
		if err != nil {
			return err
		}
		defer r.Close()
		if v := r.Params.Buffers(); slices.Max(v[:12]) != 0 || slices.Min(v[12:]) != 1 {
			t.Errorf("statistics begin as %v: the dry run is in them", v)
		}
		b := fill(t, synthetic(t, uint64(job.Rank()), 64), 0, 16)
		if _, err := r.Backward(r.Batch(b), true); err != nil {
			return err
		}
		if err := r.Step(); err != nil {
			return err
		}
		mu.Lock()
		own[job.Rank()] = slices.Clone(r.Params.Buffers())
		mu.Unlock()
		before := hash(t, r)
		if err := alone(job, r).sync(); err != nil {
			return err
		}
		if hash(t, r) == before {
			t.Error("the hash does not see the running statistics")
		}
		mu.Lock()
		after[job.Rank()] = slices.Clone(r.Params.Buffers())
		mu.Unlock()
		return collective.Barrier(job.Group())
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range after[0] {
		mean := (float64(own[0][i]) + float64(own[1][i]) + float64(own[2][i])) / 3
		if math.Abs(float64(after[0][i])-mean) > 1e-6 || after[1][i] != after[0][i] || after[2][i] != after[0][i] {
			t.Errorf("statistic %d: %v, %v, %v, want the mean %v", i, after[0][i], after[1][i], after[2][i], mean)
		}
	}
	if slices.Equal(own[0], own[1]) {
		t.Error("the ranks had the same statistics: nothing was averaged")
	}
	err = ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		r, err := NewReplica(job, custom(tinyClick()), model.Options{Rows: 300})
		if err != nil {
			return err
		}
		defer r.Close()
		before := hash(t, r)
		r.Params.Tables()[0].Data[17]++
		if hash(t, r) == before {
			t.Error("the hash does not see tables")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fill is a batch of the samples [lo, hi) of a source.
func fill(t *testing.T, src data.Source, lo, hi int) *data.Batch {
	t.Helper()
	var idx []int32
	for i := lo; i < hi; i++ {
		idx = append(idx, int32(i))
	}
	b := new(data.Batch)
	if err := src.Fill(b, idx, data.Draw{}); err != nil {
		t.Error(err)
	}
	return b
}

// Two workers with a table learn what one learns from the union of their
// batches, and rows that no sample named stay as they were, bit by bit.
func TestTableUnionOfBatches(t *testing.T) {
	const steps, batch = 40, 12
	set, err := data.Open("criteo", data.Config{Dir: data.Synthetic, Seed: 1, TrainLimit: steps * 2 * batch, EvalLimit: 16, Rows: 5000})
	if err != nil {
		t.Fatal(err)
	}
	train := func(np int) (tables [][]float32, start []float32, touched map[int32]bool) {
		tables, touched = make([][]float32, np), map[int32]bool{}
		err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
			r, err := NewReplica(job, custom(tinyClick()), model.Options{Rows: 5000})
			if err != nil {
				return err
			}
			defer r.Close()
			tab := r.Params.Tables()[0]
			if job.Rank() == 0 {
				start = slices.Clone(tab.Data)
			}
			n := 2 * batch / np
			for step := range steps {
				lo := step*2*batch + job.Rank()*n
				b := fill(t, set.Train, lo, lo+n)
				if np == 1 {
					for _, id := range b.IDs {
						touched[id] = true
					}
				}
				if _, err := r.Backward(r.Batch(b), true); err != nil {
					return err
				}
				if err := r.Step(); err != nil {
					return err
				}
			}
			tables[job.Rank()] = tab.Data
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return tables, start, touched
	}
	one, start, touched := train(1)
	two, _, _ := train(2)
	moved := 0
	for i, v := range one[0] {
		if math.Abs(float64(two[0][i]-v)) > 1e-4 || math.Float32bits(two[0][i]) != math.Float32bits(two[1][i]) {
			t.Fatalf("value %d: %v and %v by two workers, %v by one", i, two[0][i], two[1][i], v)
		}
		if !touched[int32(i/3)] && (math.Float32bits(v) != math.Float32bits(start[i]) || math.Float32bits(two[0][i]) != math.Float32bits(v)) {
			t.Fatalf("untouched row %d moved from %v to %v and %v", i/3, start[i], v, two[0][i])
		}
		if v != start[i] {
			moved++
		}
	}
	if len(touched) == 5000 || moved < 1000 {
		t.Errorf("%d rows of 5,000 were named and %d values moved: the test shows nothing", len(touched), moved)
	}
}

// Data that are not for the model are refused with both shapes.
func TestShapesMustFit(t *testing.T) {
	spec := tinyClick()
	spec.IDs = 25
	checkFails(t, 1, custom(spec), "criteo", "26 ids", "tiny-click", "25")
}

// A step of any model allocates nothing in the steady state.
func TestStepAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("with the race detector pools lose what is put back")
	}
	for _, spec := range []model.Spec{tinyClick(), tinyLSTM(), tinyNorm()} {
		err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
			r := newRun(context.Background(), job, custom(spec), nil)
			r.obs = silent{}
			defer r.close()
			if err := r.prepare(); err != nil {
				return err
			}
			r.data.order.Start(1)
			c := &threadPool{epochLoop: r.loop, epoch: 1, phase: "train", from: r.data.order, until: r.data.steps, remaining: math.MaxInt}
			w, step := r.workers[0], 0
			w.tally = r.replica.newTally()
			one := func() {
				if step%r.data.steps == 0 {
					r.data.order.Start(1 + step/r.data.steps)
				}
				w.at, c.begun = step%r.data.steps, step%r.data.steps
				now, err := c.begin(w, w.at, r.data.steps)
				if err == nil {
					err = w.step(c, now, nil)
				}
				if err != nil {
					t.Error(err)
				}
				step++
			}
			for range 40 {
				one()
			}
			if per := testing.AllocsPerRun(20, one); per >= 1 {
				t.Errorf("%s: %v allocations per step", spec.Name, per)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

type silent struct{}

func (silent) Start(Info)        {}
func (silent) Progress(Progress) {}
func (silent) Step(Step)         {}
func (silent) Epoch(Epoch)       {}
func (silent) Remark(Remark)     {}

// Another optimizer brings its own settings, without decay where there is a
// table; the same one changes nothing.
func TestSetOptimizer(t *testing.T) {
	for _, c := range []struct {
		model, optimizer string
		lr, decay        float64
	}{{"mnist", "sgd", 0.005, 1e-5}, {"mnist", "adamw", 0.001, 0.01}, {"mnist", "adagrad", 0.01, 0}, {"ctr-dnn", "adamw", 0.001, 0}, {"ctr-dnn", "sgd", 0.01, 0},
		{"mnist", "adam", 0.001, 0}, {"ctr-dnn", "adam", 0.001, 0}, {"mnist", "ftrl", 0.5, 0}, {"ctr-dnn", "ftrl", 0.5, 0}} {
		cfg := Defaults(zoo(c.model), data.Synthetic)
		cfg.SetOptimizer(c.optimizer)
		if cfg.LR != c.lr || cfg.WeightDecay != c.decay || cfg.Validate() != nil {
			t.Errorf("%s with %s: rate %v, decay %v, %v; want %v and %v", c.model, c.optimizer, cfg.LR, cfg.WeightDecay, cfg.Validate(), c.lr, c.decay)
		}
	}
}

// alone is a run of one replica on each rank.
func alone(job *ringo.Job, r *Replica) *run {
	return compose(&runEnv{job: job, replica: r, workers: []*trainerThread{{replica: r}}, peers: peersOf(job)}, nil)
}

// hash is the replica's.
func hash(t *testing.T, r *Replica) [32]byte {
	t.Helper()
	sum, copies, err := r.hash()
	if sum != copies {
		t.Error("what lies here is not all copied")
	}
	if err != nil {
		t.Error(err)
	}
	return sum
}

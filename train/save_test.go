package train

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/optim/schedule"
)

// resumable are runs of everything that a checkpoint must hold, of two epochs.
func resumable() map[string]Config {
	out := map[string]Config{
		"momentum": small(), "adamw": small(), "accumulation": small(), "partialUpdate": small(), "fixed": small(), "schedule": small(),
		"table": custom(tinyClick()), "adamTable": custom(tinyClick()), "ftrlTable": custom(tinyClick()), "lstm": custom(tinyLSTM()), "norm": custom(tinyNorm()), "bags": custom(tinyBags()),
		"topk": small(), "int8": small(), "dlgs": small(), "paper": small(), "dgc": small(),
		"average": small(), "averageTable": custom(tinyClick()),
	}
	for name, c := range out {
		c.Epochs, c.TrainLimit, c.EvalLimit, c.Batch = 2, 168, 37, 8
		switch name {
		case "adamw":
			c.SetOptimizer("adamw")
		case "average":
			c.Average = 0.9
		case "averageTable":
			c.Average = 0.9
			c.SetOptimizer("adam")
		case "fixed":
			c.Partition = PartitionFixed
		case "adamTable":
			c.SetOptimizer("adam")
		case "ftrlTable":
			c.SetOptimizer("ftrl")
		case "accumulation":
			c.Exchange.Accumulation = 2
		case "partialUpdate":
			c.Exchange.Strategy = distopt.PartialUpdate
		case "paper":
			c.Exchange.Strategy, c.Exchange.Rule, c.Exchange.Every = distopt.DLGS, compress.RulePaper, 8
		case "topk", "int8", "dlgs", "dgc":
			c.Exchange.Strategy = distopt.Strategy(name)
			switch name {
			case "dlgs":
				c.Exchange.Every, c.Exchange.LayerThresholds = 4, true
			case "dgc":
				c.WarmupDensity, c.Exchange.Momentum, c.Momentum = []float64{0.25}, 0.5, 0
			}
		case "schedule":
			c.Cosine, c.Warmup = true, schedule.Warmup{Steps: 5}
		case "lstm":
			c.Exchange.ClipNorm = 0.25
		}
		out[name] = c
	}
	return out
}

// timeless is what of an epoch does not depend on the clock.
func timeless(e Epoch) string {
	e.SamplesPerS, e.StepMS, e.StepMedianMS, e.DataWaitMS, e.WallS, e.TokensPerS = 0, 0, 0, 0, 0, OptionalFloat{}
	e.BreakDown = BreakDown{Density: e.Density}
	e.BytesSent, e.WireBytes = 0, 0 // saving sends some, too
	return fmt.Sprintf("%+v", e)
}

// checkSame compares a run that went on from a checkpoint with one that never
// stopped.
func checkSame(t *testing.T, what string, got Summary, epochs []Epoch, want Summary, all []Epoch) {
	t.Helper()
	if got.ParamsSHA256 != want.ParamsSHA256 {
		t.Errorf("%s: sha256 %s, want %s", what, got.ParamsSHA256, want.ParamsSHA256)
	}
	for i, e := range epochs {
		if w := all[len(all)-len(epochs)+i]; timeless(e) != timeless(w) {
			t.Errorf("%s:\n%s, want\n%s", what, timeless(e), timeless(w))
		}
	}
	if got.EvalLoss != want.EvalLoss || got.TrainLoss != want.TrainLoss || !maps.Equal(got.Eval, want.Eval) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// A run that goes on from any of its checkpoints, in the middle of an epoch, at
// its end or after it, ends with the bits and the figures of one that never
// stopped and never saved.
func TestResume(t *testing.T) {
	for name, cfg := range resumable() {
		if testing.Short() && !slices.Contains([]string{"accumulation", "partialUpdate", "table", "dlgs", "average"}, name) {
			continue // the others have what these have, and other numbers
		}
		for _, np := range []int{1, 2} {
			what := fmt.Sprintf("%s, np %d", name, np)
			if np == 1 && (testing.Short() || !slices.Contains([]string{"accumulation", "adamTable", "fixed", "lstm"}, name)) {
				continue // time
			}
			want, whole := onRanks(t, np, cfg)
			steps, saving := whole.info.StepsPerEpoch, cfg
			every := 3
			if np == 1 {
				every = steps / 3 // at the end of an epoch, too
			}
			saving.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: every, Keep: 1000}
			saved, rec := onRanks(t, np, saving)
			if name == "partialUpdate" { // saving brings the replicas together
				want, whole = saved, rec
			}
			checkSame(t, what+", saving", saved, rec.epochs, want, whole.epochs)
			files, _ := filepath.Glob(filepath.Join(saving.Checkpoint.Dir, "*.ringo"))
			if n := 2*steps/every + min(1, 2*steps%every); len(files) != n || n < 4 {
				t.Fatalf("%s: %d checkpoints of 2 epochs of %d steps", what, len(files), steps)
			}
			for i, file := range files {
				if i%2 == 1 && i < len(files)-2 {
					continue // time
				}
				again := saving
				again.Checkpoint.Dir, again.Checkpoint.Resume, again.Threads = onlyFile(t, file), true, 2
				if name != "partialUpdate" {
					again.Checkpoint.Every = 1000 // it is not saved but at the end
				}
				got, rec := onRanks(t, np, again)
				checkSame(t, what+", from "+filepath.Base(file), got, rec.epochs, want, whole.epochs)
				if !strings.HasSuffix(rec.info.Resumed, filepath.Base(file)) || rec.info.Steps == 0 {
					t.Errorf("%s: resumed from %q at step %d, want %s", what, rec.info.Resumed, rec.info.Steps, file)
				}
			}
		}
	}
}

// onlyFile is a folder with nothing but a copy of a file.
func onlyFile(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	content, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Without an interval a run is saved after each epoch and keeps the last three;
// resuming a run that has ended tells its figures again, and more epochs go on
// from there as if they had been asked for at once.
func TestCheckpointEachEpoch(t *testing.T) {
	cfg := small()
	cfg.Epochs, cfg.TrainLimit = 5, 96
	want, _ := onRanks(t, 2, cfg)
	cfg.Checkpoint.Dir = filepath.Join(t.TempDir(), "new")
	cfg.Checkpoint.Resume = true // where there is none
	cfg.Epochs = 4
	four, rec := onRanks(t, 2, cfg)
	files, _ := filepath.Glob(filepath.Join(cfg.Checkpoint.Dir, "*.ringo"))
	if len(files) != 3 || rec.info.Resumed != "" {
		t.Errorf("%d files are left, resumed from %q", len(files), rec.info.Resumed)
	}
	again, rec := onRanks(t, 2, cfg)
	if again.ParamsSHA256 != four.ParamsSHA256 || again.EvalLoss != four.EvalLoss || len(rec.epochs) != 0 {
		t.Errorf("an ended run resumed: %+v, want %+v", again, four)
	}
	cfg.Epochs = 5
	longer, rec := onRanks(t, 2, cfg)
	if longer.ParamsSHA256 != want.ParamsSHA256 || len(rec.epochs) != 1 {
		t.Errorf("an epoch more: %+v, want %+v", longer, want)
	}
}

// Only rank 0 needs the files.
func TestResumeFilesOfRank0(t *testing.T) {
	cfg := custom(tinyLSTM())
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 4}
	want, _ := onRanks(t, 2, cfg)
	cfg.Checkpoint.Resume = true
	elsewhere := filepath.Join(t.TempDir(), "nothing")
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		own := cfg
		if job.Rank() == 1 {
			own.Checkpoint.Dir = elsewhere
		}
		got, err := observed(job, own, new(recorder))
		if err == nil && got.ParamsSHA256 != want.ParamsSHA256 {
			t.Errorf("rank %d: sha256 %s, want %s", job.Rank(), got.ParamsSHA256, want.ParamsSHA256)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("rank 1 has made its folder")
	}
}

// A checkpoint of another run is refused with both values of all that differs.
func TestResumeRefuses(t *testing.T) {
	cfg := small()
	cfg.Cosine = true
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir()}
	onRanks(t, 2, cfg)
	cfg.Checkpoint.Resume = true
	for _, c := range []struct {
		np   int
		edit func(*Config)
		want []string
	}{
		{2, func(c *Config) { c.LR, c.Batch, c.Momentum, c.Epochs = 0.25, 8, 0.5, 2 }, []string{"training.momentum 0.5: the checkpoint has 0.9", "training.batch 8: the checkpoint has 16"}},
		{2, func(c *Config) { c.Seed = 3 }, []string{"training.seed 3: the checkpoint has 1", "the data differ: their fingerprint is "}},
		{2, func(c *Config) { c.SetOptimizer("adamw") }, []string{"training.optimizer adamw: the checkpoint has sgd"}},
		{2, func(c *Config) { c.Exchange.Strategy = distopt.PartialUpdate }, []string{"exchange.strategy partialUpdate: the checkpoint has fp32"}},
		{2, func(c *Config) { c.Model = zoo("mnist") }, []string{"model mnist-cnn: the checkpoint has mlp"}},
	} {
		other := cfg
		c.edit(&other)
		checkFails(t, c.np, other, c.want...)
	}
	files, _ := filepath.Glob(filepath.Join(cfg.Checkpoint.Dir, "*.ringo"))
	f, err := checkpoint.Load(files[0])
	if err != nil {
		t.Fatal(err)
	}
	head := f.Header
	_ = f.Close()
	head.NP = 1 << 40
	far := cfg
	far.Checkpoint.Dir = t.TempDir()
	if _, err := checkpoint.Save(far.Checkpoint.Dir, checkpoint.State{Header: head}); err != nil {
		t.Fatal(err)
	}
	checkFails(t, 2, far, "1099511627776 ranks, 1 epochs and 0 steps: out of range")
	err = ringo.Local(context.Background(), 2, ringo.Config{Servers: 1}, func(job *ringo.Job) error {
		_, err := observed(job, cfg, new(recorder))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "sync aggregate: the checkpoint has allreduce") {
		t.Errorf("with servers: %v", err)
	}
	if err := os.Truncate(files[0], 2000); err != nil {
		t.Fatal(err)
	}
	checkFails(t, 2, cfg, files[0], "damaged")
	cfg.Checkpoint = Checkpoint{Every: -1, Keep: -1, Resume: true}
	checkFails(t, 1, cfg, "checkpoint.every -1", "-1 checkpoints to keep", "checkpoint.resume has no effect: it needs checkpoint.dir")
}

// A run goes on by the rule of DLGS that its checkpoint was made by.
func TestResumeRefusesAnotherRule(t *testing.T) {
	cfg := small()
	cfg.Exchange.Strategy, cfg.Checkpoint.Dir = distopt.DLGS, t.TempDir()
	onRanks(t, 1, cfg)
	cfg.Checkpoint.Resume, cfg.Exchange.Rule = true, compress.RulePaper
	checkFails(t, 1, cfg, "exchange.dlgs-rule paper: the checkpoint has none")
}

// After an epoch another number of ranks may go on, in the middle of one it may
// not: its samples are shared out already.
func TestResumeOtherRanks(t *testing.T) {
	cfg := small()
	cfg.Epochs, cfg.TrainLimit = 2, 192
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 4, Keep: 1000}
	onRanks(t, 2, cfg)
	cfg.Checkpoint.Resume = true
	middle := cfg
	middle.Checkpoint.Dir = onlyFile(t, filepath.Join(cfg.Checkpoint.Dir, "step-000000004.ringo"))
	checkFails(t, 1, middle, "job.ranks 1: the checkpoint has 2")
	cfg.Checkpoint.Every = 0
	cfg.Checkpoint.Dir = onlyFile(t, filepath.Join(cfg.Checkpoint.Dir, "step-000000012.ringo"))
	cfg.Epochs = 3
	for _, np := range []int{1, 3} {
		got, rec := onRanks(t, np, cfg)
		if len(rec.epochs) != 1 || got.NP != np || rec.epochs[0].Epoch != 3 {
			t.Errorf("np %d: %+v after %d epochs", np, got, len(rec.epochs))
		}
		cfg.Checkpoint.Dir = onlyFile(t, filepath.Join(cfg.Checkpoint.Dir, "step-000000012.ringo"))
	}
}

// With another number of ranks what was kept is shared out: together the new
// ranks have what the old ones had, in proportion, and each again begins with
// exact selections.
func TestHeirs(t *testing.T) {
	cfg := small()
	cfg.TrainLimit = 192
	cfg.Exchange.Strategy, cfg.Exchange.Momentum, cfg.Momentum = distopt.DLGS, 0.5, 0
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir()}
	onRanks(t, 3, cfg)
	path, err := checkpoint.Latest(cfg.Checkpoint.Dir)
	if err != nil {
		t.Fatal(err)
	}
	old := readAll(t, path)
	cfg.Checkpoint.Resume = true
	for _, np := range []int{1, 2, 3, 5} {
		if testing.Short() && np%2 == 1 {
			continue // time
		}
		var mu sync.Mutex
		got := map[string][]float64{}
		err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
			r := newRun(context.Background(), job, cfg, nil)
			r.obs = new(recorder)
			defer r.close()
			if err := r.prepare(); err != nil {
				return err
			}
			if _, err := r.resumption.resume(); err != nil {
				return err
			}
			mu.Lock()
			for _, s := range r.replica.Opt.State() {
				if _, ok := got[s.Name]; !ok {
					got[s.Name] = make([]float64, len(s.Data))
				}
				for i, v := range s.Data {
					got[s.Name][i] += float64(v)
				}
			}
			mu.Unlock()
			return collective.Barrier(job.Group())
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, sum := range got {
			selection := strings.HasPrefix(name, "selection/")
			for i, v := range sum {
				want := 0.0
				for rank := range 3 {
					want += float64(old[checkpoint.RankName(rank, name)][i]) * float64(np) / 3
				}
				if selection && np != 3 {
					want = 0
				}
				if math.Abs(v-want) > 1e-5*(1+math.Abs(want)) {
					t.Fatalf("np %d: %s, value %d: %v in all, want %v", np, name, i, v, want)
				}
			}
		}
	}
}

// readAll is every array of numbers of a checkpoint.
func readAll(t *testing.T, path string) map[string][]float32 {
	t.Helper()
	f, err := checkpoint.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, arrays := map[string][]float32{}, []checkpoint.Array(nil)
	for _, a := range f.Arrays() {
		if a.Kind == "float32" {
			out[a.Name] = make([]float32, a.Len)
			arrays = append(arrays, checkpoint.Floats(a.Name, out[a.Name]))
		}
	}
	if err := f.Read(arrays...); err != nil {
		t.Fatal(err)
	}
	return out
}

// checkFails wants a run to fail with all of want.
func checkFails(t *testing.T, np int, cfg Config, want ...string) {
	t.Helper()
	err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
		_, err := observed(job, cfg, new(recorder))
		return err
	})
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v does not contain %q", err, w)
		}
	}
}

// A folder that cannot be written to is found before the first step; one that
// becomes so ends the run with an error.
func TestCheckpointCannotBeWritten(t *testing.T) {
	cfg := small()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	cfg.Checkpoint = Checkpoint{Dir: filepath.Join(file, "folder"), Every: 2}
	checkFails(t, 2, cfg, "preparing "+cfg.Checkpoint.Dir, "not a directory")
	cfg.Checkpoint.Dir = t.TempDir()
	inTheWay := filepath.Join(cfg.Checkpoint.Dir, "step-000000002.ringo", "x")
	if err := os.MkdirAll(inTheWay, 0o777); err != nil {
		t.Fatal(err)
	}
	checkFails(t, 2, cfg, "epoch 1", filepath.Dir(inTheWay))
}

// A folder is one run's, however ranks are started; when the run has ended, failed or not, it is free.
func TestFolderHeld(t *testing.T) {
	cfg := small()
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir()}
	hold, _, err := checkpoint.Take(cfg.Checkpoint.Dir, true)
	if err != nil {
		t.Fatal(err)
	}
	checkFails(t, 2, cfg, "another job saves to "+cfg.Checkpoint.Dir, fmt.Sprintf("process %d on host ", os.Getpid()))
	if err := hold.Release(); err != nil {
		t.Fatal(err)
	}
	failing := cfg
	failing.LR = 1e30
	checkFails(t, 2, failing, "has diverged")
	onRanks(t, 2, cfg)
	hold, _, err = checkpoint.Take(cfg.Checkpoint.Dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// A run cannot go on to fewer epochs than were begun, and is told how another number of
// ranks can go on in mid-epoch.
func TestResumeRefusesInMidEpoch(t *testing.T) {
	cfg := small()
	cfg.Epochs, cfg.Checkpoint = 2, Checkpoint{Dir: t.TempDir(), Every: 1, Keep: 1000}
	_, rec := onRanks(t, 1, cfg)
	files, err := filepath.Glob(filepath.Join(cfg.Checkpoint.Dir, "*.ringo"))
	if err != nil || len(files) != 2*rec.info.StepsPerEpoch {
		t.Fatalf("%d checkpoints, %v", len(files), err)
	}
	cfg.Checkpoint = Checkpoint{Dir: onlyFile(t, files[rec.info.StepsPerEpoch]), Resume: true}
	checkFails(t, 2, cfg, "job.ranks 2: the checkpoint has 1", "let 1 ranks finish epoch 2 first")
	cfg.Epochs = 1
	checkFails(t, 1, cfg, "after 1 epoch and 1 step, but this run has 1 epoch", "give it more epochs")
}

package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	keeper "github.com/ringo-ml/ringo/internal/server"
	kept "github.com/ringo-ml/ringo/ps/offline"
)

// begun makes servers those of a start that goes on from what an earlier one has saved, where there is something.
func begun(t *testing.T, dir string, start int) func(*keeper.Config) {
	t.Helper()
	if start == 1 {
		return func(c *keeper.Config) { c.Dir, c.Job = AttemptDir(dir, 1), JobName(1, 0) }
	}
	_, step, from, err := LastServerParts(dir)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *keeper.Config) {
		c.Dir, c.Job = AttemptDir(dir, start), JobName(start, step)
		c.From, c.FromNumbers, c.FromStep = AttemptDir(dir, from.Start), from.Numbers, uint64(step)
	}
}

// keptConfig is a run with heter-trainers that is saved in a folder of its own each so many steps.
func keptConfig(t *testing.T, keys []uint64, optimizer string, every int) Config {
	cfg := keyedConfig(keys)
	cfg.SetOptimizer(optimizer)
	cfg.Servers.Consistency, cfg.Servers.Start, cfg.Epochs = "bsp", 1, 2
	cfg.Heter = Heter{Count: 1, Micros: 1}
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: every, Keep: 100}
	return cfg
}

// dropAfter removes checkpoints after a step of the run.
func dropAfter(t *testing.T, dir string, step int) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.ringo"))
	for _, f := range files {
		if filepath.Base(f) > fmt.Sprintf("step-%09d.ringo", step) {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A run with heter-trainers goes on from its checkpoint, in the middle of an epoch, too, with the bits of one that never stopped; with
// other numbers of trainers and heter-trainers nearly so. What it has saved is evaluated in one piece, and another run, split or not, begins
// with it.
func TestHeterResume(t *testing.T) {
	set, keys := keyedSet(t)
	for _, optimizer := range []string{"adam", "sgd"} {
		if testing.Short() && optimizer != "adam" {
			continue // time
		}
		plain := keptConfig(t, keys, optimizer, 0)
		plain.Checkpoint, plain.Servers.Start = Checkpoint{}, 0
		want, whole := split(t, 1, plain, set, nil)
		clocks(whole.epochs)
		cfg := keptConfig(t, keys, optimizer, 12)
		got, rec := split(t, 1, cfg, set, begun(t, cfg.Checkpoint.Dir, 1))
		clocks(rec.epochs)
		checkSame(t, optimizer+", saving", got, rec.epochs, want, whole.epochs)
		checkUse(t, cfg, set, whole.epochs[1].EvalLoss)
		cfg.Checkpoint.Resume = true
		for i, step := range []int{36, 12} { // 25 steps are an epoch
			cfg.Servers.Start++
			dropAfter(t, cfg.Checkpoint.Dir, step)
			got, rec := split(t, 1, cfg, set, begun(t, cfg.Checkpoint.Dir, 2+i))
			clocks(rec.epochs)
			checkSame(t, fmt.Sprintf("%s, from step %d", optimizer, step), got, rec.epochs, want, whole.epochs)
		}
		dropAfter(t, cfg.Checkpoint.Dir, 12)
		again := cfg
		again.Servers.Start, again.Heter.Count, again.Heter.Micros = 4, 2, 3
		_, rec = split(t, 1, again, set, begun(t, cfg.Checkpoint.Dir, 4))
		if d := rec.epochs[len(rec.epochs)-1].EvalLoss - whole.epochs[1].EvalLoss; math.Abs(d) > 1e-5 {
			t.Errorf("%s: gone on with 2 heter-trainers, the loss is %v off", optimizer, d)
		}
	}
}

// clocks makes what clocks say of waiting for others zero.
func clocks(epochs []Epoch) {
	for i := range epochs {
		epochs[i].PullWaitMS, epochs[i].Stages = 0, nil
	}
}

// checkUse evaluates what a run with heter-trainers has saved without servers, and with some, and begins others with it.
func checkUse(t *testing.T, cfg Config, set *data.Dataset, want float64) {
	t.Helper()
	recall := func(dir string, step uint64, numbers []uint64) (ServerCheckpoint, error) {
		return kept.At(dir, step, numbers)
	}
	alone := cfg
	alone.Servers, alone.Heter = Servers{OpenServerCheckpoint: recall}, Heter{Micros: 4}
	err := ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
		e, err := Evaluate(t.Context(), job, cfg.Model, set, alone)
		if err == nil && e.EvalLoss != want {
			t.Errorf("%v evaluated without servers, %v with them", e.EvalLoss, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, heters := range []int{0, 1} {
		next := cfg
		next.Checkpoint, next.Epochs, next.LR = Checkpoint{}, 1, 1e-12
		next.Heter, next.Start.From = Heter{Count: heters, Micros: 4}, cfg.Checkpoint.Dir
		next.Servers = Servers{Consistency: "bsp", Begin: true, OpenServerCheckpoint: recall}
		_, rec := split(t, 1, next, set, func(c *keeper.Config) { c.Begin = next.BeginRows })
		if e := rec.epochs[0]; math.Abs(e.EvalLoss-want) > 1e-6 {
			t.Errorf("begun with the weights, %d heter-trainers: the loss is %v, want %v", heters, e.EvalLoss, want)
		}
	}
}

// A checkpoint does not go on where another part of the parameters is the servers'.
func TestHeterResumeRefuses(t *testing.T) {
	set, keys := keyedSet(t)
	for count, micros := range []int{4, 1} {
		cfg := keptConfig(t, keys, "sgd", 0)
		cfg.Epochs, cfg.Heter = 1, Heter{Count: count, Micros: micros}
		split(t, 1, cfg, set, begun(t, cfg.Checkpoint.Dir, 1))
		cfg.Epochs, cfg.Checkpoint.Resume, cfg.Heter.Count = 2, true, 1-count
		head, err := openSaved(cfg.Checkpoint.Dir)
		if err != nil {
			t.Fatal(err)
		}
		err = cfg.sameSplit(head.File, head.file.Header)
		_ = head.file.Close()
		want := []string{"heter.count 1: ", "without heter-trainers or with stateless ones"}
		if count > 0 {
			want = []string{"heter.count 0: ", "of a run with 1 heter-trainers"}
		}
		if err == nil || slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(err.Error(), w) }) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Out of step a checkpoint is that of the model in one piece: a run goes on from it with heter-trainers and without, to the bit in geo with one
// rank. In bsp, where heter-trainers own the part, it does not.
func TestHeterModesResume(t *testing.T) {
	set, keys := keyedSet(t)
	cfg := keptConfig(t, keys, "adam", 0)
	cfg.Servers.Consistency, cfg.Servers.GeoSteps, cfg.Epochs = "geo", 4, 3
	plain := cfg
	plain.Checkpoint, plain.Servers.Start, plain.Heter = Checkpoint{}, 0, Heter{Micros: 4}
	_, whole := split(t, 1, plain, set, nil)
	for start, heters := range []int{1, 0, 1} {
		micros := map[int]int{0: 4, 1: 1} // 4 are the usual ones
		cfg.Epochs, cfg.Servers.Start, cfg.Heter, cfg.Checkpoint.Resume = start+1, start+1, Heter{Count: heters, Micros: micros[heters]}, start > 0
		_, rec := split(t, 1, cfg, set, begun(t, cfg.Checkpoint.Dir, start+1))
		if n := len(rec.epochs); n != 1 || rec.epochs[0].EvalLoss != whole.epochs[start].EvalLoss || rec.epochs[0].TrainLoss != whole.epochs[start].TrainLoss {
			t.Errorf("epoch %d with %d heter-trainers: %+v, want %+v", start+1, heters, rec.epochs, whole.epochs[start])
		}
	}
	head, err := openSaved(cfg.Checkpoint.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer head.file.Close()
	cfg.Servers.Consistency = "bsp"
	if err := cfg.sameSplit(head.File, head.file.Header); err == nil || !strings.Contains(err.Error(), "heter.count 1: ") || !strings.Contains(err.Error(), "with stateless ones") {
		t.Error(err)
	}
}

package train

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// breaker is an observer that breaks the job's group at one point of the run.
type breaker struct {
	silentObserver
	job   *ringo.Job
	phase string // of Progress, or "epoch"
	epoch int
	done  int
}

type silentObserver struct{}

func (silentObserver) Start(Info)        {}
func (silentObserver) Progress(Progress) {}
func (silentObserver) Step(Step)         {}
func (silentObserver) Epoch(Epoch)       {}
func (silentObserver) Remark(Remark)     {}

func (b *breaker) Step(Step) {}

func (b *breaker) Progress(p Progress) {
	if p.Phase == b.phase && p.Epoch == b.epoch && p.Done == b.done {
		_ = b.job.Group().Fail(os.ErrDeadlineExceeded)
	}
}

func (b *breaker) Epoch(e Epoch) {
	if b.phase == "epoch" && e.Epoch == b.epoch {
		_ = b.job.Group().Fail(os.ErrDeadlineExceeded)
	}
}

// Whatever a run does when its ranks lose each other, every rank's error says where it was.
func TestErrorsSayWhere(t *testing.T) {
	for _, c := range []struct {
		what  string
		at    breaker
		edit  func(*Config)
		doing string
		epoch int
		step  int // of the rank that breaks it
		place string
		text  string
	}{
		{"training", breaker{phase: "train", epoch: 2, done: 3}, nil, "", 2, 4, "in step 4 of epoch 2, bucket 0 (", "in step 4 of epoch 2: distopt: step 18, bucket 0 ("},
		{"partial update", breaker{phase: "train", epoch: 1, done: 3}, func(c *Config) { c.Exchange.Strategy = distopt.PartialUpdate }, "", 1, 4, "in step 4 of epoch 1, partition 3 of ", "in step 4 of epoch 1: distopt: step 3, partition 3 of "},
		{"sparse", breaker{phase: "train", epoch: 1, done: 2}, func(c *Config) { c.Exchange.Strategy = distopt.TopK }, "", 1, 3, "in step 3 of epoch 1, bucket 0 (", ""},
		{"evaluating", breaker{phase: "evaluate", epoch: 1, done: 2}, nil, "evaluating", 1, 15, "while evaluating after step 15 of epoch 1", "while evaluating after step 15 of epoch 1: "},
		{"saving after an epoch", breaker{phase: "epoch", epoch: 1}, func(c *Config) { c.Checkpoint = Checkpoint{Dir: t.TempDir()} }, "saving a checkpoint", 1, 15, "while saving a checkpoint after step 15 of epoch 1", ""},
		{"saving in mid-epoch", breaker{phase: "train", epoch: 1, done: 5}, func(c *Config) { c.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 5} }, "saving a checkpoint", 1, 5, "while saving a checkpoint after step 5 of epoch 1", ""},
		{"the end", breaker{phase: "epoch", epoch: 2}, nil, "comparing the replicas", 2, 15, "while comparing the replicas after step 15 of epoch 2", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			leakcheck.Check(t)
			cfg := small()
			cfg.Epochs = 2
			if c.edit != nil {
				c.edit(&cfg)
			}
			var errs [2]error
			err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
				obs := Observer(silentObserver{})
				if job.Rank() == 1 {
					at := c.at
					at.job, obs = job, &at
				}
				_, errs[job.Rank()] = observed(job, cfg, obs)
				_ = collective.Barrier(job.Group()) // fails: both are to have seen the fault itself
				return errs[job.Rank()]
			})
			checkWhere(t, err, c.doing, c.epoch, c.step)
			for rank, err := range errs {
				checkWhere(t, err, c.doing, c.epoch, c.step)
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("rank %d does not know why: %v", rank, err)
				}
			}
			if got := failure.PositionOf(errs[1]).String(); len(got) < len(c.place) || got[:len(c.place)] != c.place {
				t.Errorf("got place %q, want %q", got, c.place)
			}
			if got := errs[1].Error(); len(got) < len(c.text) || got[:len(c.text)] != c.text {
				t.Errorf("got %q, want %q", got, c.text)
			}
		})
	}
}

// checkWhere wants an error from there, or from just before: ranks are no more apart.
func checkWhere(t *testing.T, err error, doing string, epoch, step int) {
	t.Helper()
	var at *StepError
	if !errors.As(err, &at) {
		t.Errorf("no place in %v", err)
		return
	}
	same := at.Doing == doing && at.Step == step
	before := doing == "" && at.Step == step-1 || doing != "" && at.Step == step // another rank may be at the end of what came before
	if at.Epoch != epoch || !same && !before {
		t.Errorf("%+v, want %q in epoch %d, step %d", at, doing, epoch, step)
	}
	var inStep *distopt.Error
	if at.Doing == "" && (!errors.As(err, &inStep) || inStep.Buckets == 0) {
		t.Errorf("no bucket in %v", err)
	}
}

// What a run does before its first epoch says by itself what it is about.
func TestErrorsBeforeTheFirstEpoch(t *testing.T) {
	cfg := small()
	cfg.Data = "nowhere"
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		_, err := observed(job, cfg, silentObserver{})
		return err
	})
	var at *StepError
	if !errors.As(err, &at) || at.Epoch != 0 || at.Place().Where != "while loading the data" || at.Error() != at.Err.Error() {
		t.Errorf("got %+v: %v", at, err)
	}
	for want, e := range map[string]StepError{
		"": {}, "in step 4 of epoch 3": {Epoch: 3, Step: 4},
		"while resuming": {Doing: "resuming"}, "while evaluating after step 9 of epoch 3": {Doing: "evaluating", Epoch: 3, Step: 9},
	} {
		if got := e.Place().Where; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

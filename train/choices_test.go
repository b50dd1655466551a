package train

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/tune"
)

// slowed is a reducer whose exchanges take a time by their bytes, one after the other.
type slowed struct {
	exchange.Reducer
	perByte time.Duration
	busy    time.Time
	ends    map[*exchange.Request]time.Time
}

func (s *slowed) Start(op *exchange.Request) {
	bytes := 4 * len(op.X)
	if op.Code != nil {
		bytes = op.Code.Size(len(op.X))
	}
	if op.Sparse != nil {
		bytes = 8 * op.Sparse.Count()
	}
	if now := time.Now(); s.busy.Before(now) {
		s.busy = now
	}
	s.busy = s.busy.Add(s.perByte * time.Duration(bytes))
	s.ends[op] = s.busy
	s.Reducer.Start(op)
}

func (s *slowed) Wait(op *exchange.Request) (time.Time, error) {
	_, err := s.Reducer.Wait(op)
	time.Sleep(time.Until(s.ends[op]))
	return s.ends[op], err
}

// turning makes links faster when so many batches of a rank are done.
type turning struct {
	recorder
	links *slowed
	after int
}

func (t *turning) Step(Step) {}

func (t *turning) Progress(p Progress) {
	if t.after--; t.after == 0 {
		t.links.perByte = 0
	}
}

// onSlowed is onRanks in a bubble, whose links are slow for so many batches; 0: always.
func onSlowed(t *testing.T, n int, cfg Config, batches int) (sum Summary) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		err := ringo.Local(context.Background(), n, ringo.Config{}, func(job *ringo.Job) error {
			beside, err := job.Group().Dup()
			if err != nil {
				return err
			}
			defer beside.Close()
			inner, err := exchange.NewGroupReducer(beside, exchange.Config{})
			if err != nil {
				return err
			}
			defer inner.Close()
			links := &slowed{Reducer: inner, perByte: time.Microsecond, ends: map[*exchange.Request]time.Time{}}
			own := cfg
			own.Exchange.Reducer = links
			s, err := observed(job, own, &turning{links: links, after: batches})
			mu.Lock()
			defer mu.Unlock()
			if job.Rank() == 0 {
				sum = s
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return sum
}

// What runs chose by times that are known, others do again with the same bits where nothing is measured and no time is the
// same: a strategy that reuses thresholds, over several buckets, selected from anew, and left when links became faster.
func TestChoicesAreDoneAgain(t *testing.T) {
	auto := distopt.Config{Strategy: tune.Auto, Spars: 0.05, Every: 7, Plan: distopt.PlanOne}
	paper, buckets := auto, distopt.Config{Strategy: distopt.DLGS, Spars: 0.05, Every: 7, Plan: "mgwfbp"}
	paper.Rule, paper.Accumulation = compress.RulePaper, 2
	for seed, c := range []struct {
		np, steps int
		exchange  distopt.Config
		want      string
	}{
		{2, 240, auto, "12:dlgs/one=4; 15:reselect; 116:fp32/one=4"},
		{3, 240, auto, "12:dlgs/one=4; 15:reselect; 116:fp32/one=4"},
		{3, 240, paper, "12:dlgs/one=4; 15:reselect; 116:fp32/one=4"},
		{2, 240, buckets, "0:one=4; 12:mgwfbp=1,3; 15:reselect; 116:mgwfbp=4; 119:reselect"},
		{3, 60, buckets, "0:one=4; 12:mgwfbp=1,3; 15:reselect"},
	} {
		if testing.Short() && seed != 3 {
			continue
		}
		cfg := small()
		cfg.Seed, cfg.Batch, cfg.Epochs, cfg.Exchange = uint64(seed), 4, 2, c.exchange
		cfg.TrainLimit = 4 * c.np * c.steps / 2 * max(1, c.exchange.Accumulation)
		cfg.Tuning.Measure = true
		first := onSlowed(t, c.np, cfg, 40)
		if text := first.Choices.String(); text != c.want {
			t.Errorf("seed %d: chose %s, want %s", seed, text, c.want)
		}
		cfg.Tuning = Tuning{Choices: first.Choices}
		again, rec := onRanks(t, c.np, cfg)
		checkSameRun(t, fmt.Sprintf("seed %d", seed), again, first)
		if rec.epochs[0].TuneS > 0 {
			t.Errorf("it was measured: %+v", rec.epochs)
		}
	}
}

func checkSameRun(t *testing.T, what string, got, want Summary) {
	t.Helper()
	if got.ParamsSHA256 != want.ParamsSHA256 || got.PlanSHA256 != want.PlanSHA256 || got.Plan != want.Plan || got.Strategy != want.Strategy || got.Choices.String() != want.Choices.String() {
		t.Errorf("%s: parameters %s, %s in plan %s %s by %s: want %s, %s in plan %s %s by %s", what,
			got.ParamsSHA256, got.Strategy, got.Plan, got.PlanSHA256, got.Choices, want.ParamsSHA256, want.Strategy, want.Plan, want.PlanSHA256, want.Choices)
	}
}

// onTuned is rank 0's summary where its group has the rules that tuned makes, which it returns.
func onTuned(t *testing.T, n int, cfg Config, own ringo.Config, tuned func(g *collective.Group) (collective.Profile, error)) (sum Summary, rules collective.Rules) {
	t.Helper()
	var mu sync.Mutex
	err := ringo.Local(context.Background(), n, own, func(job *ringo.Job) error {
		p, err := tuned(job.Group())
		if err == nil && p.Ranks > 0 {
			err = job.Group().Use(p)
		}
		if err != nil {
			return err
		}
		s, err := observed(job, cfg, new(recorder))
		mu.Lock()
		defer mu.Unlock()
		if job.Rank() == 0 {
			sum, rules = s, job.Group().Rules()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum, rules
}

// What a run measured of its links and of its steps, and what it chose by that, is told in two settings, with which another
// has the same bits.
func TestTunedRunIsDoneAgain(t *testing.T) {
	byHand := func(g *collective.Group) (collective.Profile, error) {
		return collective.Profile{Ranks: g.Size(), Hosts: g.Hosts(), Rules: collective.Rules{{Operation: "allreduce", Algorithm: collective.Ring}}}, nil
	}
	not := func(*collective.Group) (collective.Profile, error) { return collective.Profile{}, nil }
	auto := distopt.Config{Strategy: tune.Auto, Spars: 0.1}
	exact := distopt.Config{Plan: "exact", ClipNorm: 1}
	dlgs := distopt.Config{Strategy: distopt.DLGS, Spars: 0.1, Every: 5, Plan: "dlgs-scan"}
	for i, c := range []struct {
		exchange distopt.Config
		np       int
		tuned    func(*collective.Group) (collective.Profile, error)
		real     bool // time passes, of which the rest is a bubble's
	}{
		{exact, 2, collective.Tune, true}, {dlgs, 3, collective.Tune, true},
		{auto, 2, collective.Tune, false}, {auto, 3, collective.Tune, false}, {auto, 3, byHand, false},
		{exact, 3, byHand, false}, {dlgs, 2, byHand, false},
	} {
		if testing.Short() && i != 1 && i != 5 {
			continue
		}
		cfg := small()
		cfg.Exchange, cfg.Tuning.Measure, cfg.TrainLimit, cfg.Epochs, cfg.Seed = c.exchange, true, 16*c.np*20, 2, uint64(i)
		var first Summary
		var rules collective.Rules
		run := func(t *testing.T) { first, rules = onTuned(t, c.np, cfg, ringo.Config{}, c.tuned) }
		if c.real {
			run(t)
		} else {
			synctest.Test(t, run)
		}
		if len(rules) == 0 || len(first.Choices) == 0 {
			t.Fatalf("rules %s, choices %s", rules, first.Choices)
		}
		cfg.Tuning = Tuning{Choices: first.Choices}
		var again collective.Rules
		if err := again.UnmarshalText([]byte(rules.String())); err != nil {
			t.Fatal(err)
		}
		got, _ := onTuned(t, c.np, cfg, ringo.Config{Collective: collective.Config{Rules: again}}, not)
		checkSameRun(t, fmt.Sprint("case ", i), got, first)
		if other, _ := onTuned(t, c.np, cfg, ringo.Config{}, not); i == 5 && other.ParamsSHA256 == first.ParamsSHA256 {
			t.Error("without the rules the bits are the same: the test shows nothing")
		}
	}
}

// A run with given choices that is cut in two, before or after any of them, goes on with those that are left, and one with
// others is refused.
func TestChoicesAreResumed(t *testing.T) {
	cfg := small()
	cfg.Exchange, cfg.Epochs = distopt.Config{Strategy: tune.Auto, Spars: 0.1, Every: 5}, 4
	if err := cfg.Tuning.Choices.UnmarshalText([]byte("0:one=4; 5:dlgs/exact=1,1,2; 8:reselect; 15:fp16/exact=2,2; 40:dlgs/exact=2,2")); err != nil {
		t.Fatal(err)
	}
	want, _ := onRanks(t, 3, cfg) // 10 steps an epoch
	for _, epochs := range []int{1, 2, 3} {
		cut := cfg
		cut.Checkpoint.Dir, cut.Epochs = t.TempDir(), epochs
		onRanks(t, 3, cut)
		cut.Checkpoint.Resume, cut.Epochs = true, cfg.Epochs
		got, _ := onRanks(t, 3, cut)
		checkSameRun(t, fmt.Sprint("resumed after epoch ", epochs), got, want)
		cut.Tuning.Choices = cut.Tuning.Choices[:3]
		err := ringo.Local(context.Background(), 3, ringo.Config{}, func(job *ringo.Job) error {
			_, err := observed(job, cut, new(recorder))
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "tuning.choices") {
			t.Errorf("other choices: %v", err)
		}
	}
}

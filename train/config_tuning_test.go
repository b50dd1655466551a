package train

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/tune"
)

// told is what rank 0 was told of choices.
type told struct {
	mu      sync.Mutex
	reports []tune.Report
	profile *bucket.Profile
}

func (o *told) on(cfg Config) Config {
	cfg.Tuning.Report = func(r tune.Report) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.reports = append(o.reports, r)
	}
	cfg.Tuning.Save = func(f bucket.Profile) error {
		o.profile = &f
		return f.Validate()
	}
	return cfg
}

// choices are the reports that steps have not been measured for yet.
func (o *told) choices() (out []tune.Report) {
	for _, r := range o.reports {
		if r.Measured == nil {
			out = append(out, r)
		}
	}
	return out
}

// Auto trains on while it measures, and all ranks go on with one choice. A checkpoint
// keeps it, unless the run that goes on is told to measure.
func TestAuto(t *testing.T) {
	dir := t.TempDir()
	cfg := small()
	cfg.Exchange.Strategy, cfg.Exchange.Spars = tune.Auto, 0.1
	cfg.Epochs, cfg.Checkpoint.Dir = 2, dir
	var first told
	s, seen := onRanks(t, 2, first.on(cfg))
	if e := seen.epochs[0]; e.TuneS <= 0 || e.StepMS > 1.5*(e.ComputeMS+e.CompressMS+e.ExposedCommMS+e.UpdateMS) {
		t.Errorf("measuring took %v s, a step %v ms, its parts %+v", e.TuneS, e.StepMS, e.BreakDown)
	}
	chosen := first.choices()
	if len(chosen) == 0 || s.PlanSHA256 == "" || !slices.Contains(tune.AutoStrategies(), distopt.Strategy(s.Strategy)) {
		t.Fatalf("chose %+v, trained with %s", chosen, s.Strategy)
	}
	last := chosen[len(chosen)-1]
	if last.Chosen.Strategy != s.Strategy || last.SHA256 != s.PlanSHA256 || first.profile == nil || first.profile.Plan.SHA256 != s.PlanSHA256 || first.profile.Model != "mlp" {
		t.Errorf("chose %+v, trained with %+v", last, s)
	}
	cfg.Checkpoint.Resume, cfg.Epochs = true, 3
	var again told
	if more, rec := onRanks(t, 2, again.on(cfg)); more.Strategy != s.Strategy || more.PlanSHA256 != s.PlanSHA256 || rec.info.Strategy != s.Strategy {
		t.Errorf("resumed with %s, plan %s, want %s, %s", more.Strategy, more.PlanSHA256, s.Strategy, s.PlanSHA256)
	}
	if len(again.reports) != 1 || !strings.Contains(again.reports[0].Reason, "checkpoint") {
		t.Errorf("resumed: %+v", again.reports)
	}
	cfg.Tuning.Measure, cfg.Epochs = true, 4
	var anew told
	onRanks(t, 2, anew.on(cfg))
	if c := anew.choices(); len(c) == 0 || len(c[0].All) != 5 {
		t.Errorf("told to measure: %+v", anew.reports)
	}
}

// A plan that was measured gives the same bits again by its profile, and so does one
// that a checkpoint keeps, without either.
func TestMeasuredPlan(t *testing.T) {
	cfg := small()
	cfg.Exchange = distopt.Config{Strategy: distopt.DLGS, Spars: 0.1, Plan: "exact"}
	cfg.Tuning.Measure, cfg.Epochs = true, 2
	var first told
	s, _ := onRanks(t, 2, first.on(cfg))
	if first.profile == nil || s.Plan != "exact" || s.PlanSHA256 != first.profile.Plan.SHA256 {
		t.Fatalf("%+v, %+v", s, first.reports)
	}
	cfg.Tuning = Tuning{Profile: first.profile}
	cfg.Checkpoint.Dir = t.TempDir()
	one, _ := onRanks(t, 2, cfg)
	cfg.Checkpoint.Dir = ""
	if two, _ := onRanks(t, 2, cfg); one.ParamsSHA256 != two.ParamsSHA256 || one.PlanSHA256 != s.PlanSHA256 {
		t.Errorf("by one profile %s and %s, plan %s, want %s", one.ParamsSHA256, two.ParamsSHA256, one.PlanSHA256, s.PlanSHA256)
	}
	cfg.Exchange.Plan = tune.SavedPlan
	if saved, _ := onRanks(t, 2, cfg); saved.ParamsSHA256 != one.ParamsSHA256 || saved.Plan != tune.SavedPlan {
		t.Errorf("by the saved plan %s, want %s", saved.ParamsSHA256, one.ParamsSHA256)
	}
}

// Settings that need a source, or do nothing, are refused before anything is read.
func TestTuningFaults(t *testing.T) {
	cfg := small()
	cfg.Exchange.Plan = "exact"
	checkInvalid(t, cfg, "tuning.profile", "tuning.tune")
	cfg.Tuning.Profile = &bucket.Profile{Model: "vgg16", Ranks: 1, Layers: []bucket.LayerProfile{{Name: "a", Values: 1}}}
	checkInvalid(t, cfg, `tuning.profile was measured with model "vgg16", not with mlp`)
	cfg = small()
	cfg.Exchange.Strategy, cfg.WarmupDensity = tune.Auto, []float64{0.5}
	checkInvalid(t, cfg, "exchange.warmup-density has no effect")
	cfg = small()
	cfg.Exchange.Plan, cfg.Checkpoint = "exact", Checkpoint{Dir: t.TempDir(), Resume: true}
	if err := cfg.Validate(); err != nil {
		t.Errorf("a plan may be in the checkpoint: %v", err)
	}
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		_, err := observed(job, cfg, new(recorder))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "the checkpoint has no choice of strategy and plan to go on with") {
		t.Errorf("no checkpoint: %v", err)
	}
}

func checkInvalid(t *testing.T, cfg Config, want ...string) {
	t.Helper()
	err := cfg.Validate()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not hold %q", err, w)
		}
	}
}

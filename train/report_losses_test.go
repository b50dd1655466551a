package train

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/models"
)

// Losses of real trainings: those that blew up are remarked on, and no other, such as of models that have learnt few samples by
// heart, or whose loss rises at first.
func TestBlowsUp(t *testing.T) {
	for _, c := range []struct {
		what                      string
		start, training, evaluate float64
		want                      string
	}{
		{"resnet50, 14 steps of batch 2 at 0.1", 4.51, 87.1, 1.41e15, "the losses of training, 87.1, and of evaluation, 1.41e15, are far over that of the first step, 4.51"},
		{"mlp at a rate of 5", 2.31, 444, 1.3e4, "the losses of training, 444, and of evaluation, 1.3e4"},
		{"resnet20 at batch 8, which rises at first", 2.5, 3.31, 5.1, ""},
		{"mnist", 2.31, 2.3, 2.3, ""},
		{"mlp at a rate of 1, which learns nothing", 2.31, 2.79, 2.9, ""},
		{"ctr-dnn, 30 epochs over 500 samples", 0.69, 1e-5, 2.0753, ""},
		{"gpt-mini", 5.55, 4.43, 3.58, ""},
		{"training alone", 2, 6.1, 2, "the training loss, 6.1, is far"},
		{"evaluation alone", 2, 2, 20.1, "the evaluation loss, 20.1, is far"},
		{"not a number", 2, 2, math.NaN(), "the evaluation loss, NaN, is far"},
		{"infinite", 2, math.Inf(1), 2, "the training loss, +Inf, is far"},
		{"a lucky start", 1e-6, 0.2, 0.9, ""},
		{"an unknown start", 0, 1e9, 1e9, ""},
	} {
		if got := diverges(c.start, c.training, c.evaluate); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// A diverging run has one remark and a reason in its summary, under both names in JSON; another run
// has neither.
func TestSummaryReportsDivergence(t *testing.T) {
	cfg := small()
	cfg.Epochs, cfg.TrainLimit = 2, 96
	if sum, rec := onRanks(t, 2, cfg); sum.Diverged != "" || len(rec.remarks) != 0 {
		t.Errorf("%q, %v", sum.Diverged, rec.remarks)
	}
	cfg.LR, cfg.Epochs = 4, 1
	sum, rec := onRanks(t, 2, cfg)
	if len(rec.remarks) != 1 || !strings.Contains(sum.Diverged, "training diverges") || !strings.Contains(sum.Diverged, "lower the learning rate (4)") {
		t.Fatalf("%q, %v of %+v", sum.Diverged, rec.remarks, rec.epochs)
	}
	sum.DiskFullCheckpoints = 2
	text, err := json.Marshal(sum)
	for _, field := range []string{`"diverged":"the training loss, `, `"blown_up":"the training loss, `, `"checkpoints_disk_full":2`, `"checkpoints_without_room":2`} {
		if err != nil || strings.Count(string(text), field) != 1 {
			t.Errorf("%v: %d of %s in %s", err, strings.Count(string(text), field), field, text)
		}
	}
}

// A usual rate says for which batch it is, and linear scaling gives that of another, of sgd; a user's own says nothing.
func TestUsualRate(t *testing.T) {
	for _, c := range []struct {
		batch     int
		optimizer string
		want      string
	}{
		{256, "sgd", "usual for a global batch of 256"}, {2, "sgd", "usual for a global batch of 256, here 2: linear scaling gives 0.000781"},
		{512, "sgd", "usual for a global batch of 256, here 512: linear scaling gives 0.2"}, {2, "adamw", "usual for a global batch of 256, here 2"},
	} {
		if got := (UsualRate{LR: 0.1, Batch: 256}).Advice(c.batch, c.optimizer); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := (UsualRate{}).Advice(7, "sgd"); got != "" {
		t.Errorf("of a rate of one's own: %q", got)
	}
	for _, s := range models.All() {
		if s.Defaults.GlobalBatch < s.Defaults.Batch {
			t.Errorf("%s: a rate for a global batch of %d, with batches of %d", s.Name, s.Defaults.GlobalBatch, s.Defaults.Batch)
		}
	}
	cfg := small()
	if _, rec := onRanks(t, 2, cfg); rec.info.UsualRate != (UsualRate{LR: 0.005, Batch: 64}) || rec.info.GlobalBatch != 32 {
		t.Errorf("%+v, %d", rec.info.UsualRate, rec.info.GlobalBatch)
	}
	cfg.LR = 0.006
	if _, rec := onRanks(t, 1, cfg); rec.info.UsualRate != (UsualRate{}) {
		t.Errorf("%+v", rec.info.UsualRate)
	}
}

// A rate that is left to the model is scaled to the global batch, with a warm-up where it rises;
// one that is given is kept.
func TestModelsRateIsScaled(t *testing.T) {
	as := func(*Config) {}
	for _, c := range []struct {
		what   string
		ranks  int
		change func(*Config)
		lr     float64
		warmup float64
	}{
		{"a small batch", 2, as, 0.005 * 32 / 64, 0},
		{"the model's batch", 4, as, 0.005, 0},
		{"a large batch", 8, as, 0.01, 1},
		{"many epochs", 8, func(c *Config) { c.Epochs = 90 }, 0.01, 5},
		{"a warm-up", 8, func(c *Config) { c.Warmup.Epochs = 3 }, 0.01, 3},
		{"accumulated batches", 2, func(c *Config) { c.Exchange.Accumulation = 4 }, 0.01, 1},
		{"servers in step", 8, func(c *Config) { c.Servers.Consistency = "bsp" }, 0.01, 1},
		{"servers not in step", 8, func(c *Config) { c.Servers.Consistency = "async" }, 0.005 * 16 / 64, 0},
		{"a rate that was given", 8, func(c *Config) { c.LR = 0.3 }, 0.3, 0},
		{"the model's rate, given", 8, func(c *Config) { c.ScaleLR = false }, 0.005, 0},
		{"another optimizer", 8, func(c *Config) { c.SetOptimizer("adam") }, 0.001, 0},
	} {
		cfg := Defaults(zoo("mlp"), data.Synthetic)
		cfg.Batch, cfg.ScaleLR = 16, true
		c.change(&cfg)
		got := cfg.settled(c.ranks)
		if got.LR != c.lr || got.Warmup.Epochs != c.warmup {
			t.Errorf("%s: rate %v, warm-up %v epochs: want %v, %v", c.what, got.LR, got.Warmup.Epochs, c.lr, c.warmup)
		}
		if again := got.settled(c.ranks); again.LR != got.LR {
			t.Errorf("%s: settled again: %v", c.what, again.LR)
		}
	}
	if got := (Config{Model: zoo("resnet50"), Batch: 2}).settled(1); got.LR != 0.1*2/256 {
		t.Errorf("of a program: %v", got.LR)
	}
	if got := (UsualRate{LR: 0.1, Batch: 256, Scaled: true}).Advice(2, "sgd"); got != "0.1 for a global batch of 256, scaled to 2" {
		t.Errorf("%q", got)
	}
}

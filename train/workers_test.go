package train

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/setting"
)

// workersRuns are runs with each kind of state that a virtual worker has.
func workersRuns() map[string]Config {
	out := map[string]Config{}
	for name, c := range resumable() {
		switch name {
		case "momentum", "adamw", "accumulation", "schedule", "lstm", "norm", "average", "topk", "dgc", "dlgs":
			c.Workers = 8
			out[name] = c
		}
	}
	return out
}

// workersOn is onRanks, without the bytes and the density of a rank's steps, which depend on the
// number of ranks.
func workersOn(t *testing.T, np int, cfg Config) (Summary, []Epoch) {
	t.Helper()
	sum, rec := onRanks(t, np, cfg)
	return sum, sameOnAnyRanks(rec.epochs)
}

func sameOnAnyRanks(epochs []Epoch) []Epoch {
	for i := range epochs {
		epochs[i].StepBytesSent, epochs[i].Density = 0, 0
	}
	return epochs
}

// A run of virtual workers has the same bits and metrics for any number of ranks, also if the
// number changes at a checkpoint.
func TestWorkersOnAnyNumberOfRanks(t *testing.T) {
	for name, cfg := range workersRuns() {
		if testing.Short() && name != "norm" && name != "lstm" && name != "dlgs" {
			continue // the others have what these have
		}
		want, whole := workersOn(t, 1, cfg)
		for _, np := range []int{3, 5, 8} {
			got, rec := workersOn(t, np, cfg)
			checkSame(t, fmt.Sprintf("%s, np %d", name, np), got, rec, want, whole)
		}
		saving := cfg
		saving.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 1, Keep: 1000}
		onRanks(t, 3, saving)
		files, _ := filepath.Glob(filepath.Join(saving.Checkpoint.Dir, "*.ringo"))
		if len(files) < 3 {
			t.Fatalf("%s: %d checkpoints", name, len(files))
		}
		for i, file := range files {
			again := saving
			again.Checkpoint.Dir, again.Checkpoint.Resume = onlyFile(t, file), true
			np := []int{5, 1, 8, 2}[i%4]
			got, rec := workersOn(t, np, again)
			checkSame(t, fmt.Sprintf("%s, from %s of 3 ranks on %d", name, filepath.Base(file), np), got, rec, want, whole)
		}
	}
}

// Two virtual workers are two ranks, with all bits: the twin is a run without virtual workers.
func TestTwoWorkersAreTwoRanks(t *testing.T) {
	for name, cfg := range workersRuns() {
		cfg.Workers = 0
		want, whole := workersOn(t, 2, cfg)
		cfg.Workers = 2
		for np := 1; np <= 2; np++ {
			got, rec := workersOn(t, np, cfg)
			checkSame(t, fmt.Sprintf("%s, np %d", name, np), got, rec, want, whole)
		}
	}
}

// Settings that virtual workers do not support are refused by name.
func TestWorkersRefuse(t *testing.T) {
	for path, change := range map[setting.Path]func(*Config){
		"job.workers":         func(c *Config) { c.Workers = -1 },
		"sync":                func(c *Config) { c.Servers.Consistency = "bsp" },
		"heter.count":         func(c *Config) { c.Heter.Count = 1 },
		"exchange.strategy":   func(c *Config) { c.Exchange.Strategy = distopt.FP16 },
		"training.non-finite": func(c *Config) { c.Exchange.NonFinite = "skip" },
		"data.partition":      func(c *Config) { c.Partition = PartitionFixed },
		"data.stream":         func(c *Config) { c.Stream = true },
		"training.precision":  func(c *Config) { c.Precision = auto },
	} {
		cfg := small()
		cfg.Workers = 4
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), string(path)) || !strings.Contains(err.Error(), "job.workers") {
			t.Errorf("%s: %v", path, err)
		}
	}
	click := custom(tinyClick())
	click.Workers = 4
	if err := click.Validate(); err == nil || !strings.Contains(err.Error(), "rows of tables") {
		t.Errorf("tables: %v", err)
	}
	few := small()
	few.Workers = 2
	err := ringo.Local(context.Background(), 3, ringo.Config{}, func(job *ringo.Job) error {
		_, err := Run(context.Background(), job, few.Model, nil, few)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "job.workers 2 for 3 ranks: want at least one worker per rank") {
		t.Errorf("2 workers on 3 ranks: %v", err)
	}
}

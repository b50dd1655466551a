package train

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/setting"
)

// agreeOn is agreeConfig of two ranks, the second with another configuration.
func agreeOn(t *testing.T, one, two Config) error {
	t.Helper()
	return ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) (err error) {
		cfg := one
		if job.Rank() == 1 {
			cfg = two
		}
		return newRun(context.Background(), job, cfg, nil).agreeConfig()
	})
}

// Every row that all processes must have alike is refused on ranks that have it otherwise, with both values and the rank;
// those of a process are not.
func TestRanksAgreeOnEveryRow(t *testing.T) {
	usual, odd := Defaults(zoo("mlp"), data.Synthetic), other()
	theirs := rowsOf(t, &odd)
	for _, row := range usual.Settings() {
		two := Defaults(zoo("mlp"), data.Synthetic)
		text, _ := theirs.Get(row.Path)
		if err := rowsOf(t, &two).Apply(setting.Assignment{Path: row.Path, Text: text}).Err(); err != nil {
			t.Fatal(err)
		}
		err := agreeOn(t, usual, two)
		want := fmt.Sprintf("%s %s on rank 1 and %s on rank 0", row.Path, text, shown(row.Value.String()))
		local := row.Scope == setting.PerProcess && !slices.Contains([]setting.Path{"checkpoint.dir", "checkpoint.resume", "training.init-from"}, row.Path)
		if local != (err == nil) {
			t.Errorf("%s: %v", row.Path, err)
		} else if row.Scope != setting.PerProcess && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What is compared besides the rows.
func TestRanksAgree(t *testing.T) {
	usual := Defaults(zoo("mlp"), data.Synthetic)
	chain, err := compress.NewChain(compress.Int8{})
	if err != nil {
		t.Fatal(err)
	}
	for want, edit := range map[string]func(*Config){
		"":                                       func(c *Config) { c.Threads = 7 },
		"model lstm on rank 1 and mlp on rank 0": func(c *Config) { c.Model = zoo("lstm") },
		"chain int8 on rank 1 and none on rank 0":                                                func(c *Config) { c.Exchange.Chain = chain },
		"sync geo on rank 1 and allreduce on rank":                                               func(c *Config) { c.Servers.Consistency = "geo" },
		"tuning.tune true on rank 1 and false":                                                   func(c *Config) { c.Tuning.Measure = true },
		"tuning.profile of sha256 ":                                                              func(c *Config) { c.Tuning.Profile = new(bucket.Profile) },
		"--worst 3 on rank 1 and 0 on rank 0":                                                    func(c *Config) { c.Worst = 3 },
		"--importance 5 on rank 1 and 0 on rank 0":                                               func(c *Config) { c.Importance = 5 },
		"--by \"day\" on rank 1 and \"\" on rank 0":                                              func(c *Config) { c.By = "day" },
		"training.folds 4 on rank 1 and 0 on rank 0":                                             func(c *Config) { c.folds = 4 },
		"training.seeds 3 on rank 1 and 1 on rank 0":                                             func(c *Config) { c.seeds = 3 },
		"output.trace a file on rank 1 and none":                                                 func(c *Config) { c.Traced = true },
		"training.batch 3 on rank 1 and 64 on rank 0\ntraining.seed 9 on rank 1 and 1 on rank 0": func(c *Config) { c.Batch, c.Seed = 3, 9 },
	} {
		two := usual
		edit(&two)
		if err := agreeOn(t, usual, two); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

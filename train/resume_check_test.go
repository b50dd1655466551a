package train

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/optim/schedule"
)

// A run may go on with another rate, schedule and number of epochs, which it tells; from there on it is a run of its own,
// the same each time.
func TestResumeWithOtherRates(t *testing.T) {
	cfg := small()
	cfg.TrainLimit, cfg.Epochs = 192, 2
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Every: 4, Keep: 1000}
	first, _ := onRanks(t, 2, cfg)
	file := filepath.Join(cfg.Checkpoint.Dir, "step-000000004.ringo")
	for _, c := range []struct {
		edit func(*Config)
		want string
	}{
		{func(c *Config) {}, "[]"},
		{func(c *Config) { c.LR = 0.25 }, "[training.lr 0.25 instead of 0.005]"},
		{func(c *Config) { c.Epochs = 3; c.Drops = []schedule.Drop{{Epoch: 1, LR: 0.001}} }, "[training.epochs 3 instead of 2 training.lr-schedule 1:0.001 instead of none]"},
		{func(c *Config) { c.Cosine, c.Floor, c.Warmup = true, 0.001, schedule.Warmup{Steps: 2} }, "[training.lr-schedule cosine:0.001 instead of none training.warmup 2 steps instead of 0 steps]"},
	} {
		again := cfg
		c.edit(&again)
		var sums []string
		for range 2 {
			again.Checkpoint.Dir, again.Checkpoint.Resume = onlyFile(t, file), true
			got, rec := onRanks(t, 2, again)
			sums = append(sums, got.ParamsSHA256)
			if fmt.Sprint(rec.info.Changed) != c.want {
				t.Errorf("it tells %q, want %s", rec.info.Changed, c.want)
			}
			if rate := again.schedule().At(3*rec.info.StepsPerEpoch-1, rec.info.StepsPerEpoch, again.Epochs); len(rec.epochs) != again.Epochs || again.Epochs == 3 && rec.epochs[2].LR != rate {
				t.Errorf("%s: epochs %+v, want %d, the third at %v", c.want, rec.epochs, again.Epochs, rate)
			}
		}
		if sums[0] != sums[1] || (sums[0] == first.ParamsSHA256) != (c.want == "[]") {
			t.Errorf("%s: sha256 %v, of the first run %s", c.want, sums, first.ParamsSHA256)
		}
	}
}

// A checkpoint keeps what its program was told, and all of what cannot change is named.
func TestPrevious(t *testing.T) {
	cfg := small()
	cfg.TrainLimit = 96
	cfg.Checkpoint = Checkpoint{Dir: t.TempDir(), Assignments: []setting.Assignment{{Path: "training.batch", Text: "16", Origin: "--batch"}, {Path: "ps.durability", Text: "wal"}}}
	if p, err := FindPrevious(cfg.Checkpoint.Dir); err != nil || p.File != "" || p.CheckChanges(setting.Values{"training.batch": "3"}) != nil {
		t.Errorf("no checkpoint: %+v, %v", p, err)
	}
	onRanks(t, 2, cfg)
	p, err := FindPrevious(cfg.Checkpoint.Dir)
	if err != nil || !slices.Equal(p.Assignments, cfg.Checkpoint.Assignments) || filepath.Base(p.File) != "step-000000003.ringo" {
		t.Fatalf("%+v, %v", p, err)
	}
	same := rowsOf(t, &cfg).Values(setting.JobFixed)
	maps.Copy(same, setting.Values{"model": "mlp", "sync": "allreduce", "job.ranks": "7", "job.collective-algorithm": "auto", "ps.admission": "count:3"}) // ranks may come and go, and the last is not of the run
	if err := p.CheckChanges(same); err != nil {
		t.Error(err)
	}
	for path, text := range same {
		now := maps.Clone(same)
		now[path] = "another"
		err, known := p.CheckChanges(now), path != "job.ranks" && path != "ps.admission"
		want := fmt.Sprintf("%s another: the checkpoint has %s; remove these settings, or choose another folder", path, shown(text))
		if (err != nil) != known || known && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), p.File)) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := checkpoint.Save(cfg.Checkpoint.Dir, checkpoint.State{Header: checkpoint.Header{Step: 99, More: map[string]string{moreAssignments: "["}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := FindPrevious(cfg.Checkpoint.Dir); err == nil || !strings.Contains(err.Error(), "the settings of the run cannot be read") {
		t.Error(err)
	}
	if err := os.Truncate(checkpoint.PathOf(cfg.Checkpoint.Dir, 99), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := FindPrevious(cfg.Checkpoint.Dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
}

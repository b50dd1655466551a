package train

import (
	"fmt"
	"testing"
)

// TestHeterRepeats: equal runs have the same bits, for any numbers of ranks, heter-trainers and
// micro-batches, and so does a run that resumes.
func TestHeterRepeats(t *testing.T) {
	set, keys := keyedSet(t)
	for _, c := range []struct {
		optimizer     string
		ranks, heters int
	}{{"adagrad", 1, 2}, {"adagrad", 2, 1}, {"adam", 2, 2}, {"adagrad", 2, 3}, {"adagrad", 4, 3}} {
		if testing.Short() && c.ranks != 2 {
			continue // time
		}
		what := fmt.Sprintf("%s, np %d, heter %d", c.optimizer, c.ranks, c.heters)
		every := 16 / c.ranks // three checkpoints, the first within an epoch
		cfg := keptConfig(t, keys, c.optimizer, every)
		cfg.Heter = Heter{Count: c.heters, Micros: 3}
		want, whole := split(t, c.ranks, cfg, set, begun(t, cfg.Checkpoint.Dir, 1))
		clocks(whole.epochs)
		plain := cfg
		plain.Checkpoint, plain.Servers.Start = Checkpoint{}, 0
		got, rec := split(t, c.ranks, plain, set, nil)
		clocks(rec.epochs)
		checkSame(t, what, got, rec.epochs, want, whole.epochs)
		cfg.Checkpoint.Resume, cfg.Servers.Start = true, 2
		dropAfter(t, cfg.Checkpoint.Dir, every)
		got, rec = split(t, c.ranks, cfg, set, begun(t, cfg.Checkpoint.Dir, 2))
		clocks(rec.epochs)
		checkSame(t, what+", resumed", got, rec.epochs, want, whole.epochs)
	}
}

package train

import (
	"fmt"
	"testing"
)

// TestHeterRepeats: equal runs have the same bits, for any numbers of ranks, heter-trainers and
// micro-batches, and so does a run that resumes.
func TestHeterRepeats(t *testing.T) {
	set, keys := keyedSet(t)
	for _, optimizer := range []string{"adam", "adagrad"} {
		for _, ranks := range []int{1, 2, 4} {
			for _, heters := range []int{1, 2, 3} {
				if ranks != 2 && (optimizer == "adam" || testing.Short()) {
					continue // time
				}
				what := fmt.Sprintf("%s, np %d, heter %d", optimizer, ranks, heters)
				cfg := keptConfig(t, keys, optimizer, 2)
				cfg.Heter = Heter{Count: heters, Micros: 3}
				want, whole := split(t, ranks, cfg, set, begun(t, cfg.Checkpoint.Dir, 1))
				clocks(whole.epochs)
				for range 2 {
					plain := cfg
					plain.Checkpoint, plain.Servers.Start = Checkpoint{}, 0
					got, rec := split(t, ranks, plain, set, nil)
					clocks(rec.epochs)
					checkSame(t, what, got, rec.epochs, want, whole.epochs)
				}
				cfg.Checkpoint.Resume, cfg.Servers.Start = true, 2
				dropAfter(t, cfg.Checkpoint.Dir, 4)
				got, rec := split(t, ranks, cfg, set, begun(t, cfg.Checkpoint.Dir, 2))
				clocks(rec.epochs)
				checkSame(t, what+", resumed", got, rec.epochs, want, whole.epochs)
			}
		}
	}
}

package train

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
)

// oddSource is a user's source that panics, or fills batches of another size.
type oddSource struct {
	data.Source
	odd func(b *data.Batch)
}

func (s oddSource) Fill(b *data.Batch, idx []int32, d data.Draw) error {
	err := s.Source.Fill(b, idx, d)
	s.odd(b)
	return err
}

// TestOddSourceIsAnError ends with an error that names rank and step, on every number of ranks and
// threads, if a user's source panics or fills a batch of the wrong size.
func TestOddSourceIsAnError(t *testing.T) {
	for _, np := range []int{1, 2} {
		for _, threads := range []int{1, 3} {
			for want, odd := range map[string]func(b *data.Batch){
				"panic: runtime error: index out of range": func(b *data.Batch) { b.Values[len(b.Values)] = 0 },
				"for 16 samples: want 32":                  func(b *data.Batch) { b.Values = b.Values[:len(b.Values)-1] },
				"a batch of 3 samples for 16 samples":      func(b *data.Batch) { b.N = 3 },
			} {
				set := stripes(t, 300)
				set.Train = oddSource{set.Train, odd}
				err := ringo.Local(t.Context(), np, ringo.Config{}, func(job *ringo.Job) error {
					_, err := Run(job.Context(), job, mine(), set, Config{LR: 0.5, Batch: 16, Epochs: 1, Seed: 4, Threads: threads})
					return err
				})
				if err == nil || !strings.HasPrefix(err.Error(), "rank ") || !strings.Contains(err.Error(), "in step 1 of epoch 1") || !strings.Contains(err.Error(), want) {
					t.Errorf("np %d, %d threads: %v, want %q", np, threads, err, want)
				}
			}
		}
	}
}

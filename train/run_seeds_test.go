package train

import (
	"context"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
)

// TestSeedsAgree: ranks with other numbers of seeds are an error that names both.
func TestSeedsAgree(t *testing.T) {
	cfg := small()
	err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
		_, err := RunSeeds(job.Context(), job, cfg.Model, nil, cfg, 1+job.Rank(), func(Summary) {})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "training.seeds 2 on rank 1 and 1 on rank 0") {
		t.Error(err)
	}
}

// Each seed's run counts what it sends itself, from its first step on.
func TestSeedsCountTheirOwnTraffic(t *testing.T) {
	rec := new(recorder)
	cfg := small()
	cfg.TrainLimit, cfg.Epochs = 96, 2
	err := ringo.Local(context.Background(), 2, ringo.Config{Collective: collective.Config{Algorithm: collective.Ring}}, func(job *ringo.Job) error {
		own := rec
		if job.Rank() != 0 {
			own = new(recorder)
		}
		_, err := RunSeeds(job.Context(), job, cfg.Model, nil, watched(cfg, own), 2, func(Summary) {})
		return err
	})
	if err != nil || len(rec.epochs) != 4 {
		t.Fatalf("%d epochs, %v", len(rec.epochs), err)
	}
	for i := range 2 {
		if a, b := rec.epochs[i], rec.epochs[2+i]; a.BytesSent != b.BytesSent || a.BytesSent <= 0 {
			t.Errorf("epoch %d sent %d bytes under one seed, %d under the next", a.Epoch, a.BytesSent, b.BytesSent)
		}
	}
}

package train

import (
	"context"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
)

// A model of two tables learns from keys that it streams.
func TestBagsAreLearnt(t *testing.T) {
	cfg := streaming(clickFiles(t))
	cfg.Model, cfg.Epochs = tinyBags(), 4
	_, rec := onRanks(t, 2, cfg)
	if first, last := rec.epochs[0], rec.epochs[3]; !(last.TrainLoss < 0.9*first.TrainLoss) {
		t.Errorf("the loss went from %v to %v", first.TrainLoss, last.TrainLoss)
	}
}

// What cannot be is refused by name.
func TestBagsRefused(t *testing.T) {
	cfg := custom(tinyBags())
	cfg.Servers.Consistency, cfg.TableRows = "bsp", 100
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "on servers tables of model tiny-bags have a row for each key") {
		t.Errorf("got %v", err)
	}
	cfg = Defaults(zoo("din"), data.Synthetic)
	cfg.TrainLimit, cfg.EvalLimit = 100, 50
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		_, err := observed(job, cfg, new(recorder))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "din needs a sequence of keys, and samples of data set criteo have none") {
		t.Errorf("got %v", err)
	}
}

// A sequence that no slot stands before has no candidate.
func TestSequenceWithoutCandidate(t *testing.T) {
	for _, first := range []bool{true, false} {
		slots := []data.Slot{{Name: "history", Sequence: first}, {Name: "more", Sequence: true}}
		src, err := data.FromBatch(data.Shape{Slots: slots, Labels: 1}, data.Batch{
			N: 2, Labels: []int32{0, 1}, Bags: data.Bags{Keys: []uint64{1, 2}, Offsets: []int32{0, 1, 2, 2, 2}},
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg := Defaults(zoo("din"), "")
		cfg.Batch, cfg.TableRows = 2, 10
		err = ringo.Local(t.Context(), 1, ringo.Config{}, func(job *ringo.Job) error {
			_, err := Run(t.Context(), job, zoo("din"), &data.Dataset{Name: "own", Train: src, Eval: src, Classes: 2, Rows: 10}, cfg)
			return err
		})
		if (err != nil) != first || first && !strings.Contains(err.Error(), `"history" is the first slot of data set own`) {
			t.Errorf("%v: %v", slots, err)
		}
	}
}

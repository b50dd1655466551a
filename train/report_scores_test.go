package train

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// scored is a sample of a training pass, as the naive twin keeps it.
type scored struct {
	score    float64
	positive bool
}

// naiveProgressive is what samples come to by the definitions.
func naiveProgressive(all []scored) (auc, logLoss, calibration float64) {
	won, pairs, expected, came := 0.0, 0.0, 0.0, 0.0
	for _, a := range all {
		right := 1 - a.score
		if a.positive {
			right = a.score
			came++
		}
		logLoss -= math.Log(right) / float64(len(all))
		expected += a.score
		for _, b := range all {
			switch {
			case !a.positive || b.positive:
				continue
			case a.score > b.score:
				won++
			case a.score == b.score:
				won += 0.5
			}
			pairs++
		}
	}
	return won / pairs, logLoss, expected / came
}

// keeping is a click model whose metric keeps the scores of training passes, in the order of each rank's.
func keeping(kept *[][]scored) model.Spec {
	var mu sync.Mutex
	s := tinyClick()
	build := s.Build
	s.Build = func(ps *nn.Params, o model.Options) model.Model {
		m := build(ps, o)
		mu.Lock()
		rank := len(*kept)
		*kept = append(*kept, nil)
		mu.Unlock()
		m.Metrics = append(slices.Clone(m.Metrics), model.Calibration(model.Probability), model.Metric{
			Name: "kept", Sums: 1, Value: func(s []float64) (float64, bool) { return s[0], true },
			Add: func(_ []float64, p model.Pass) {
				mu.Lock()
				defer mu.Unlock()
				for i, label := range p.Batch.Labels {
					(*kept)[rank] = append((*kept)[rank], scored{float64(model.Probability(p, i)), label == 1})
				}
			},
		})
		return m
	}
	return s
}

// The figures are those of the last samples of all ranks by the definitions, as the passes of training have scored them, on one rank and on
// several, and are told by the epoch and by progress.
func TestProgressiveFigures(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		var kept [][]scored
		cfg := custom(keeping(&kept))
		cfg.Data, cfg.TrainLimit, cfg.EvalLimit, cfg.Batch, cfg.Epochs, cfg.AUCWindow, cfg.LR = data.Synthetic, 1200, 60, 10, 1, 600, 0.05
		cfg.Best.Metric = "progressive_auc"
		sum, rec := onRanks(t, ranks, cfg)
		if len(kept) != ranks {
			t.Fatalf("%d models of %d ranks", len(kept), ranks)
		}
		var last []scored
		for _, own := range kept {
			// An evaluation counts, too, after the epoch: its samples are those after the training's.
			own = own[:1200/ranks]
			last = append(last, own[len(own)-600/ranks:]...)
		}
		auc, logLoss, calibration := naiveProgressive(last)
		got := rec.epochs[0].Progressive
		if got == nil || got.Samples != 600 || !got.AUC.Known || math.Abs(got.AUC.Value-auc) > got.AUCError+1e-9 || got.AUCError > 0.01 ||
			math.Abs(got.LogLoss-logLoss) > 1e-6 || math.Abs(got.Calibration-calibration) > 1e-6 {
			t.Errorf("%d ranks: %+v, want AUC %v, log-loss %v, calibration %v", ranks, got, auc, logLoss, calibration)
		}
		if b := sum.Best; b == nil || b.Value != got.AUC.Value {
			t.Errorf("the best epoch is %+v", b)
		}
		if told := rec.progress[25].Progressive; told == nil || told.Samples == 0 || told.Samples > 600 {
			t.Errorf("progress has told %+v", told)
		}
		text, err := json.Marshal(rec.epochs[0])
		if err != nil || !strings.Contains(string(text), fmt.Sprintf(`"progressive_samples":600,"progressive_auc":%v`, got.AUC.Value)) {
			t.Errorf("%s, %v", text, err)
		}
		var again Epoch
		if err := json.Unmarshal(text, &again); err != nil || *again.Progressive != *got {
			t.Errorf("read again: %+v, %v", again.Progressive, err)
		}
	}
}

// A model that predicts no clicks has no such figures, and takes no such setting.
func TestProgressiveOfOthers(t *testing.T) {
	cfg := small()
	_, rec := onRanks(t, 1, cfg)
	if e := rec.epochs[0]; e.Progressive != nil {
		t.Errorf("%+v", e.Progressive)
	}
	cfg.AUCWindow = 100
	if err := runAlone(t, cfg); err == nil || !strings.Contains(err.Error(), "AUCWindow 100 has no effect") {
		t.Errorf("%v", err)
	}
	for _, n := range []int{-1, 50_000_001, math.MaxInt} {
		cfg.AUCWindow = n
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("AUCWindow %d: want 1 to 50000000", n)) {
			t.Errorf("%v", err)
		}
	}
}

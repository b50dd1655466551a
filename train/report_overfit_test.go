package train

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
)

// TestOverfitRemark: a remark names the best epoch after 3 worse evaluations in succession with an
// improving training loss, once, and a checkpoint between two epochs changes no remark.
func TestOverfitRemark(t *testing.T) {
	for name, c := range map[string]struct {
		training, evaluation []float64
		at                   int // epoch of the remark
		want                 string
	}{
		"overfit":            {[]float64{1, 0.8, 0.6, 0.5, 0.4, 0.3}, []float64{1, 0.9, 0.95, 0.97, 1.2, 1.3}, 5, "3 epochs in succession (now 1.2, in epoch 2 0.9) while the training loss improves (now 0.4, then 0.8): the best epoch is 2;"},
		"recovers":           {[]float64{1, 0.8, 0.6, 0.5, 0.4, 0.3}, []float64{1, 0.9, 0.95, 0.97, 0.8, 0.9}, 0, ""},
		"noise":              {[]float64{1, 0.8, 0.6, 0.5, 0.4, 0.3}, []float64{1, 0.9, 0.901, 0.902, 0.903, 0.904}, 0, ""},
		"both get worse":     {[]float64{1, 0.8, 0.9, 0.9, 1, 1.1}, []float64{1, 0.9, 0.95, 0.97, 1.2, 1.3}, 0, ""},
		"improves":           {[]float64{1, 0.8, 0.6}, []float64{1, 0.9, 0.8}, 0, ""},
		"interrupted":        {[]float64{1, 0.8, 0.6, 1.1, 0.4, 0.3}, []float64{0.9, 1, 1, 1, 1, 1}, 0, ""},
		"overfit from first": {[]float64{1, 0.8, 0.6, 0.5}, []float64{0.9, 1, 1, 1}, 4, "the best epoch is 1;"},
	} {
		var o overfit
		at := 0
		for i := range c.training {
			text, err := json.Marshal(o) // as in a checkpoint
			o = overfit{}
			if err != nil || json.Unmarshal(text, &o) != nil {
				t.Fatal(err)
			}
			if text := o.follow(i+1, c.training[i], c.evaluation[i]); text != "" {
				if at > 0 || !strings.Contains(text, c.want) {
					t.Errorf("%s: epoch %d: %s, want %s", name, i+1, text, c.want)
				}
				at = i + 1
			}
		}
		if at != c.at {
			t.Errorf("%s: a remark in epoch %d, want %d", name, at, c.at)
		}
	}
}

// TestRunRemarksOverfit: a run with opposite labels in the evaluation remarks that its first epoch
// is the best.
func TestRunRemarksOverfit(t *testing.T) {
	rec := new(recorder)
	err := ringo.Local(context.Background(), 2, ringo.Config{}, func(job *ringo.Job) error {
		set := ownClasses(t, 32, 16)
		set.Eval = ownClasses(t, 16, 0).Train // the first samples, of the other class
		cfg := Config{Batch: 8, Epochs: 8, LR: 0.001, Optimizer: "sgd"}
		if job.Rank() == 0 {
			cfg.Observer = rec
		}
		_, err := Run(context.Background(), job, ownClassifier(), set, cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range rec.remarks {
		if strings.Contains(m.Text, "while the training loss improves") {
			found = append(found, m.Text)
		}
	}
	if len(found) != 1 || !strings.Contains(found[0], "the best epoch is 1;") {
		t.Errorf("remarks %q; epochs %+v", found, rec.epochs)
	}
}

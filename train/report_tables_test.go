package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// evaluatedBy evaluates a checkpoint of a run on several ranks, and compares the reports of the
// ranks.
func evaluatedBy(t *testing.T, np int, cfg Config) SavedEvaluation {
	t.Helper()
	var mu sync.Mutex
	all := make([]SavedEvaluation, np)
	err := ringo.Local(context.Background(), np, ringo.Config{}, func(job *ringo.Job) error {
		e, err := Evaluate(context.Background(), job, cfg.Model, nil, cfg)
		mu.Lock()
		defer mu.Unlock()
		all[job.Rank()] = e
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank, e := range all {
		if !reflect.DeepEqual(e.Report, all[0].Report) {
			t.Errorf("rank %d of %d reports %+v, rank 0 %+v", rank, np, e.Report, all[0].Report)
		}
	}
	return all[0]
}

// TestReportsAreEqualForAnyRanks evaluates models of each kind with 1, 2 and 3 ranks: the tables
// and the worst samples have the same bits, those of the run, and agree with the metrics of the
// model. The models have no convolutions.
func TestReportsAreEqualForAnyRanks(t *testing.T) {
	prices := Defaults(zoo("mlp"), houses(t, 600))
	prices.Epochs, prices.Batch, prices.LR = 4, 32, 0.05
	for name, cfg := range map[string]Config{"classes": custom(tinyNorm()), "clicks": custom(tinyClick()), "numbers": prices, "": custom(tinyLSTM())} {
		cfg.Checkpoint.Dir = filepath.Join(t.TempDir(), "saved")
		sum, _ := onRanks(t, 2, cfg)
		if name != "" { // a run reports its worst samples
			cfg.Worst = shownWorst
		}
		for np := 1; np <= 3; np++ {
			if name == "" && np == 3 {
				continue // more ranks than streams of text
			}
			e := evaluatedBy(t, np, cfg)
			if !reflect.DeepEqual(e.Report, sum.Report) {
				t.Errorf("%s: %d ranks report %+v, the run %+v", name, np, e.Report, sum.Report)
			}
			near := func(what string, got float64, metric string) {
				want := e.EvalLoss
				if metric != "" {
					want = e.Eval[metric]
				}
				if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
					t.Errorf("%s: %d ranks have a %s of %v, and a metric of %v", name, np, what, got, want)
				}
			}
			kinds := 0
			if c := e.Classes; c != nil {
				kinds++
				near("accuracy", c.Accuracy, "accuracy")
			}
			if c := e.Clicks; c != nil {
				kinds++
				near("log-loss", c.LogLoss, "")
				near("AUC", c.AUC.Value, "auc")
			}
			if c := e.Numbers; c != nil {
				kinds++
				near("R²", c.R2.Value, "r2")
				if c.Unit != "price" || !(c.BaselineRMSE > 20_000 && c.BaselineRMSE < 500_000) || !(c.MAE <= c.RMSE && c.MAE < c.BaselineRMSE) {
					t.Errorf("prices: %+v", c)
				}
			}
			if has := map[string]bool{"classes": e.Classes != nil, "clicks": e.Clicks != nil, "numbers": e.Numbers != nil, "": kinds == 0}; !has[name] || kinds > 1 {
				t.Errorf("%q: %d ranks report %+v", name, np, e.Report)
			}
		}
	}
}

// TestReportOfConstantTarget evaluates a file with one price, and a file with one class: R² and AUC
// are null in JSON.
func TestReportOfConstantTarget(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(folder, name)
		if err := os.WriteFile(p, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return p
	}
	kinds, prices := "area,kind\n", "area,kind\n"
	for i := range 300 {
		kinds += fmt.Sprintf("%d,%s\n", i%50, []string{"flat", "house"}[i%50/25])
		prices += fmt.Sprintf("%d,%d\n", i%50, 1000+i%50*17)
	}
	for _, c := range []struct{ train, test, json string }{
		{write("kinds.csv", kinds), write("flats.csv", "area,kind\n3,flat\n4,flat\n"), `"macro_auc":null,"classes_without_predictions":0,"classes_without_samples":1`},
		{write("prices.csv", prices), write("price.csv", "area,kind\n3,1000\n4,1000\n"), `"r2":null,"baseline_rmse":0`},
	} {
		cfg := Defaults(zoo("mlp"), c.train)
		cfg.Epochs, cfg.Batch, cfg.Checkpoint.Dir = 2, 16, filepath.Join(t.TempDir(), "saved")
		onRanks(t, 1, cfg)
		e, _, err := evaluated(t, cfg.Checkpoint.Dir, c.train, c.test)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(e); err != nil || !strings.Contains(string(text), c.json) {
			t.Errorf("%s: %s, %v, want %s", c.test, text, err, c.json)
		}
	}
}

// TestCustomOutputsHaveNoClassTable leaves out the table of a model with a loss that counts no
// sample as correct.
func TestCustomOutputsHaveNoClassTable(t *testing.T) {
	spec := tinyNorm()
	build := spec.Build
	spec.Build = func(ps *nn.Params, o model.Options) model.Model {
		m := build(ps, o)
		m.Loss = func(t *nn.Tape, b model.Batch, out model.Outputs) model.Loss {
			l := model.CrossEntropy(t, b, out)
			l.Correct = 0
			return l
		}
		return m
	}
	if sum, _ := onRanks(t, 2, custom(spec)); sum.Classes != nil {
		t.Errorf("a table of %+v", sum.Classes)
	}
}

package progress

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/train"
)

// TestLinesFit: header and rows have at most 80 columns, with any number of metrics, columns of a
// table and epochs, and a table that is too wide keeps loss, first metric and rate.
func TestLinesFit(t *testing.T) {
	metrics := []model.Metric{
		{Name: "mae", Title: "mean absolute error", Digits: 4, Sums: 1}, {Name: "r2", Title: "R²", Digits: 4, Sums: 1},
		{Name: "accuracy", Percent: true, Digits: 2, Sums: 1}, {Name: "top5", Title: "top-5 accuracy", Percent: true, Digits: 2, Sums: 1},
	}
	var columns []table.Found
	for _, name := range []string{"id", strings.Repeat("long name ", 4), "new\nline"} {
		columns = append(columns, table.Found{Name: name, Kind: table.Category, Detail: strings.Repeat("é", 99), Missing: map[string]int64{"": 7}})
	}
	columns = append(columns, make([]table.Found, 40)...)
	for n := range len(metrics) + 1 {
		for _, epochs := range []int{1, 100, 1000000} {
			var lines bytes.Buffer
			r := New(cli.Output{Lines: &lines}, "none", nil, 0)
			r.Show(true, false)
			r.Start(train.Info{Model: "mlp", Epochs: epochs, Unit: "samples", Metrics: metrics[:n], Columns: columns, PlanSHA256: "01234567", Exchange: strings.Repeat("many words ", 20)})
			r.Epoch(train.Epoch{Epoch: epochs, TrainLoss: 0.1234, SamplesPerS: 1234567, Eval: model.Metrics{"mae": 0.5, "r2": -0.1}})
			for _, line := range strings.Split(lines.String(), "\n") {
				if got := utf8.RuneCountInString(line); got > 80 {
					t.Errorf("%d metrics, %d epochs: %d columns: %s", n, epochs, got, line)
				}
			}
			for _, want := range []string{"0.1234", "samples/s", "new?line", "and 19 columns more", "columns   id "} {
				if !strings.Contains(lines.String(), want) {
					t.Errorf("%d metrics, %d epochs: %q is not in\n%s", n, epochs, want, &lines)
				}
			}
			if n > 0 && !strings.Contains(lines.String(), "  0.5000") {
				t.Errorf("%d metrics, %d epochs: no first metric in\n%s", n, epochs, &lines)
			}
		}
	}
}

// TestBestEpochIsMarked: a row with the best value until then ends with a mark, by training.monitor
// or else by the first metric, also after an epoch without a value.
func TestBestEpochIsMarked(t *testing.T) {
	accuracy := model.Metric{Name: "accuracy", Digits: 2}
	auc := func(v float64) *train.Progressive {
		return &train.Progressive{AUC: train.OptionalFloat{Value: v, Known: true}, LogLoss: v}
	}
	epochs := []train.Epoch{
		{EvalLoss: 3, Eval: model.Metrics{"accuracy": 0.5}, Progressive: auc(0.6)}, {EvalLoss: 2, Progressive: auc(0.5)},
		{EvalLoss: 4, Eval: model.Metrics{"accuracy": 0.5}, Progressive: auc(0.7)}, {EvalLoss: 1, Eval: model.Metrics{"accuracy": 0.75}, Progressive: auc(0.4)},
	}
	for _, c := range []struct {
		best    train.BestEpoch
		metrics []model.Metric
		want    string
	}{
		{train.BestEpoch{}, []model.Metric{accuracy}, "*--*"}, {train.BestEpoch{}, nil, "**-*"}, {train.BestEpoch{Metric: "loss"}, []model.Metric{accuracy}, "**-*"},
		{train.BestEpoch{Metric: "progressive_auc"}, []model.Metric{accuracy}, "*-*-"}, {train.BestEpoch{Metric: "progressive_logloss"}, nil, "**-*"},
		{train.BestEpoch{Metric: "accuracy", Value: 0.6, Epoch: 9}, []model.Metric{accuracy}, "---*"}, {train.BestEpoch{}, []model.Metric{{Name: "accuracy", Lower: true}}, "*---"},
	} {
		var lines bytes.Buffer
		r := New(cli.Output{Lines: &lines}, "none", nil, 0)
		r.Show(false, true)
		r.Start(train.Info{Epochs: 4, Metrics: c.metrics, Best: c.best})
		got := ""
		for k, e := range epochs {
			lines.Reset()
			e.Epoch = k + 1
			r.Epoch(e)
			if strings.HasSuffix(lines.String(), " *"+plain+"\n") && strings.Contains(lines.String(), green+"epoch ") {
				got += "*"
			} else {
				got += "-"
			}
		}
		if got != c.want {
			t.Errorf("%+v: marks %s, want %s", c.best, got, c.want)
		}
	}
}

// TestUndefinedEpochIsNotBest: an epoch whose metric is not finite is never the best one.
func TestUndefinedEpochIsNotBest(t *testing.T) {
	table := newTable(train.Info{Epochs: 3}, nil, false)
	for k, loss := range []float64{math.NaN(), 2, math.Inf(1)} {
		if got := table.better(train.Epoch{Epoch: k + 1, EvalLoss: loss}); got != (k == 1) {
			t.Errorf("loss %v: better %v", loss, got)
		}
	}
}

// TestMonitorHasAColumn: the metric by which epochs are compared is shown, however many others
// there are.
func TestMonitorHasAColumn(t *testing.T) {
	var metrics []model.Metric
	for _, name := range []string{"accuracy", "second", "third", "fourth", "fifth", "sixth"} {
		metrics = append(metrics, model.Metric{Name: name, Digits: 4})
	}
	detail := append(metrics[:1:1], model.Metric{Name: "hidden", Digits: 4, Detail: true})
	for _, c := range []struct {
		monitor string
		metrics []model.Metric
	}{{"sixth", metrics}, {"loss", metrics}, {"hidden", detail}, {"progressive_logloss", detail}} {
		var lines bytes.Buffer
		r := New(cli.Output{Lines: &lines}, "none", nil, 0)
		r.Start(train.Info{Epochs: 2, Metrics: c.metrics, Best: train.BestEpoch{Metric: c.monitor}})
		r.Epoch(train.Epoch{Epoch: 1, EvalLoss: 0.125, Eval: model.Metrics{"sixth": 0.125, "hidden": 0.125}, Progressive: &train.Progressive{LogLoss: 0.125}})
		if text := lines.String(); !strings.Contains(text, "0.1250") {
			t.Errorf("monitor %s: no value in\n%s", c.monitor, text)
		}
	}
}

package train

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
)

// lossBy returns the mean squared error of a saved model on all samples of a source, in the unit of
// the target, sample by sample.
func lossBy(t *testing.T, cfg Config, src data.Source, value func(float32) float64) (mean float64) {
	t.Helper()
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		p, err := NewPredictor(context.Background(), job, cfg.Model, cfg)
		if err != nil {
			return err
		}
		var b data.Batch
		for i := range src.Len() {
			if err = src.Fill(&b, []int32{int32(i)}, data.Draw{}); err != nil {
				break
			}
			out, err := p.Forward(&b)
			if err != nil {
				return p.End(err)
			}
			d := value(out[0].Data[0]) - value(b.Targets[0])
			mean += d * d / float64(src.Len())
		}
		return p.End(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return mean
}

// TestImportanceEqualsNaiveTwin compares the importance of each column with scikit-learn's
// definition, the mean loss on permuted rows minus the loss, computed sample by sample; 1, 2 and 3
// ranks report the same bits, and the column that decides is first.
func TestImportanceEqualsNaiveTwin(t *testing.T) {
	cfg := Defaults(zoo("mlp"), houses(t, 600))
	cfg.Epochs, cfg.Batch, cfg.LR, cfg.Checkpoint.Dir = 4, 32, 0.05, filepath.Join(t.TempDir(), "saved")
	onRanks(t, 2, cfg)
	cfg.Worst, cfg.Importance = 6, 3
	e := evaluatedBy(t, 1, cfg)
	for np := 2; np <= 3; np++ {
		if other := evaluatedBy(t, np, cfg); !reflect.DeepEqual(other.Report, e.Report) {
			t.Errorf("%d ranks report %+v, one %+v", np, other.Report, e.Report)
		}
	}
	set, err := data.Open("table", cfg.dataOf())
	if err != nil {
		t.Fatal(err)
	}
	goal, _ := set.Encoder.Goal()
	base := lossBy(t, cfg, set.Eval, goal.Value)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Abs(base) {
			t.Errorf("%s %v, want %v", what, got, want)
		}
	}
	near("loss", e.Report.MeanLoss.Value, base)
	columns := 0
	for ; ; columns++ {
		rises, mean := make([]float64, 3), 0.0
		var name string
		for k := range rises {
			var src data.Source
			if name, src = set.Permuted(columns, uint64(k)); name == "" {
				break
			}
			rises[k] = lossBy(t, cfg, src, goal.Value) - base
			mean += rises[k] / 3
		}
		if name == "" {
			break
		}
		for _, i := range e.Importance {
			if i.Input == name {
				near(name, i.Rise, mean)
				near(name+" deviation", i.SD, math.Sqrt((math.Pow(rises[0]-mean, 2)+math.Pow(rises[1]-mean, 2)+math.Pow(rises[2]-mean, 2))/2))
			}
		}
	}
	if len(e.Importance) != columns || columns < 2 || e.Importance[0].Rise < base || len(e.Worst) != 6 {
		t.Errorf("%d of %d columns: %+v, %d samples", len(e.Importance), columns, e.Importance, len(e.Worst))
	}
	for i, w := range e.Worst {
		if i > 0 && w.Loss > e.Worst[i-1].Loss || !strings.Contains(w.Place, ": line ") {
			t.Errorf("sample %d of the worst: %+v", i, w)
		}
	}
}

// TestImportanceOnRanksWithOneSet has the same report if ranks of a process share a set, which
// stays unchanged, and samples per second do not count the importance.
func TestImportanceOnRanksWithOneSet(t *testing.T) {
	cfg := Defaults(zoo("mlp"), houses(t, 300))
	cfg.Epochs, cfg.Batch, cfg.LR, cfg.Checkpoint.Dir = 2, 32, 0.05, filepath.Join(t.TempDir(), "saved")
	onRanks(t, 1, cfg)
	cfg.Worst, cfg.Importance = 2, 2
	want := evaluatedBy(t, 1, cfg)
	set, err := data.Open("table", cfg.dataOf())
	if err != nil {
		t.Fatal(err)
	}
	eval := set.Eval
	err = ringo.Local(context.Background(), 3, ringo.Config{}, func(job *ringo.Job) error {
		e, err := Evaluate(context.Background(), job, cfg.Model, set, cfg)
		if err == nil && !reflect.DeepEqual(e.Report, want.Report) {
			t.Errorf("rank %d reports %+v, want %+v", job.Rank(), e.Report, want.Report)
		}
		if err == nil && e.SamplesPerS < 2*float64(e.Samples)/e.WallS {
			t.Errorf("%v samples per second, and %d samples in %v s with 5 evaluations", e.SamplesPerS, e.Samples, e.WallS)
		}
		return err
	})
	if err != nil || !reflect.DeepEqual(set.Eval, eval) {
		t.Errorf("%v, the set is evaluated on %T", err, set.Eval)
	}
}

// TestImportanceRejectsRowsReadAgain names the settings that read evaluation rows of a stream into
// memory, where each gives a report.
func TestImportanceRejectsRowsReadAgain(t *testing.T) {
	cfg := custom(tinyClick())
	cfg.TrainLimit, cfg.EvalLimit = 0, 0
	cfg.Data, cfg.Stream, cfg.SkipBad, cfg.Checkpoint.Dir = clickFiles(t), true, 3, filepath.Join(t.TempDir(), "saved")
	onRanks(t, 1, cfg)
	cfg.Importance = 1
	err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
		_, err := Evaluate(context.Background(), job, cfg.Model, nil, cfg)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "data.stream true: importance reads each row with the values of other rows") {
		t.Fatal(err)
	}
	packed := cfg
	packed.EvalFile = filepath.Join(cfg.Data, "train_10.tsv.gz")
	whole := cfg
	whole.Stream, whole.TrainFile, whole.EvalFile = false, filepath.Join(cfg.Data, "train_9.tsv"), filepath.Join(cfg.Data, "test.tsv")
	whole.Data = ""
	for _, cfg := range []Config{packed, whole} {
		if e := evaluatedBy(t, 1, cfg); len(e.Importance) != 39 {
			t.Errorf("importance of %d inputs, want 39", len(e.Importance))
		}
	}
}

// TestGroupsAddUpToTheWhole reports the same groups on 1, 2 and 3 ranks. The groups of a column
// with one value equal the table of all samples, and importance does not change groups.
func TestGroupsAddUpToTheWhole(t *testing.T) {
	cfg := custom(tinyClick())
	cfg.TrainLimit, cfg.EvalLimit = 0, 0
	cfg.Data, cfg.Stream, cfg.SkipBad, cfg.Checkpoint.Dir = clickFiles(t), true, 3, filepath.Join(t.TempDir(), "saved")
	onRanks(t, 1, cfg)
	for column, values := range map[string]int{"I1": 97, "C1": 2, "C3": 4} {
		cfg.By = column
		e := evaluatedBy(t, 1, cfg)
		for np := 2; np <= 3; np++ {
			if other := evaluatedBy(t, np, cfg); !reflect.DeepEqual(other.Report, e.Report) {
				t.Errorf("%d ranks report %+v, one %+v", np, other.Groups, e.Groups)
			}
		}
		var samples, events int64
		loss := 0.0
		for _, g := range e.Groups.Groups {
			samples, events, loss = samples+g.Samples, events+g.Events, loss+g.LogLoss*float64(g.Samples)/150
		}
		if len(e.Groups.Groups) != values || samples != 150 || events != e.Clicks.Events || math.Abs(loss-e.Clicks.LogLoss) > 1e-6 {
			t.Errorf("%s: %+v, log-loss %v, of all samples %+v", column, e.Groups, loss, e.Clicks)
		}
	}
	want := evaluatedBy(t, 2, cfg).Groups
	cfg.Stream, cfg.Importance, cfg.Worst = false, 1, 2
	cfg.TrainFile, cfg.EvalFile, cfg.Data = filepath.Join(cfg.Data, "train_9.tsv"), filepath.Join(cfg.Data, "test.tsv"), ""
	if e := evaluatedBy(t, 2, cfg); !reflect.DeepEqual(e.Groups, want) || len(e.Importance) != 39 || len(e.Worst) != 2 {
		t.Errorf("groups %+v, want %+v", e.Groups, want)
	}
}

// TestJudgeRejectsOtherModels names the reason for a model or data without a loss for each
// sample or without columns.
func TestJudgeRejectsOtherModels(t *testing.T) {
	for want, c := range map[string]struct {
		cfg               Config
		worst, importance int
		by                string
	}{
		"has no loss for each sample": {custom(tinyLSTM()), 1, 0, ""},
		"has no columns":              {custom(tinyNorm()), 1, 1, ""},
		"want 0 to 1000":              {custom(tinyNorm()), 1001, 0, ""},
		"--by day: model tiny-norm predicts neither clicks": {custom(tinyNorm()), 0, 0, "day"},
		"--by day: groups need the evaluation samples":      {custom(tinyClick()), 0, 0, "day"},
	} {
		c.cfg.Checkpoint.Dir = filepath.Join(t.TempDir(), "saved")
		onRanks(t, 1, c.cfg)
		c.cfg.Worst, c.cfg.Importance, c.cfg.By = c.worst, c.importance, c.by
		err := ringo.Local(context.Background(), 1, ringo.Config{}, func(job *ringo.Job) error {
			_, err := Evaluate(context.Background(), job, c.cfg.Model, nil, c.cfg)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

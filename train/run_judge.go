package train

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/evalmetrics"
	"github.com/ringo-ml/ringo/internal/setting"
)

// maxJudged limits Config.Worst and Config.Importance.
const maxJudged = 1000

// checkJudge reads the column with the values that define groups, and returns an error if an
// evaluation has no loss for each sample.
func (l *epochLoop) checkJudge() error {
	worst, repeats := l.cfg.Worst, l.cfg.Importance
	l.tableWords = savedTableWords
	l.judges = worst > 0 || repeats > 0 || l.cfg.By != ""
	plan, name := l.tablePlan(), ""
	if repeats > 0 {
		name, _ = l.data.set.Permuted(0, 0)
	}
	switch {
	case worst < 0 || worst > maxJudged || repeats < 0 || repeats > maxJudged:
		return fmt.Errorf("%d worst samples, %d permutations of each input: want 0 to %d", worst, repeats, maxJudged)
	case !l.judges:
		return nil
	case plan.Kind == evalmetrics.None || l.spec.Targets > 1:
		return fmt.Errorf("model %s has no loss for each sample: worst samples, groups and importance are of models with one class, number or click per sample", l.cfg.name())
	case l.cfg.By != "" && plan.Kind != evalmetrics.Clicks && (plan.Kind != evalmetrics.Classes || plan.Classes != 2):
		return fmt.Errorf("--by %s: model %s predicts neither clicks nor one of two classes: groups have the AUC, log-loss and calibration of such models", l.cfg.By, l.cfg.name())
	case !plan.Samples:
		return fmt.Errorf("%d samples to evaluate on, more than worst samples, groups and importance allow: name fewer with data.eval-limit", l.data.shares.eval)
	case len(l.data.shares.ranks) > 0 && len(l.data.shares.ranks) < l.job.Size():
		return errors.New("ranks have separate data sets: worst samples, groups and importance need one for all ranks")
	case repeats > 0 && name == "" && len(l.data.set.Files) > 0:
		return setting.Errorf("data.stream", "true: importance reads each row with the values of other rows, and the evaluation rows are in a file: set it to false, or name a compressed file (.gz, .zst), which is read into memory, with %v", setting.Path("data.eval-file"))
	case repeats > 0 && name == "":
		return fmt.Errorf("data set %s has no columns: importance is of the columns of tables and the slots of clicks", l.data.set.Name)
	case l.cfg.By == "":
		return nil
	}
	of, values, err := l.data.set.Groups(l.cfg.By)
	if err != nil {
		return fmt.Errorf("--by %s: %w", l.cfg.By, err)
	}
	l.groups = &evalmetrics.Grouping{Column: l.cfg.By, Values: values, Member: of}
	return nil
}

// judge adds the worst samples' places and the importance of the inputs to the report of an
// evaluation. All ranks call it. Cost: an evaluation for each input and permutation.
func (l *epochLoop) judge(r *evalmetrics.Report) error {
	if !l.judges {
		return nil
	}
	if !r.MeanLoss.Known {
		return fmt.Errorf("model %s has other outputs than one logit per class or click, or one number: worst samples, groups and importance need these", l.cfg.name())
	}
	l.placeWorst(r)
	if l.cfg.Importance == 0 {
		return nil
	}
	set, own := l.data.set, *l.data.set // ranks of one process can share the set
	l.data.set, l.permutes = &own, true
	defer func() { l.data.set, l.permutes = set, false }()
	for column := 0; ; column++ {
		rises := make([]float64, l.cfg.Importance)
		var input string
		for i := range rises {
			name, permuted := set.Permuted(column, uint64(i))
			if name == "" {
				slices.SortStableFunc(r.Importance, func(a, b evalmetrics.Importance) int { return cmp.Compare(b.Rise, a.Rise) })
				return nil
			}
			own.Eval, input = permuted, name
			whole, err := l.evaluateSaved()
			if err != nil {
				return fmt.Errorf("importance of %q: %w", name, err)
			}
			rises[i] = whole.report.MeanLoss.Value - r.MeanLoss.Value
		}
		mean, sd := meanAndSD(rises)
		r.Importance = append(r.Importance, evalmetrics.Importance{Input: input, Rise: mean, SD: sd, Repeats: len(rises)})
	}
}

// placeWorst adds to the worst samples their rows in the files, first columns and pictures.
func (l *epochLoop) placeWorst(r *evalmetrics.Report) {
	if len(r.Worst) == 0 {
		return // without reading the data again
	}
	samples := make([]int32, len(r.Worst))
	for i, e := range r.Worst {
		samples[i] = int32(e.Sample)
	}
	places, values, pictures := l.data.set.Places(samples)
	for i := range r.Worst {
		e := &r.Worst[i]
		e.Place, e.Values, e.Image = places[i], values[i], pictures[i]
	}
}

// meanAndSD returns the mean and the standard deviation of one value, estimated with n-1.
func meanAndSD(values []float64) (mean, sd float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		sd += (v - mean) * (v - mean) / max(1, n-1)
	}
	return mean, math.Sqrt(sd)
}

package train

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

const (
	settingWeights   setting.Path = "training.class-weights"
	settingSmoothing setting.Path = "training.label-smoothing"

	// balancedWeights gives all classes the same share of the loss.
	balancedWeights  = "balanced"
	maxClassWeight   = 1e6
	maxPrintedWeight = 10 // classes of the printed line
)

// classWeight is a weight by the class's name.
type classWeight struct {
	name   string
	weight float64
}

// checkedWeights checks the syntax of Config.ClassWeights.
func checkedWeights(text string) (string, error) {
	_, err := parseWeights(text)
	return text, err
}

// parseWeights parses NAME=WEIGHT,…; "" and "balanced" name no class.
func parseWeights(text string) (out []classWeight, err error) {
	if text == "" || text == balancedWeights {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		at := strings.LastIndex(part, "=")
		if at < 1 {
			return nil, fmt.Errorf("%q: want %s, or weights by class such as fraud=5,ok=1", part, balancedWeights)
		}
		w := classWeight{name: part[:at]}
		if w.weight, err = strconv.ParseFloat(part[at+1:], 64); err != nil || !(w.weight > 0 && w.weight <= maxClassWeight) {
			return nil, fmt.Errorf("weight %q of class %q: want a number above 0 and at most %s", part[at+1:], w.name, quantity.Exact[float64](maxClassWeight))
		}
		if slices.ContainsFunc(out, func(o classWeight) bool { return o.name == w.name }) {
			return nil, fmt.Errorf("class %q has two weights: want one", w.name)
		}
		out = append(out, w)
	}
	return out, nil
}

// validateLoss adds errors for class weights and label smoothing that have no effect on the model.
func (c Config) validateLoss(spec model.Spec, f *setting.Faults) {
	_, err := parseWeights(c.ClassWeights)
	f.Add(err != nil, settingWeights, "%v", err)
	f.Add(!(c.LabelSmoothing >= 0 && c.LabelSmoothing < 1), settingSmoothing, "%s: want at least 0 and below 1", quantity.Exact(c.LabelSmoothing))
	for path, text := range c.lossSettings() {
		f.Add(spec.Task != model.Classify || spec.Targets > 0, path, "%s has no effect on model %s, which has no classes: leave it out", text, spec.Name)
		f.Add(c.Heter.Count > 0, path, "%s with heter.count %d: heter-trainers compute the loss without it: leave one out", text, c.Heter.Count)
	}
}

// lossSettings returns the settings that change the loss of training, by path.
func (c Config) lossSettings() map[setting.Path]string {
	out := map[setting.Path]string{}
	if c.ClassWeights != "" {
		out[settingWeights] = c.ClassWeights
	}
	if c.LabelSmoothing != 0 {
		out[settingSmoothing] = quantity.Exact(c.LabelSmoothing)
	}
	return out
}

// setLoss computes the loss of training from the settings and the training rows of all ranks. All
// ranks call it if they have different data sets.
func (d *runData) setLoss() error {
	for path, text := range d.cfg.lossSettings() {
		if d.spec.Task != model.Classify || d.set.Classes == 0 {
			return setting.Errorf(path, "%s has no effect on %s by model %s, which have no classes: leave it out", text, d.set.Name, d.spec.Name)
		}
	}
	if d.cfg.ClassWeights == "" {
		return nil
	}
	counts, err := d.classCounts()
	if err != nil {
		return fmt.Errorf("%v: %w", settingWeights, err)
	}
	weights, note, err := weightsOf(d.cfg.ClassWeights, d.set.Words, counts)
	if err != nil {
		return err
	}
	d.cfg.classWeights, d.notes = weights, append(d.notes, note)
	return nil
}

// classCounts counts the training samples of all ranks by class.
func (d *runData) classCounts() ([]int64, error) {
	if d.set.Train == nil {
		return nil, fmt.Errorf("data set %s has no samples to count before training", d.set.Name)
	}
	own, err := data.CountLabels(d.set.Train, d.set.Classes)
	if err != nil || d.shares.ranks == nil {
		return own, err
	}
	fingerprint, sum := d.set.Fingerprint(), make([]int64, len(own))
	err = eachSet(d.peers, fingerprint[:], own, func(rank int, counts []int64) error {
		if len(counts) != len(sum) {
			return fmt.Errorf("rank %d counts %d classes, not %d", rank, len(counts), len(sum))
		}
		for k, n := range counts {
			sum[k] += n
		}
		return nil
	})
	return sum, err
}

// weightsOf returns the weights of the classes, with a mean of 1 over the samples, and a line about
// them. Balanced weights are n/(K·count), for n samples of K classes, as scikit-learn's. A class
// without a weight by name has 1. With a mean of 1 the same learning rate fits as without weights,
// and the loss of a step does not depend on how samples are divided over batches.
func weightsOf(text string, names []string, counts []int64) (out []float32, note string, err error) {
	name := func(k int) string {
		if k < len(names) {
			return names[k]
		}
		return strconv.Itoa(k)
	}
	given, err := parseWeights(text)
	if err != nil {
		return nil, "", setting.Errorf(settingWeights, "%v", err)
	}
	n, present := int64(0), int64(0)
	for _, c := range counts {
		n += c
		present += min(c, 1)
	}
	raw, mean := make([]float64, len(counts)), 0.0
	for k := range raw {
		if raw[k] = 1; text == balancedWeights {
			raw[k] = float64(n) / float64(max(1, present*counts[k]))
		}
		if at := slices.IndexFunc(given, func(w classWeight) bool { return w.name == name(k) }); at >= 0 {
			raw[k] = given[at].weight
			given = slices.Delete(given, at, at+1)
		}
		mean += raw[k] * float64(counts[k]) / float64(n)
	}
	if len(given) > 0 {
		var all []string
		for k := range min(len(counts), 2*maxPrintedWeight) {
			all = append(all, name(k))
		}
		return nil, "", setting.Errorf(settingWeights, "%s: there is no class %q among %s (%s)", text, given[0].name, quantity.Count(len(counts), "class"), strings.Join(all, ", "))
	}
	var parts []string
	for k, w := range raw {
		if out = append(out, float32(w/mean)); counts[k] == 0 {
			out[k] = 1 // no step has a sample
			continue
		}
		if len(parts) < maxPrintedWeight {
			parts = append(parts, fmt.Sprintf("%s %s (%s)", name(k), quantity.FloatDigits(w/mean, 4), quantity.Count(counts[k], "row")))
		}
	}
	if more := int(present) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	if n == 0 {
		return nil, "", setting.Errorf(settingWeights, "%s: there are no training rows to count", text)
	}
	note = "weights of classes in the training loss, with a mean of 1 over the rows: " + strings.Join(parts, ", ")
	return out, note, nil
}

// trainingModel returns a model with the loss of training.
func (c Config) trainingModel(m model.Model) (model.Model, error) {
	for path, text := range c.lossSettings() {
		if reflect.ValueOf(m.Loss).Pointer() != reflect.ValueOf(model.CrossEntropy).Pointer() {
			return m, setting.Errorf(path, "%s has no effect on a loss other than model.CrossEntropy: leave it out, and use model.CrossEntropyWith", text)
		}
	}
	if c.ClassWeights != "" && c.classWeights == nil {
		return m, setting.Errorf(settingWeights, "%s: only Run counts the training rows by class: leave it out, and use model.CrossEntropyWith", c.ClassWeights)
	}
	if c.LabelSmoothing > 0 || c.classWeights != nil {
		m.Loss = model.CrossEntropyWith(nn.CrossEntropy{Smoothing: c.LabelSmoothing, Weights: c.classWeights})
	}
	return m, nil
}

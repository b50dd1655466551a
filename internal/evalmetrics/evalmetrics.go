// Package evalmetrics computes the tables of an evaluation, for classes, numbers or clicks. Each
// rank has a Counter, which encodes samples as words of 64 bits; the ranks gather all words, and
// Plan.Report computes the same report on every rank:
//
//	c := plan.NewCounter()
//	c.Add(pass)                     // each pass of the evaluation
//	words := gather(c.Words())      // of all ranks, in any order
//	report := plan.Report(words)
//
// # Exactness
//
// Counts are integers, and sums run over sorted words. The report therefore has the same bits for
// any division of the samples among ranks and threads. Metrics follow scikit-learn's definitions:
// averages count an undefined precision as 0, and exclude classes that neither a label nor a
// prediction has.
//
// # Cost
//
// A word of 8 bytes for each sample, and with Plan.Scores for each sample and class. Sorting is
// O(n log n).
package evalmetrics

import (
	"encoding/json"
)

// Kind is the kind of an evaluation's tables.
type Kind uint8

// Kinds. The zero value has no tables.
const (
	None    Kind = iota
	Classes      // one of several classes for each sample
	Numbers      // a number for each target
	Clicks       // the probability of an event for each sample
)

// Plan determines the tables of a model's evaluations, equal on all ranks.
type Plan struct {
	Kind Kind
	// Classes is the number of classes. Names are their names, or numbers for classes without one.
	Classes int
	Names   []string
	// Samples gathers a word for each sample, which all tables need. Scores gathers a word for each
	// sample and class, which the AUC of classes needs.
	Samples, Scores bool
	// Losses gathers each sample's loss and number, for Report.MeanLoss and Report.Worst, which has
	// Worst samples. Tables of several targets per sample have none.
	Losses bool
	Worst  int
	// By adds Report.Groups to the tables of clicks and of two classes. It needs Losses. nil means
	// none.
	By *Grouping
	// Unit is the column of the targets, "" without one. Value converts a target to the column's
	// unit; nil means no conversion.
	Unit  string
	Value func(float32) float64
}

// Report has the table of the plan's kind, or none.
type Report struct {
	Classes *ClassReport  `json:"classes,omitempty"`
	Numbers *NumberReport `json:"numbers,omitempty"`
	Clicks  *ClickReport  `json:"clicks,omitempty"`
	// Groups has metrics by the values of a column, with Plan.By.
	Groups *GroupReport `json:"groups,omitempty"`
	// Worst has the samples with the largest losses, the first of equal ones first.
	Worst []Example `json:"worst,omitempty"`
	// Importance has the inputs, the most important first.
	Importance []Importance `json:"importance,omitempty"`
	// MeanLoss is the mean of the samples' losses, with Plan.Losses.
	MeanLoss Value `json:"-"`
}

// Metrics returns the report's known summary metrics by JSON name. The prefix "macro_" marks a mean
// over the classes.
func (r Report) Metrics() map[string]float64 {
	out := map[string]float64{}
	add := func(name string, v Value) {
		if v.Known {
			out[name] = v.Value
		}
	}
	switch {
	case r.Classes != nil:
		c := r.Classes
		add("majority_accuracy", known(c.MajorityAccuracy))
		add("macro_f1", c.Macro.F1)
		add("macro_auc", c.MacroAUC)
	case r.Numbers != nil:
		n := r.Numbers
		add("rmse", known(n.RMSE))
		add("mae", known(n.MAE))
		add("r2", n.R2)
	case r.Clicks != nil:
		c := r.Clicks
		add("auc", c.AUC)
		add("logloss", known(c.LogLoss))
		add("calibration", c.Calibration)
	}
	return out
}

// Pass is the result of a model for a batch of samples: the first output, and labels or targets.
type Pass struct {
	Outputs []float32
	Labels  []int32
	Targets []float32
	Correct int // samples that the loss counts as correct, of a classifier
	// Index has the samples' numbers in the evaluation set.
	Index []int32
}

// Counter collects the passes of a thread or a rank.
type Counter struct {
	plan    Plan
	foreign uint64     // passes with outputs that are no scores of the plan's samples
	words   [][]uint64 // words of samples, and of scores by class
	chances []float64
	losses  [3][]uint64 // losses and numbers of the samples of words[0], and with plan.By clickWords
}

// NewCounter returns an empty Counter.
func (p Plan) NewCounter() *Counter {
	c := &Counter{plan: p}
	switch {
	case p.Kind == None || !p.Samples:
	case p.Kind == Classes && p.Scores:
		c.words = make([][]uint64, 1+p.Classes)
	default:
		c.words = make([][]uint64, 1)
	}
	return c
}

// Add counts the samples of a pass.
func (c *Counter) Add(p Pass) {
	if len(c.words) == 0 {
		return
	}
	c.addLosses(p)
	switch c.plan.Kind {
	case Classes:
		c.addClasses(p)
	case Numbers:
		c.addNumbers(p)
	case Clicks:
		c.addClicks(p)
	}
}

// Merge adds the samples of another Counter of the same plan.
func (c *Counter) Merge(o *Counter) {
	c.foreign += o.foreign
	for i, w := range o.words {
		c.words[i] = append(c.words[i], w...)
	}
	for i, w := range o.losses {
		c.losses[i] = append(c.losses[i], w...)
	}
}

// Words returns the collected samples as lists of words, the same number of lists for every Counter
// of the plan. Callers concatenate each Counter's k-th lists for Report. The number of words
// depends on the number of samples only.
func (c *Counter) Words() [][]uint64 {
	if len(c.words) == 0 {
		return nil
	}
	words := append([][]uint64{{c.foreign}}, c.words...)
	if c.plan.Losses {
		words = append(words, c.losses[:]...)
	}
	return words
}

// Report computes the tables from the words of all ranks, which it reorders. Without samples, or
// if the outputs do not have the plan's shape, the report is empty.
func (p Plan) Report(words [][]uint64) (r Report) {
	if len(words) < 2 || len(words[1]) == 0 || sum(words[0]) > 0 {
		return r
	}
	if n := len(words) - 3; p.Losses {
		p.reportLosses(&r, words[n], words[n+1], words[1])
		if outcomes := words[n+2]; p.By != nil && len(outcomes) == len(words[1]) {
			r.Groups = p.groupReport(outcomes, words[n+1])
		}
		words = words[:n]
	}
	switch p.Kind {
	case Classes:
		r.Classes = p.classReport(words[1], words[2:])
	case Numbers:
		r.Numbers = p.numberReport(words[1])
	case Clicks:
		r.Clicks = clickReport(words[1])
	}
	return r
}

func sum(words []uint64) (n uint64) {
	for _, w := range words {
		n += w
	}
	return n
}

// Value is a metric that may be undefined. As JSON it is the number, or null.
type Value struct {
	Value float64
	Known bool
}

// MarshalJSON writes the number, or null.
func (v Value) MarshalJSON() ([]byte, error) {
	if !v.Known {
		return []byte("null"), nil
	}
	return json.Marshal(v.Value)
}

// known returns a defined value.
func known(v float64) Value { return Value{v, true} }

// ratio returns a/b, undefined for a b of 0.
func ratio[N int64 | uint64](a, b N) Value {
	if b == 0 {
		return Value{}
	}
	return known(float64(a) / float64(b))
}

// or returns the value, or another if undefined.
func (v Value) or(other float64) float64 {
	if v.Known {
		return v.Value
	}
	return other
}

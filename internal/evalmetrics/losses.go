package evalmetrics

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Example is a sample of an evaluation with its loss.
type Example struct {
	// Sample is the number in the evaluation set, from 0.
	Sample int `json:"sample"`
	// Place is the file and the row, or the image; Values are the first columns as NAME=VALUE.
	Place  string   `json:"place,omitempty"`
	Values []string `json:"values,omitempty"`
	// Image is the picture of a sample that is an image, as a data: URL.
	Image string `json:"image,omitempty"`
	// Prediction and Truth are names of classes, numbers in the unit of the target, or a
	// probability and 0 or 1.
	Prediction any `json:"prediction"`
	Truth      any `json:"truth"`
	// Loss is the cross-entropy, the squared error in the unit of the target, or the log-loss.
	Loss float64 `json:"loss"`
}

// Importance is the rise of the mean loss if an input's values are permuted among the samples.
type Importance struct {
	Input string `json:"input"`
	// Rise is the mean over Repeats permutations, SD the standard deviation of one.
	Rise    float64 `json:"loss_rise"`
	SD      float64 `json:"sd"`
	Repeats int     `json:"repeats"`
}

// addLosses appends a loss and a number for each sample; outputs of another shape have none, and
// the tables reject them.
func (c *Counter) addLosses(p Pass) {
	n := len(p.Index)
	if !c.plan.Losses || n == 0 || len(p.Outputs)%n != 0 {
		return
	}
	width := len(p.Outputs) / n
	for i, number := range p.Index {
		loss, out := 0.0, p.Outputs[i*width:][:width]
		switch {
		case c.plan.Kind == Numbers && len(p.Targets) == n && width == 1:
			d := c.plan.value(out[0]) - c.plan.value(p.Targets[i])
			loss = d * d
		case len(p.Labels) == n && width == 1:
			loss = logLoss(float64(out[0]), p.Labels[i] == 1)
		case len(p.Labels) == n && p.Labels[i] >= 0 && int(p.Labels[i]) < width:
			loss = crossEntropy(out, p.Labels[i])
		default:
			return
		}
		if c.plan.By != nil { // clicks, or two classes
			x := float64(out[width-1])
			if width == 2 {
				x -= float64(out[0])
			}
			c.losses[2] = append(c.losses[2], clickWord(x, p.Labels[i] == 1))
		}
		c.losses[0] = append(c.losses[0], math.Float64bits(max(loss, 0)))
		c.losses[1] = append(c.losses[1], uint64(number))
	}
}

// logLoss returns the negative logarithm of the probability of a click's outcome.
func logLoss(logit float64, event bool) float64 {
	if event {
		logit = -logit
	}
	return max(logit, 0) + math.Log1p(math.Exp(-math.Abs(logit)))
}

// crossEntropy returns the negative logarithm of the label's probability.
func crossEntropy(logits []float32, label int32) float64 {
	most, sum := slices.Max(logits), 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - float64(most))
	}
	return math.Log(sum) + float64(most) - float64(logits[label])
}

// value converts a target to the column's unit.
func (p Plan) value(x float32) float64 {
	if p.Value == nil {
		return float64(x)
	}
	return p.Value(x)
}

// reportLosses adds MeanLoss and Worst. outcomes are the words of the samples, in the order of the
// losses; it does not change the lists.
func (p Plan) reportLosses(r *Report, losses, numbers, outcomes []uint64) {
	if len(losses) == 0 || len(losses) != len(outcomes) {
		return
	}
	sorted, total := slices.Clone(losses), 0.0
	slices.Sort(sorted) // bits of non-negative floats are ordered
	for _, w := range sorted {
		total += math.Float64frombits(w)
	}
	r.MeanLoss = known(total / float64(len(sorted)))
	if p.Worst == 0 {
		return
	}
	order := make([]int, len(losses))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(losses[b], losses[a]), cmp.Compare(numbers[a], numbers[b]))
	})
	for _, i := range order[:min(p.Worst, len(order))] {
		e := Example{Sample: int(numbers[i]), Loss: math.Float64frombits(losses[i])}
		switch w := outcomes[i]; p.Kind {
		case Classes:
			e.Truth, e.Prediction = p.name(int(w&^inTop5>>32)), p.name(int(w&math.MaxUint32))
		case Numbers:
			e.Truth, e.Prediction = p.value(math.Float32frombits(uint32(w>>32))), p.value(math.Float32frombits(uint32(w)))
		case Clicks:
			x, event := clickOf(w)
			e.Truth, e.Prediction = map[bool]int{true: 1}[event], float64(float32(1/(1+math.Exp(-x))))
		}
		r.Worst = append(r.Worst, e)
	}
}

// judged returns the tables of the worst samples and of the importance.
func (r Report) judged() (out []string) {
	outcome := func(v any) string {
		if x, ok := v.(float64); ok {
			return quantity.FloatDigits(x, 6)
		}
		return short(fmt.Sprint(v), 12)
	}
	if len(r.Worst) > 0 {
		out = append(out, quantity.Count(len(r.Worst), "sample")+" with the largest loss:", fmt.Sprintf("%10s %12s %12s  %s", "loss", "prediction", "truth", "sample"))
	}
	for _, e := range r.Worst {
		out = append(out, fmt.Sprintf("%10s %12s %12s  %s", number(e.Loss), outcome(e.Prediction), outcome(e.Truth), cmp.Or(e.Place, fmt.Sprint(e.Sample))))
		if len(e.Values) > 0 {
			out = append(out, "           "+short(strings.Join(e.Values, ", "), 69))
		}
	}
	if len(r.Importance) > 0 {
		out = append(out, fmt.Sprintf("rise of the loss, %s, if the values of one input are permuted, %s:", number(r.MeanLoss.Value), quantity.Count(r.Importance[0].Repeats, "time")),
			fmt.Sprintf("%-30s %12s %12s", "input", "mean", "deviation"))
	}
	for _, i := range r.Importance {
		out = append(out, fmt.Sprintf("%-30s %12s %12s", short(i.Input, 30), number(i.Rise), number(i.SD)))
	}
	return out
}

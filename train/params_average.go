package train

import (
	"fmt"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/nn"
)

const settingAverage setting.Path = "training.average"

// weightAverage is an exponential moving average of trained parameters and tables (Polyak and
// Juditsky 1992), with the increasing decay of TensorFlow's ExponentialMovingAverage: step t has
// the decay min(d, (1+t)/(10+t)), so that a short run forgets its random initial weights. Each rank
// averages its copy of the parameters. All copies are equal, so that no communication is needed.
//
// Cost: memory of the parameters again, and after each step a pass that moves three values each:
// reads of the parameter and the average, a write of the average.
type weightAverage struct {
	decay   float64
	kernels *simd.Kernels
	params  *nn.Params
	means   [][]float32 // of the slices of live
}

// newAverage returns the average of a replica's parameters, equal to their present values; nil for
// a decay of 0.
func newAverage(decay float64, k *simd.Kernels, ps *nn.Params) *weightAverage {
	if decay == 0 {
		return nil
	}
	a := &weightAverage{decay: decay, kernels: k, params: ps}
	for _, x := range a.live() {
		a.means = append(a.means, append(make([]float32, 0, len(x)), x...))
	}
	return a
}

// live returns the values that training changes: the slice of dense parameters, and the tables.
func (a *weightAverage) live() [][]float32 {
	out := [][]float32{a.params.Values()}
	for _, t := range a.params.Tables() {
		out = append(out, t.Data)
	}
	return out
}

// update adds the parameters after the given number of steps to the average.
func (a *weightAverage) update(steps int64) {
	t := float64(steps)
	rate := float32(1 - min(a.decay, (1+t)/(10+t)))
	for i, x := range a.live() {
		a.kernels.SGDPlain(a.means[i], x, -rate, -1, 1) // mean + rate*(x - mean)
	}
}

// swap exchanges the parameters and their average: for an evaluation, and after it.
func (a *weightAverage) swap() {
	if a == nil {
		return
	}
	for i, x := range a.live() {
		mean := a.means[i]
		for k := range x {
			x[k], mean[k] = mean[k], x[k]
		}
	}
}

// broadcast gives all ranks the average that rank 0 has read. The call is collective.
func (a *weightAverage) broadcast(g *collective.Group) error {
	if a == nil {
		return nil
	}
	for _, mean := range a.means {
		if err := collective.Broadcast(g, mean, 0); err != nil {
			return fmt.Errorf("broadcasting the average of the weights: %w", err)
		}
	}
	return nil
}

// trainedPrefix begins the names of the arrays with the parameters that training continues from. In
// such a checkpoint the arrays with the plain names are the average, so that all readers of weights
// get the average.
const trainedPrefix = "trained/"

// arraysOf returns the arrays of a parameter or table for a checkpoint. mean is the average of
// data, or nil without an average.
func arraysOf(name string, data, mean []float32) []checkpoint.Array {
	if mean == nil {
		return []checkpoint.Array{checkpoint.Floats(name, data)}
	}
	return []checkpoint.Array{checkpoint.Floats(name, mean), checkpoint.Floats(trainedPrefix+name, data)}
}

// ofParam returns the average of a parameter; nil for a frozen one.
func (a *weightAverage) ofParam(p *nn.Param) []float32 {
	if a == nil {
		return nil
	}
	for _, s := range a.params.Slots() {
		if s.Name == p.Name {
			return a.means[0][s.Offset : s.Offset+s.Len]
		}
	}
	return nil
}

// ofTable returns the average of table i.
func (a *weightAverage) ofTable(i int) []float32 {
	if a == nil {
		return nil
	}
	return a.means[1+i]
}

// validateAverage adds an error if ranks cannot compute an average, because they have no equal
// copies.
func (c Config) validateAverage(f *setting.Faults) {
	d := c.Average
	f.Add(!(d >= 0 && d < 1), settingAverage, "%s: want a decay above 0 and below 1, such as 0.999, or 0 for none", quantity.Exact(d))
	f.Add(d != 0 && c.Servers.Consistency != "", settingAverage, "%s: the parameters are on servers, and ranks average copies: leave it out, or use %v allreduce or sum", quantity.Exact(d), setting.Path("sync"))
	f.Add(d != 0 && c.Servers.Consistency == "" && c.Heter.Count > 0, settingAverage, "%s: heter-trainers have a part of the parameters: leave it out", quantity.Exact(d))
	f.Add(d != 0 && c.Exchange.Strategy == distopt.PartialUpdate, settingAverage, "%s: under strategy %s the ranks' parameters differ between steps: use another strategy", quantity.Exact(d), distopt.PartialUpdate)
}

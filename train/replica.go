package train

import (
	"fmt"

	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
)

// Replica is one rank's copy of a model, with the optimizer that keeps it equal
// to the others'.
type Replica struct {
	Params *nn.Params
	Opt    *distopt.Optimizer

	model   models.Model
	tape    *nn.Tape
	kernels *simd.Kernels
	x       *nn.Tensor // of the last batch's shape
	labels  []int32
	input   []int
}

// NewReplica builds the model that cfg names, with the initial parameters of
// rank 0. It is a collective call. batch is the largest number of samples that
// Batch is asked for.
func NewReplica(g *collective.Group, cfg Config, batch int) (*Replica, error) {
	spec, err := models.Lookup(cfg.Model)
	if err != nil {
		return nil, err
	}
	r := &Replica{Params: nn.NewParams(cfg.Seed), kernels: simd.Host(), input: spec.Input}
	r.model = spec.Build(r.Params, models.Options{Batch: batch})
	r.labels = make([]int32, batch)
	if err := r.Params.Arrange(r.dryRun); err != nil {
		return nil, fmt.Errorf("model %s: %w", cfg.Model, err)
	}
	r.tape = nn.NewTape(nn.TapeConfig{Kernels: r.kernels, Threads: cfg.Threads})
	sgd := &optim.SGD{LR: cfg.LR, Momentum: cfg.Momentum, WeightDecay: cfg.WeightDecay}
	r.Opt, err = distopt.New(g, sgd, layersOf(r.Params), r.Params.Values(), r.Params.Grads(), nil, cfg.Exchange)
	if err != nil {
		r.Close()
		return nil, err
	}
	if err := r.Opt.Broadcast(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// layersOf returns the arena's slots as the layers that a plan is made of.
func layersOf(ps *nn.Params) []bucket.Layer {
	slots := ps.Slots()
	layers := make([]bucket.Layer, len(slots))
	for i, s := range slots {
		layers[i] = bucket.Layer{Name: s.Name, Offset: s.Offset, Len: s.Padded}
	}
	return layers
}

// dryRun is one pass over one sample, which shows the order in which gradients
// become final.
func (r *Replica) dryRun(t *nn.Tape) *nn.Tensor {
	x, labels := r.Batch(1)
	clear(x.Data)
	clear(labels)
	loss, _ := r.model.Loss(t, models.Batch{N: 1, Values: x, Labels: labels})
	return loss
}

// Batch returns the input for n samples, to be filled by the caller: a tensor
// of shape [n, model's input...] and n labels. Both are reused by the next call.
func (r *Replica) Batch(n int) (*nn.Tensor, []int32) {
	if r.x == nil || r.x.Shape[0] != n {
		r.x = nn.NewTensor(append([]int{n}, r.input...)...)
	}
	return r.x, r.labels[:n]
}

// Result is what a batch was like.
type Result struct {
	Loss    float64 // mean per sample
	Correct int     // samples whose largest output is their label
}

// Backward runs the model over a batch and adds to the gradients. With last,
// it is the step's last backward: each gradient is handed to the optimizer as
// soon as it is final.
func (r *Replica) Backward(x *nn.Tensor, labels []int32, last bool) Result {
	r.tape.Reset()
	loss, out := r.model.Loss(r.tape, models.Batch{N: len(labels), Values: x, Labels: labels})
	res := Result{Loss: float64(loss.Data[0]), Correct: out.Correct}
	if last {
		r.tape.Backward(loss, r.Opt.GradReady)
	} else {
		r.tape.Backward(loss, nil)
	}
	return res
}

// Step ends a step: it waits for the agreed gradients and updates.
func (r *Replica) Step() error { return r.Opt.Step() }

// Evaluate runs the model over a batch without recording it for backward.
func (r *Replica) Evaluate(x *nn.Tensor, labels []int32) Result {
	r.tape.ResetEval()
	loss, out := r.model.Loss(r.tape, models.Batch{N: len(labels), Values: x, Labels: labels})
	return Result{Loss: float64(loss.Data[0]), Correct: out.Correct}
}

// Kernels names the instruction-set level of the kernels in use.
func (r *Replica) Kernels() string { return r.kernels.Name() }

// Close ends the replica's threads.
func (r *Replica) Close() { r.tape.Close() }

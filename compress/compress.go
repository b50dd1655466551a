// Package compress makes gradients smaller for their exchange: it selects the
// large entries, or stores values in fewer bits, and keeps what was not sent for
// later steps (error feedback). It knows nothing of networks.
//
// A [Chain] is a list of stages, checked when it is made:
//
//	chain, err := compress.NewChain(compress.Clip{Max: 1}, compress.DLGS{Ratio: 0.01}, compress.FP16{})
//
// Stages are of three kinds, and anyone may write more of each: a [Transform]
// changes the gradient before anything is selected (clipping, momentum
// correction), a [Selector] chooses which entries are sent, a [Quantiser] stores
// values in fewer bits. [Chain.Bind] makes the state for a model, a
// [Compressor], which works on groups: ranges of the arena of gradients that
// are exchanged together.
//
//	c, err := chain.Bind(params, len(grads), nil)
//	err = c.SetGroups([]compress.Bucket{{Lo: 0, Hi: len(grads)}})
//	for each step {
//	    err = c.Select(&sparse, 0, grads)     // what others shall see of it; the rest is kept
//	    payload, err = c.Encode(payload[:0], &sparse)
//	    // send payload; then for the payload of each rank, in the order of ranks:
//	    err = c.Decode(&sparse, payload)
//	    sparse.AddTo(sum)
//	}
//
// Without a Selector all entries are sent, and Round takes the place of Select:
// it leaves in the gradients what others will decode. EncodeDense and
// DecodeDense then carry any range of them. Where sums are stored in fewer bits
// again, as in an allgather after a reduce-scatter, the owner of a range must go
// on with its own decoded result and not with the sum it had, so that replicas
// stay equal: [Compressor.DecodeDense] what EncodeDense gave.
//
// What is kept is the property of the parameters, not of the groups: it is
// unchanged when groups change, has the parameter's name in a checkpoint, and
// can be handed over when the number of ranks changes ([Compressor.Absorb]).
//
// A NaN is an error that names the parameter; so is a value that a code has no
// room for. After such an error the state of the group is unspecified: go back
// to a checkpoint.
//
// Results have the same bits on every machine and with every number of threads.
// A step allocates nothing once buffers have grown.
package compress

import (
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// Stage is a step of a chain: a [Transform], a [Selector] or a [Quantiser]. It
// is a value without state; its fields are its settings.
type Stage interface {
	// Name is the stage with its settings, such as "topk(0.01)": for errors and
	// logs.
	Name() string
	// Validate reports every bad setting.
	Validate() error
}

// Transform changes gradients before they are selected from or stored.
type Transform interface {
	Stage
	// Bind makes the state for an arena of parameters.
	Bind(l *Layout) Transformer
}

// Transformer is a Transform with its state.
type Transformer interface {
	// Apply changes the gradients of the arena's range [lo, lo+len(grad)) in
	// place.
	Apply(lo int, grad []float32)
	// Sent says which entries of the arena were sent, lo+index[i] each.
	Sent(lo int, index []int32)
	// State is what a checkpoint holds, as that of a [Compressor].
	State() []optim.State
}

// Selector chooses which entries are sent.
type Selector interface {
	Stage
	// Bind makes the state for a range with n > 0 values that are selected from
	// together. What Select is given may be longer: padding, which is zero, lies between
	// parameters and is not counted.
	Bind(n int) Selection
}

// Selection is a Selector with its state.
type Selection interface {
	// Select adds grad to residual and moves what is to be sent out of it: it
	// appends base+i and the value to s, in ascending order, and leaves zero at
	// residual[i]. The lengths are equal. grad is not changed. A NaN in the sum
	// is always among what is moved, and is found there.
	Select(w *Workspace, s *Sparse, base int, residual, grad []float32)
	// Last tells about the last Select.
	Last() Pick
	// State is what a checkpoint holds; nil: nothing. The caller may overwrite
	// its data between steps.
	State() []optim.State
}

// Pick is how a selection was made.
type Pick struct {
	Threshold float32 // the smallest magnitude that was certain to be sent
	Exact     bool    // by a full selection, not by comparing with a threshold only; all above Threshold is sent
}

// Quantiser stores values in bytes. The same values give the same bytes, and
// values that were decoded give the bytes that they came from, if they are
// coded from the same place of a block on.
type Quantiser interface {
	Stage
	// Code names the code in a payload. Values from 128 on are free for codes
	// outside of this package.
	Code() byte
	// Block is how many values are coded together; 1: each by itself.
	Block() int
	// Size is how many bytes n values take.
	Size(n int) int
	// Encode stores x in dst, of Size(len(x)) bytes. The error is a *ValueError
	// where a value has no code, NaN among others.
	Encode(dst []byte, x []float32) error
	// Decode is the inverse: dst has any length, src Size(len(dst)) bytes. It
	// returns an error where src has no form that Encode gives; that a value is none,
	// is for those to notice who decode payloads ([Coder.Decode] does).
	Decode(dst []float32, src []byte) error
	// Feedback tells whether what a dense code loses is kept and added in the
	// next step.
	Feedback() bool
}

// Pool runs work on several threads.
type Pool interface {
	// Threads is how many parts can run at the same time.
	Threads() int
	// Run calls part(0) to part(parts-1), in any order, and returns when all
	// have returned.
	Run(parts int, part func(i int))
}

// Workspace is working memory that selections share. It is used by one
// goroutine at a time; its zero value works, on one thread.
type Workspace struct {
	pool     Pool
	kernels  *simd.Kernels // nil: the host's
	take     take
	counts   []uint32 // of the histogram, twice
	runs     []uint32 // where the runs of a sample begin
	sample   []float32
	middle   []float32 // candidates that may be the k-th
	lowIndex []int32   // candidates that are not among the k
	lowValue []float32
	values   []float32 // decoded
	bytes    []byte
	segments []segment
	part     func(i int)
}

// NewWorkspace returns a workspace that works on the threads of pool; nil: on
// the caller's.
func NewWorkspace(pool Pool) *Workspace { return &Workspace{pool: pool} }

func (w *Workspace) kernel() *simd.Kernels {
	if w.kernels == nil {
		w.kernels = simd.Host()
	}
	return w.kernels
}

// Package compress makes gradients smaller for their exchange: it selects the large entries, or
// stores values in fewer bits, and retains the difference for later steps (error feedback). It does
// not depend on networks.
//
// A [Chain] is a checked list of stages:
//
//	chain, err := compress.NewChain(
//	    compress.Clip{Max: 1}, compress.DLGS{Ratio: 0.01}, compress.FP16{})
//
// Stages are of three kinds, open for implementations elsewhere: a [Transform] changes the gradient
// before the selection (clipping, momentum correction), a [Selector] chooses the entries to send, a
// [Quantiser] stores values in fewer bits. [Chain.Bind] creates the state for a model, a
// [Compressor]. It works on groups: ranges of the arena (the slice of all gradients) that are
// exchanged together.
//
//	c, err := chain.Bind(params, len(grads), nil)
//	err = c.SetGroups([]compress.Bucket{{Lo: 0, Hi: len(grads)}})
//	for each step {
//	    err = c.Select(&sparse, 0, grads)     // the entries to send; the rest becomes the residual
//	    payload, err = c.Encode(payload[:0], &sparse)
//	    // send payload; then for the payload of each rank, in the order of ranks:
//	    err = c.Decode(&sparse, payload)
//	    sparse.AddTo(sum)
//	}
//
// Without a Selector all entries are sent, and Round replaces Select: it overwrites the gradients
// with the values that other ranks will decode. EncodeDense and DecodeDense then carry any range.
// In a reduce-scatter and an allgather, the rank that sums a range encodes the sum again for the
// other ranks. It must then replace its sum by [Compressor.DecodeDense] of that payload, so that
// all ranks have equal values.
//
// Residuals (unsent values) belong to parameters, not to groups: a change of groups does not change
// them, a checkpoint stores them under the parameters' names, and [Compressor.Absorb] adds those of
// other ranks when the number of ranks changes.
//
// A NaN is an error that names the parameter, as is a value outside a code's range. After such an
// error the state of the group is unspecified: restore a checkpoint.
//
// Results have the same bits on every machine and with any number of threads. A step allocates no
// memory after its buffers have grown.
package compress

import (
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/optim"
)

// Stage is a stage of a chain: a [Transform], a [Selector] or a [Quantiser]. It is a value without
// state; its fields are its settings.
type Stage interface {
	// Name returns the stage with its settings, such as "topk(0.01)", for errors and logs.
	Name() string
	// Validate reports every bad setting.
	Validate() error
}

// Transform changes gradients before selection or storage.
type Transform interface {
	Stage
	// Bind makes the state of the transform for the parameters of l.
	Bind(l *Layout) Transformer
}

// Transformer is a Transform with its state.
type Transformer interface {
	// Apply changes grad, the gradients of values lo to lo+len(grad) of all gradients, in place.
	Apply(lo int, grad []float32)
	// Sent reports the entries that were sent: values lo+index[i] of all gradients.
	Sent(lo int, index []int32)
	// State returns the transform's data for a checkpoint, as [Compressor.State] does.
	State() []optim.State
}

// Selector chooses the entries to send.
type Selector interface {
	Stage
	// Bind creates the state for selections from a range with n > 0 values. Slices passed to Select
	// may be longer than n: the additional values are padding between parameters, and always zero.
	Bind(n int) Selection
}

// Selection is a Selector with its state.
type Selection interface {
	// Select adds grad to residual and moves to s the entries that are to be sent: it appends
	// base+i and the value, in ascending order, and sets residual[i] to zero. The lengths are
	// equal. grad does not change. Select always moves a NaN to s, where the caller detects it.
	Select(w *Workspace, s *Sparse, base int, residual, grad []float32)
	// Last returns how the last Select chose entries.
	Last() Pick
	// State returns data for a checkpoint, or nil. The caller may overwrite it between steps.
	State() []optim.State
}

// Pick describes a selection: its threshold, and whether it was exact.
type Pick struct {
	Threshold float32 // the smallest magnitude certain to be sent
	Exact     bool    // an exact selection of the largest, not a comparison with an earlier threshold
}

// Quantiser stores values in bytes. Equal values give equal bytes. A decoded value, encoded again
// at the same place in a block, gives the bytes from which it was decoded.
type Quantiser interface {
	Stage
	// Code identifies the code in a payload. Other packages can use values from 128 on.
	Code() byte
	// Block is the number of values that are coded together; 1 means that each value is coded
	// separately.
	Block() int
	// Size is the number of bytes for n values.
	Size(n int) int
	// Encode stores x in dst, of Size(len(x)) bytes. A value without a code, such as NaN, is a
	// *ValueError.
	Encode(dst []byte, x []float32) error
	// Decode is the inverse of Encode: dst has any length, src has Size(len(dst)) bytes. Bytes that
	// Encode never writes are an error. [Coder.Decode] checks the values for NaN.
	Decode(dst []float32, src []byte) error
	// Feedback reports whether rounding errors are kept for the next step, if all values are sent.
	Feedback() bool
}

// Pool runs work on several threads.
type Pool interface {
	// Threads is the maximum number of simultaneous parts.
	Threads() int
	// Run calls part(0) to part(parts-1), in any order, and returns when all
	// have returned.
	Run(parts int, part func(i int))
}

// Workspace is the working memory that selections share, for one goroutine at a time. The zero
// value is ready for use, on one thread.
type Workspace struct {
	pool     Pool
	kernels  *simd.Kernels // nil: the host's
	take     take
	counts   []uint32 // two histograms
	runs     []uint32 // beginnings of a sample's runs
	sample   []float32
	middle   []float32 // candidates for the k-th
	lowIndex []int32   // candidates outside the k largest
	lowValue []float32
	values   []float32 // decoded
	bytes    []byte
	segments []segment
	part     func(i int)
}

// NewWorkspace returns a workspace on the threads of pool; nil means the caller's.
func NewWorkspace(pool Pool) *Workspace { return &Workspace{pool: pool} }

func (w *Workspace) kernel() *simd.Kernels {
	if w.kernels == nil {
		w.kernels = simd.Host()
	}
	return w.kernels
}

// Package exchange sums encoded gradients over the ranks: values in fewer bits, and vectors with
// few entries. If a collective operation cannot sum a code, the exchange uses several, and every
// rank ends with the same bits.
//
// [NewGroupReducer] makes a [Reducer] of a group of ranks. It uses:
//
//   - float32, dense: the group's allreduce.
//   - float16 and bfloat16, dense: values are divided by the number of ranks, so that their sum
//     does not overflow, cast, and reduced by the group's allreduce.
//   - any other code, dense: every rank sums a chunk of all ranks' decoded values, codes the sum,
//     and continues with the decoded sum, as all ranks do. The rank retains the compression error
//     ([Request.SumError]).
//   - sparse: by [AllGather], [Tree], [Split] or [Dense], see [Choose].
//
// Sums are added in the order of ranks, except by Tree and Dense: their order depends only on the
// number of ranks and the length.
package exchange

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Reducer replaces each rank's gradients by their sum over the ranks. Operations match by the order
// of Start, which must be the same on every rank. A single goroutine uses it; several operations
// may be in flight.
type Reducer interface {
	// Start begins op, which owns its slices until Wait has returned. Wait returns any error.
	Start(op *Request)
	// Wait waits for op and returns its end, which may be long before, or an error with the
	// operation, the rank and the peer.
	Wait(op *Request) (end time.Time, err error)
	// Close ends the reducer. Only failed operations may be in flight.
	Close() error
}

// Request is an exchange of a bucket of gradients. After Wait, Start may use it again, without new
// memory.
type Request struct {
	// X is the bucket's range of the slice of all gradients (arena). Unless Sparse is set, it is
	// this rank's contribution. After Wait it is the sum over the ranks, in an order that does not
	// depend on timing.
	X []float32
	// Lo is the index of X in the arena.
	Lo int
	// Bucket names the bucket in errors; without it they only contain the index in the arena.
	Bucket BucketInfo
	// Sparse is this rank's contribution if few entries are sent: of length len(X), with values as
	// Code decodes them (compress.Compressor.Select).
	Sparse *compress.Sparse
	// MaxEntries limits the entries of a sparse sum, equally on every rank; 0 means no limit. An
	// exchange that sums in parts (Split) may select the largest entries of each part, which bounds
	// traffic for any number of ranks (Ok-Topk). After such an exchange Sparse begins with
	// Sent.Excluded entries of this rank that the sum excludes, for the rank's residual (unsent
	// values); its other entries follow, up to Sent.Entries, in any order.
	MaxEntries int
	// Code is the code of values on the wire; nil means FP32. X of a dense bucket has values as
	// Code decodes them (compress.Compressor.Round).
	Code compress.Quantiser

	// Sent describes the last exchange, after Wait.
	Sent Result
	// SumError is this rank's part of the compression error of a dense sum: over all ranks, X and
	// SumError add up to the sum of the contributions, up to rounding. Callers add it to the rank's
	// residual, because small values would otherwise be rounded to zero in every step. It is valid
	// until the next Start, and empty if the code of the sum needs no feedback.
	SumError []ErrorSpan
	// ReducerState is the reducer's private state of the operation between exchanges.
	ReducerState any
}

// BucketInfo names a bucket: its number in the plan, and its first and last layer.
type BucketInfo struct {
	Number      int
	First, Last string // "" without a name
	// Label is the bucket's name in the group's recorder.
	Label record.Name
}

// start sets the bucket of a group's next operations.
func (b BucketInfo) start(g *collective.Group) {
	if b.First == "" {
		g.For(-1, 0)
		return
	}
	g.For(b.Number, b.Label)
}

// String is "bucket 3 (conv1.weight … fc.bias)"; "" without layers.
func (b BucketInfo) String() string {
	if b.First == "" {
		return ""
	}
	return failure.Bucket(fmt.Sprintf("bucket %d", b.Number), b.First, b.Last)
}

// ErrorSpan is the compression error of a sum, from X[At] on.
type ErrorSpan struct {
	At     int
	Values []float32
}

// Result describes a completed exchange.
type Result struct {
	Algorithm string // such as "ring", "allgather" or "split"
	Bytes     int64  // payload sent by this rank; 0 if ranks share memory
	Entries   int    // contributed by this rank; len(X) of a dense bucket
	Dense     bool   // the exchange was dense, possibly because it was cheaper
	Excluded  int    // entries that the sum excluded; Request.Sparse has them, if any
}

// Package exchange sums what codecs made of gradients over the ranks: values in
// fewer bits, and vectors of which few entries are present. What cannot be summed
// inside a collective operation is carried by several here, and every rank ends
// with the same bits.
//
// [NewGroupReducer] makes a [Reducer] of a group of ranks. How it carries what:
//
//   - float32, dense: the group's allreduce.
//   - float16 and bfloat16, dense: values are divided by the number of ranks, so that
//     their sum has room, cast, and reduced by the group's allreduce.
//   - any other code, dense: every rank sums one chunk of what all decode, codes the
//     sum, and goes on with what it decodes of that, as all others do. What the sum
//     loses by that is left with the rank ([Request.SumError]).
//   - sparse: by [AllGather], [Tree], [Split] or [Dense], see [Choose].
//
// Sums are added in the order of ranks, by Tree and Dense in another one that
// depends on nothing but the number of ranks and the length.
package exchange

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Reducer replaces each rank's gradients by their sum over the ranks. Operations
// are matched by the order in which they are started, which must be the same on
// every rank. It is used by one goroutine; several operations may be under way.
type Reducer interface {
	// Start begins op, whose slices belong to it until Wait has returned. A fault
	// is kept for Wait.
	Start(op *Request)
	// Wait waits for op and returns when it ended, which may have been long
	// before, or its fault, which names the operation, the rank and the peer.
	Wait(op *Request) (end time.Time, err error)
	// Close ends the reducer. Nothing may be under way but what has failed.
	Close() error
}

// Request is one exchange: of a bucket of gradients. It may be started again once Wait
// has returned, and then needs no new memory.
type Request struct {
	// X is the bucket's place in the arena of gradients. What it holds is this
	// rank's contribution unless Sparse is set; afterwards it holds the sum over the
	// ranks, added in an order that does not depend on timing.
	X []float32
	// Lo is X's first value's place in the arena.
	Lo int
	// Bucket is what errors call it; of the zero value they tell the place in the arena alone.
	Bucket BucketInfo
	// Sparse is this rank's contribution where few entries are sent: of length
	// len(X), its values as Code decodes them (compress.Compressor.Select).
	Sparse *compress.Sparse
	// MaxEntries, above 0, is how many entries a sparse sum may have, the same on every rank.
	// An exchange that meets the sum in parts (Split) may keep to the largest entries
	// of each, which bounds what travels whatever the number of ranks (Ok-Topk). If
	// Sent.Excluded is above 0, Sparse then holds what this rank contributed to entries
	// that were left out, to be added to its residual, and behind its length, up to
	// Sent.Entries, the others in any order. 0: the sum is whole.
	MaxEntries int
	// Code is how values travel, FP32 if nil. Of a dense bucket X holds values as
	// Code decodes them (compress.Compressor.Round).
	Code compress.Quantiser

	// Sent is what the last exchange was, once Wait has returned.
	Sent Result
	// SumError is what coding the dense sum lost, where it falls to this rank: over all ranks
	// X and SumError add up to the sum of what was contributed, each value to within its
	// rounding. It is to be added to the rank's residual, for the sum's rounding is as
	// coarse as a rank's largest value, and small ones would never arrive. It is valid
	// until the next Start, and empty where sums are not coded, or in a code without feedback.
	SumError []ErrorSpan
	// ReducerState is what a reducer keeps of the operation from one exchange to the next.
	// It is the reducer's alone.
	ReducerState any
}

// BucketInfo names a bucket: its number in the plan, and the layers that it begins and ends
// with.
type BucketInfo struct {
	Number      int
	First, Last string // "" where the bucket has no name
	// Label is what the group's recorder calls it.
	Label record.Name
}

// start says that a group's next operations are of the bucket.
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

// ErrorSpan is a part of a sum that was lost: of the values from X[At] on.
type ErrorSpan struct {
	At     int
	Values []float32
}

// Result describes an exchange that has ended.
type Result struct {
	Algorithm string // such as "ring", "allgather" or "split"
	Bytes     int64  // of payload that this rank sent; none where ranks share memory
	Entries   int    // this rank contributed; len(X) of a dense bucket
	Dense     bool   // the exchange was dense, be it because that is cheaper
	Excluded  int    // entries that the sum left out; Request.Sparse holds them if there are any
}

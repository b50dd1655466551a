// Package bindings carries out requests of a program in another language: operands are addresses
// and lengths; types, operations and reductions are numbers. Package bindings is the C-free part of
// capi.
package bindings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/collective"
)

// Kind is an operation. The numbers are part of the C interface: new numbers come last, and none
// changes.
type Kind uint8

// The operations of package collective.
const (
	AllReduce     Kind = iota // X, N values
	Broadcast                 // X, N values; Peer is the root
	Reduce                    // X, N values; Peer is the root
	Send                      // X, N values; Peer is the receiver
	Receive                   // X, N values; Peer is the sender
	ReduceScatter             // Src, N values for each rank, to Dst, N values
	AllGather                 // Src, N values, to Dst, N values of each rank
	Gather                    // see AllGather; only the root, Peer, has Dst
	Scatter                   // Src, N values for each rank, to Dst, N values; only the root, Peer, has Src
	AllToAll                  // Src to Dst, N values for and of each rank
	AllGatherV                // Src, DstCounts[this rank] values, to Dst, DstCounts[r] values of rank r
	AllToAllV                 // Src, SrcCounts[r] values for rank r, to Dst, DstCounts[r] of rank r
	Barrier                   // no operand
	Listen                    // Receive without the job's timeout
	AllGatherTo               // Src, N values, to Parts[r], N values of rank r
	kinds
)

// Type is the type of values. The numbers are part of the C interface, too.
type Type uint8

// The types of package collective.
const (
	Float32 Type = iota
	Float64
	Int32
	Int64
	Uint8
	Float16
	BFloat16
	types
)

func (t Type) size() int { return [...]int{4, 8, 4, 8, 1, 2, 2}[t] }

// Request is an operation of a group. An operand X, changed in place, is passed in Dst.
type Request struct {
	Kind      Kind
	Type      Type
	Op        collective.ReduceOp
	Peer      int              // rank in the group
	Dst, Src  unsafe.Pointer   // borrowed until the operation's end
	N         int              // values, see each Kind
	DstCounts []int            // per rank, not kept
	SrcCounts []int            // per rank, not kept
	Parts     []unsafe.Pointer // per rank, not kept; the targets are used as Dst

	dst, src int // values, see measure
}

// Misuse reports a wrong request, option or handle. Nothing was started: other ranks with right
// requests wait for this rank.
type Misuse struct{ text string }

// Misusef makes a Misuse.
func Misusef(format string, args ...any) *Misuse { return &Misuse{fmt.Sprintf(format, args...)} }

// decode parses JSON without unknown fields, and with nothing after it.
func decode(what, text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return Misusef("%s: %v", what, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Misusef("%s: text after the end of the JSON", what)
	}
	return nil
}

// Error is the text.
func (m *Misuse) Error() string { return m.text }

// measure checks r and sets each operand's length.
func (r *Request) measure(g *collective.Group) error {
	switch {
	case r.Kind >= kinds:
		return Misusef("%d is not an operation", r.Kind)
	case r.Type >= types:
		return Misusef("%d is not a type: want 0 to %d", r.Type, types-1)
	case r.N < 0:
		return Misusef("more values than memory can hold")
	}
	size, root := g.Size(), g.Rank() == r.Peer
	all, fits := times(r.N, size)
	if _, small := times(all, r.Type.size()); !fits || !small {
		return Misusef("%d values for each of %d ranks are more than memory can hold", r.N, size)
	}
	var err error
	switch r.Kind {
	case Barrier:
		return nil
	case ReduceScatter:
		r.dst, r.src = r.N, all
	case AllGather:
		r.dst, r.src = all, r.N
	case AllGatherTo:
		if r.src = r.N; len(r.Parts) != size {
			return Misusef("%d addresses for parts, want one for each of %d ranks", len(r.Parts), size)
		}
	case Gather:
		if r.src = r.N; root {
			r.dst = all
		}
	case Scatter:
		if r.dst = r.N; root {
			r.src = all
		}
	case AllToAll:
		r.dst, r.src = all, all
	case AllGatherV:
		if r.dst, err = r.sum("counts", r.DstCounts, size); err == nil {
			r.src = r.DstCounts[g.Rank()]
		}
	case AllToAllV:
		if r.dst, err = r.sum("counts of what comes", r.DstCounts, size); err == nil {
			r.src, err = r.sum("counts of what goes", r.SrcCounts, size)
		}
	default:
		r.dst = r.N
	}
	if err != nil {
		return err
	}
	return r.present()
}

// present reports an operand without an address.
func (r *Request) present() error {
	if r.dst > 0 && r.Dst == nil || r.src > 0 && r.Src == nil {
		return Misusef("an operand of %d values has no address: it is NULL", max(r.dst, r.src))
	}
	for rank, p := range r.Parts {
		if r.N > 0 && p == nil {
			return Misusef("the part of rank %d, %d values, has no address: it is NULL", rank, r.N)
		}
	}
	return nil
}

// sum is the sum of counts.
func (r *Request) sum(what string, counts []int, size int) (all int, err error) {
	if len(counts) != size {
		return 0, Misusef("%d %s, want one for each of %d ranks", len(counts), what, size)
	}
	for rank, n := range counts {
		if n < 0 || n > math.MaxInt/r.Type.size()-all {
			return 0, Misusef("%s: those to rank %d are more than memory can hold", what, rank)
		}
		all += n
	}
	return all, nil
}

// times is a product, checked for overflow, of nonnegative numbers.
func times(a, b int) (product int, fits bool) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	return int(low), high == 0 && low <= math.MaxInt
}

func parts[T collective.Number](addresses []unsafe.Pointer, n int) [][]T {
	out := make([][]T, len(addresses))
	for i, p := range addresses {
		out[i] = at[T](p, n)
	}
	return out
}

func at[T collective.Number](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

package collective

import (
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/transport"
)

// Operations over shared memory, other than allreduce, are one exchange. Every rank publishes a
// slice, its source; then each rank copies or reduces its parts of all sources.
//
// A source in an arena, a rank's part of shared memory, is read in place, in one pass; the
// operation returns after all ranks have read. Any other source is copied to a staging buffer, or,
// up to 48 bytes, to the cache line of the arrival. Sources larger than the staging buffer take
// rounds: round t reads piece t of each part, and copies piece t+1 to staging.
//
// Cost, with K bytes per receiving rank: K read and written by that rank, and K by the ranks that
// copy to staging. Ranks wait for each other once up to copyLimit, twice for sources in arenas,
// else in each round.

// parts returns the number of parts of a source: one for each rank, or a single part for all.
func (w *Work) parts() int {
	switch w.kind {
	case kindReduceScatter, kindScatter, kindAllToAll, kindAllToAllV:
		return w.g.size
	}
	return 1
}

// source returns the slice that this rank publishes.
func (w *Work) source() []byte {
	switch w.kind {
	case kindAllGather, kindAllGatherV, kindGather:
		return w.src
	case kindBroadcast, kindScatter:
		if w.g.rank != w.root {
			return nil
		}
	}
	return w.x
}

// sourceBytes returns the length of all sources that are not empty; ok is false if it can differ.
func (w *Work) sourceBytes() (n int, ok bool) {
	switch w.kind {
	case kindAllGather, kindGather:
		return len(w.src), true
	case kindScatter:
		return len(w.dst) * w.g.size, true
	case kindAllGatherV, kindAllToAllV:
		return 0, false
	}
	return len(w.x), true
}

// partOf returns the bounds of part p in this rank's source.
func (w *Work) partOf(p int) (lo, hi int) {
	switch {
	case w.parts() == 1:
		return 0, len(w.source())
	case w.kind == kindAllToAllV:
		if p > 0 {
			lo = w.outs[p-1]
		}
		return lo, w.outs[p]
	}
	n := len(w.source()) / w.g.size
	return p * n, (p + 1) * n
}

// goal returns the memory to which this rank writes its part of rank i's source; its length is the
// part's. A reduction has the same destination for all sources.
func (w *Work) goal(i int) []byte {
	switch w.kind {
	case kindReduceScatter, kindAllToAll, kindScatter, kindAllToAllV:
		switch {
		case w.kind == kindAllToAllV:
			return stretch(w.dst, w.ends, i)
		case w.kind == kindAllToAll:
			n := len(w.dst) / w.g.size
			return w.dst[i*n:][:n]
		case w.kind == kindReduceScatter || i == w.root:
			return w.dst
		}
	case kindAllGatherV:
		return stretch(w.x, w.ends, i)
	case kindAllGather:
		if len(w.separateOuts) > 0 {
			return w.separateOuts[i]
		}
		return w.x[i*len(w.src):][:len(w.src)]
	case kindGather:
		if w.g.rank == w.root {
			return w.x[i*len(w.src):][:len(w.src)]
		}
	case kindReduce:
		if w.g.rank == w.root {
			return w.x
		}
	case kindBroadcast:
		if i == w.root && w.g.rank != w.root {
			return w.x
		}
	}
	return nil
}

func (w *Work) directExchange() error {
	src := w.source()
	if n, ok := w.sourceBytes(); ok && w.inline(n) {
		if err := w.arriveInline(src); err != nil {
			return err
		}
		return w.takeAll(inlineView, 0, inlineSize)
	}
	if err := w.arriveSource(src); err != nil {
		return err
	}
	most, all, some := w.survey()
	room := w.partRoom()
	switch {
	case all && w.kind == kindReduce && most > 0:
		return w.reduceToRoot()
	case all:
		room = max(most, 1)
	}
	for t := 0; ; t++ {
		if err := w.takeAll(shownView, t, room); err != nil {
			return err
		}
		last := (t+1)*room >= most
		if last && !some {
			return nil
		}
		if !last {
			w.stageParts(t+1, room)
		}
		if err := w.step(t + 1); err != nil || last {
			return err
		}
	}
}

// arriveSource arrives with the offset of src if it is in the arena; otherwise it first copies a
// piece to staging.
func (w *Work) arriveSource(src []byte) error {
	place, most := nowhere, 0
	if len(src) > copyLimit {
		place = w.place(src)
	}
	for p := range w.parts() {
		lo, hi := w.partOf(p)
		most = max(most, hi-lo)
	}
	if w.kind == kindAllToAllV {
		table := w.table(w.g.share.me)
		for p, end := range w.outs {
			table[p] = int64(end)
		}
	}
	if place == nowhere {
		w.stageParts(0, w.partRoom())
	}
	return w.arrive(place, most)
}

// survey reads all arrivals and returns the length of the largest part, and whether all sources, or
// some, are in arenas. Empty sources count as in arenas.
func (w *Work) survey() (most int, all, some bool) {
	all = true
	for _, show := range w.arrivals {
		most = max(most, show.most)
		all, some = all && (show.placed || show.most == 0), some || show.placed
	}
	return most, all, some
}

// table returns rank i's table of AllToAllV: the ends of the parts of its source.
func (w *Work) table(i int) []int64 {
	return bytesview.As[int64](w.g.share.stage(w.number, i)[:8*w.g.size])
}

// pieces returns rank i's staging buffer: two pieces per part, for alternate rounds.
func (w *Work) pieces(i int) []byte {
	stage := w.g.share.stage(w.number, i)
	if w.kind == kindAllToAllV {
		return stage[(8*w.g.size+cacheLine-1)&^(cacheLine-1):]
	}
	return stage
}

// partRoom returns the size of one part's piece.
func (w *Work) partRoom() int {
	return len(w.pieces(0)) / 2 / w.parts() &^ (cacheLine - 1)
}

func (w *Work) stageParts(t, room int) {
	src, to := w.source(), w.pieces(w.g.share.me)
	for p := range w.parts() {
		lo, hi := w.partOf(p)
		if from := lo + t*room; from < hi {
			copy(to[(t%2*w.parts()+p)*room:][:room], src[from:hi])
		}
	}
}

// view is a function that returns bytes [from, to), which are piece t, of this rank's part of rank
// i's source. The part begins at lo of the source.
type view func(w *Work, i, lo, from, to, t, room int) []byte

func inlineView(w *Work, i, lo, from, to, _, _ int) []byte {
	return w.g.share.flag(w.number, i, lineArrived).Inline[lo+from : lo+to]
}

func shownView(w *Work, i, lo, from, to, t, room int) []byte {
	s := w.g.share
	switch show := w.arrivals[i]; {
	case i == s.me:
		return w.source()[lo+from : lo+to]
	case show.placed:
		return s.arenas[i][show.off+lo+from : show.off+lo+to]
	}
	p := 0
	if w.parts() > 1 {
		p = w.g.rank
	}
	return w.pieces(i)[(t%2*w.parts()+p)*room:][:to-from]
}

// takeAll copies or reduces piece t of this rank's part of every source. Copies begin with this
// rank's source, so that the ranks do not all read one source simultaneously.
func (w *Work) takeAll(look view, t, room int) error {
	s := w.g.share
	w.srcs = w.srcs[:0]
	var to []byte
	for k := range s.ranks {
		i := k
		if !w.kind.reduces() {
			i = (s.me + k) % len(s.ranks)
		}
		goal := w.goal(i)
		if goal == nil && w.kind != kindAllToAllV { // an empty part in AllToAllV
			continue
		}
		lo, hi := w.theirPart(i, len(goal))
		if hi-lo != len(goal) {
			return w.waitFault(i, fmt.Errorf("%w: %d bytes there, %d here", transport.ErrLength, hi-lo, len(goal)))
		}
		if !w.holds(i, lo, hi) {
			return w.outside(i, uint64(w.arrivals[i].off+lo), uint64(len(goal)))
		}
		from := min(t*room, len(goal))
		to = goal[from:min(len(goal), from+room)]
		if len(to) == 0 {
			continue
		}
		from, end := from, from+len(to)
		if p := look(w, i, lo, from, end, t, room); w.kind.reduces() {
			w.srcs = append(w.srcs, p)
		} else if unsafe.SliceData(p) != unsafe.SliceData(to) {
			copyCached(to, p)
		}
	}
	if len(w.srcs) > 0 {
		w.dsts = append(w.dsts[:0], to)
		w.fold(w.dsts, w.srcs)
	}
	return nil
}

// holds reports whether bytes [lo, hi) of rank i's source are inside its memory. Only the lengths
// that a rank publishes for AllToAllV can be wrong.
func (w *Work) holds(i, lo, hi int) bool {
	if w.kind != kindAllToAllV || i == w.g.share.me || !w.arrivals[i].placed {
		return true
	}
	return lo >= 0 && lo <= hi && hi <= len(w.g.share.arenas[i])-w.arrivals[i].off
}

// copyCached copies in blocks. The runtime copies more than 1 MiB with non-temporal stores, at half
// the speed here.
func copyCached(dst, src []byte) {
	const most = 256 << 10
	for len(src) > most {
		copy(dst[:most], src)
		dst, src = dst[most:], src[most:]
	}
	copy(dst, src)
}

// theirPart returns the bounds of this rank's part in rank i's source. n is the length of this
// rank's part, if all sources have parts of the same lengths.
func (w *Work) theirPart(i, n int) (lo, hi int) {
	switch {
	case w.kind == kindAllGatherV:
		if i != w.g.rank {
			return 0, w.arrivals[i].most
		}
		return 0, n
	case w.kind == kindAllToAllV:
		table := w.table(i)
		if w.g.rank > 0 {
			lo = int(table[w.g.rank-1])
		}
		return lo, int(table[w.g.rank])
	case w.parts() == 1:
		return 0, n
	}
	return w.g.rank * n, (w.g.rank + 1) * n
}

// reduceToRoot reduces operands in arenas: each rank reduces one slice into the root's operand.
func (w *Work) reduceToRoot() error {
	s := w.g.share
	lo, hi := lines(w.arrivals[w.root].off, len(w.x), len(s.ranks), s.me)
	w.srcs = w.srcs[:0]
	for i, show := range w.arrivals {
		w.srcs = append(w.srcs, s.arenas[i][show.off+lo:show.off+hi])
	}
	w.dsts = append(w.dsts[:0], w.srcs[w.root])
	w.fold(w.dsts, w.srcs)
	return w.step(1)
}

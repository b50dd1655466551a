package rows

import "math/bits"

// Verdict is a callback's decision about a row.
type Verdict bool

// Verdicts of a walk on a row.
const (
	Keep Verdict = false
	Drop Verdict = true // delete the row, before any other goroutine can use it
)

// Cursor is a position of a Walk. The zero value is the start.
type Cursor struct{ hash uint64 }

// Walk calls visit for about limit rows (at least 1) after the cursor and returns the next cursor;
// more is false at the end. Other goroutines may use the table during and between calls: a row that
// exists throughout is visited exactly once, a row created or deleted during the walk at most once.
//
// The rows of a call are in one locked stripe: visit may change whole rows, atomically for other
// calls, must be fast and must not call the table.
//
// A cursor is a hash: rows are visited in approximate hash order, which is independent of the
// index's growth and shrinking.
func (t *Table) Walk(from Cursor, limit int, visit func(*Row) Verdict) (next Cursor, more bool, err error) {
	return t.WalkPiece(from, limit, nil, visit)
}

// Piece is the range of hashes of one call of WalkPiece.
type Piece struct {
	// First and Last are the lowest and highest Table.Hash. The next piece begins after Last.
	First, Last uint64
	// Marks are the applied sequence numbers of the piece's stripe, StripeOf(First), by session: a
	// row of the piece includes exactly the pushes up to its session's number. They must not be
	// retained.
	Marks []AppliedSeq
}

// WalkPiece is Walk that first calls piece, unless nil, in the same locked visit: the Piece
// describes each visited row.
func (t *Table) WalkPiece(from Cursor, most int, piece func(*Piece), visit func(*Row) Verdict) (next Cursor, more bool, err error) {
	if t.closed.Load() {
		return from, false, t.fault(ErrClosed)
	}
	b := t.takeBatch()
	defer t.giveBatch(b)
	x := t.index
	s := &t.stripes[from.hash>>(64-stripeBits)]
	s.Lock()
	defer s.Unlock()
	seg := x.segment(from.hash)
	// A line has slightly more than four rows on average.
	first := x.home(seg, from.hash)
	lines := min(uint32(min(max(most, 1), 1<<20)/4+1), seg.lines-first)
	end := x.startOf(from.hash, first+lines)
	if piece != nil {
		p := &b.piece
		p.First, p.Last, p.Marks = from.hash, end-1, t.sessions.list(StripeOf(from.hash), p.Marks[:0])
		piece(p)
	}
	show := func(_ int, r *Row) Verdict { return visit(r) }
	n := 0
	for l, left := first, seg.lines; left > 0; left-- {
		ln := x.line(seg.at(l))
		for taken := ln.meta & allTaken; taken != 0; taken &= taken - 1 {
			slot := bits.TrailingZeros32(taken)
			key := ln.keys[slot]
			if h := x.hash(key); h-from.hash > end-1-from.hash {
				continue
			}
			if n == blockRows {
				t.visit(s, b, n, show)
				n = 0
			}
			b.walkKeys[n], b.rows[n] = key, int32(ln.rows[slot])
			n++
		}
		if lines > 0 {
			lines--
		}
		if lines == 0 && ln.meta < onePast {
			break
		}
		l = seg.next(l)
	}
	t.visit(s, b, n, show)
	x.shrink(seg)
	return Cursor{end}, end != 0, nil
}

// startOf returns the lowest hash of line l in the segment of hash; if the segment has no line l,
// the first hash of the next segment, or 0 after the last segment.
func (x *index) startOf(hash uint64, l uint32) uint64 {
	s := x.segment(hash)
	start := hash >> (64 - x.bits) << (64 - x.bits)
	if l >= s.lines {
		return start + 1<<(64-x.bits)
	}
	q, r := bits.Div64(uint64(l), 0, uint64(s.lines))
	if r > 0 {
		q++
	}
	part := q >> x.bits
	if part<<x.bits != q {
		part++
	}
	return start + part
}

// visit passes the first n rows of the batch to do and returns the number of dropped rows. Removing
// moves no other row, so that unvisited lines are unchanged.
func (t *Table) visit(s *stripe, b *batch, n int, do func(i int, r *Row) Verdict) (dropped int) {
	rows := b.rows[:n]
	b.sink = uint32(fetch(t.weights, rows))
	for i, row := range rows {
		v := &b.view
		v.Key, v.Weights = b.walkKeys[i], t.weights.item(uint32(row))
		for k, a := range t.state {
			v.State[k] = a.item(uint32(row))
		}
		if t.usage != nil {
			v.Usage = unpackUsage(t.usage.item(uint32(row))[0])
		}
		if do(i, v) == Drop {
			h := t.index.hash(b.walkKeys[i])
			t.index.remove(t.index.segment(h), b.walkKeys[i], h)
			b.fresh[dropped] = row
			dropped++
		} else if t.usage != nil {
			t.usage.item(uint32(row))[0] = v.Usage.pack()
		}
	}
	t.giveNumbers(b.fresh[:dropped])
	s.rows -= dropped
	return dropped
}

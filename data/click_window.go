package data

import (
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// clickWindow is rows that are shuffled among each other.
type clickWindow struct {
	rows  []int32 // places on the shelf; those that were given out first, in their order
	given int
	order prng.Rand // of the shuffle; not used without one

	begin StreamPosition // at its first row
	bad   int            // lines up to the end of its last block, in this epoch
}

// remaining is how many rows were not given out.
func (w *clickWindow) remaining() int { return len(w.rows) - w.given }

// draw gives out a row: with shuffle any of those that are left (a step of
// Fisher and Yates', so that the cost of shuffling is spread over the batches).
func (w *clickWindow) draw(shuffle bool) int32 {
	if shuffle {
		i := w.given + w.order.Below(w.remaining())
		w.rows[w.given], w.rows[i] = w.rows[i], w.rows[w.given]
	}
	w.given++
	return w.rows[w.given-1]
}

// rowPages has the rows of windows, page by page, so that none is ever moved. The
// place of a row that was given out is the next one's: the window that is filled
// takes no memory beyond that of the one that is given out.
type rowPages struct {
	shape clicks.Shape
	per   int // rows of a page
	pages []clicks.Rows
	free  []int32 // places, the next one last
}

// newClickShelf is a shelf for about so many rows, which has none yet.
func newClickShelf(s clicks.Shape, rows int) rowPages {
	return rowPages{shape: s, per: min(rows, pageRows)}
}

// put copies rows [lo, hi) of a block and appends their places.
func (s *rowPages) put(places []int32, from *clicks.Rows, lo, hi int) []int32 {
	for row := lo; row < hi; row++ {
		if len(s.free) == 0 {
			s.extend()
		}
		place := s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		to := s.row(place)
		to.rows.Set(&s.shape, to.row, from, row)
		places = append(places, place)
	}
	return places
}

// row is the page that a place is on, and which row of it that is.
func (s *rowPages) row(place int32) clickAt {
	return clickAt{&s.pages[int(place)/s.per], int(place) % s.per}
}

// extend adds a page.
func (s *rowPages) extend() {
	for place := (len(s.pages)+1)*s.per - 1; place >= len(s.pages)*s.per; place-- {
		s.free = append(s.free, int32(place))
	}
	s.pages = append(s.pages, s.shape.Room(s.per))
}

// take copies a window's next n rows to a batch of that size.
func (s *rowPages) take(w *clickWindow, b *Batch, shape Shape, n int, shuffle bool) error {
	b.places = b.places[:0]
	for range n {
		place := w.draw(shuffle)
		b.places = append(b.places, s.row(place))
		s.free = append(s.free, place)
	}
	return b.gather(shape, b.places)
}

// skip gives out a window's next n rows to nobody, in the order in which take would.
func (s *rowPages) skip(w *clickWindow, n int, shuffle bool) {
	for range n {
		s.free = append(s.free, w.draw(shuffle))
	}
}

// drop empties a window.
func (s *rowPages) drop(w *clickWindow) {
	s.free = append(s.free, w.rows[w.given:]...)
	w.rows, w.given = w.rows[:0], 0
}

package data

import (
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// clickWindow is a group of rows shuffled together.
type clickWindow struct {
	rows  []int32 // positions in rowPages: first the returned rows, then the remaining ones
	drawn int
	order prng.Rand // generator of the shuffle; unused without a shuffle

	begin StreamPosition // position of the first row
	bad   int            // bad lines of this epoch up to the end of the last block
}

// remaining returns the number of rows not yet returned.
func (w *clickWindow) remaining() int { return len(w.rows) - w.drawn }

// draw returns a row; with shuffle a random one of the remaining rows by one step of Fisher-Yates,
// which spreads the cost of shuffling over the batches.
func (w *clickWindow) draw(shuffle bool) int32 {
	if shuffle {
		i := w.drawn + w.order.Below(w.remaining())
		w.rows[w.drawn], w.rows[i] = w.rows[i], w.rows[w.drawn]
	}
	w.drawn++
	return w.rows[w.drawn-1]
}

// rowPages holds the rows of windows in pages; rows never move. The memory of a row that was
// returned is used for a row of the next window.
type rowPages struct {
	shape clicks.Shape
	per   int // rows per page
	pages []clicks.Rows
	free  []int32 // free positions, next one last
}

// newRowPages returns an empty rowPages, with pages of at most rows rows.
func newRowPages(s clicks.Shape, rows int) rowPages {
	return rowPages{shape: s, per: min(rows, pageRows)}
}

// put copies rows [lo, hi) of a block and appends the positions to places.
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

// row returns the page and row of a position.
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

// take copies a window's next n rows to a batch.
func (s *rowPages) take(w *clickWindow, b *Batch, shape Shape, n int, shuffle bool) error {
	b.places = b.places[:0]
	for range n {
		place := w.draw(shuffle)
		b.places = append(b.places, s.row(place))
		s.free = append(s.free, place)
	}
	return b.gather(shape, b.places)
}

// skip discards a window's next n rows, in the order of take.
func (s *rowPages) skip(w *clickWindow, n int, shuffle bool) {
	for range n {
		s.free = append(s.free, w.draw(shuffle))
	}
}

// drop empties a window.
func (s *rowPages) drop(w *clickWindow) {
	s.free = append(s.free, w.rows[w.drawn:]...)
	w.rows, w.drawn = w.rows[:0], 0
}

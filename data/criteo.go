package data

import (
	"fmt"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// pageRows is how many rows lie together: no row is ever copied to grow, but for keys of bags.
const pageRows = 1 << 13

// clicks is the source of rows in memory: of Criteo's format 160 bytes each, with keys instead of ids 264; by a layout 4 bytes a number and a
// slot, 8 a key, and 12.
type clicks struct {
	pages []clickRows // all full but for the last
	n     int
	shape Shape
}

func (c *clicks) Len() int     { return c.n }
func (c *clicks) Shape() Shape { return c.shape }

func (c *clicks) evidence(w io.Writer) {
	for _, p := range c.pages {
		_, _ = w.Write(bytesview.Bytes(p.labels)) // to a hash: never fails
		if c.shape.bagged() {                     // of a hash: never fails
			_, _ = w.Write(bytesview.Bytes(p.numbers))
			_, _ = w.Write(bytesview.Bytes(p.keys))
			_, _ = w.Write(bytesview.Bytes(p.ends))
		}
	}
}

// Fill copies the rows.
func (c *clicks) Fill(b *Batch, idx []int32, _ Draw) error {
	b.places = b.places[:0]
	for _, n := range idx {
		if n < 0 || int(n) >= c.n {
			panic(fmt.Sprintf("data: sample %d of %d", n, c.n))
		}
		b.places = append(b.places, clickAt{&c.pages[n/pageRows], int(n % pageRows)})
	}
	return b.gather(c.shape, b.places)
}

// add appends rows, as many as a limit allows (0: all).
func (c *clicks) add(rows *clickRows, limit int) {
	n := len(rows.labels)
	if limit > 0 {
		n = min(n, limit-c.n)
	}
	s := &c.shape
	for from := 0; from < n; {
		if c.n%pageRows == 0 {
			c.pages = append(c.pages, clickRows{
				numbers: make([]float32, 0, pageRows*s.Size()), labels: make([]int32, 0, pageRows),
				ids: make([]int32, 0, pageRows*s.IDs), keys: make([]uint64, 0, pageRows*s.Keys),
			})
			if s.bagged() {
				p := &c.pages[len(c.pages)-1]
				p.ends, p.starts = make([]uint32, 0, pageRows*len(s.Slots)), make([]int, 0, pageRows+1)
			}
		}
		p := &c.pages[len(c.pages)-1]
		to := min(n, from+pageRows-len(p.labels))
		p.add(s, rows, from, to)
		if c.n += to - from; c.n%pageRows == 0 && s.bagged() {
			p.keys = slices.Clone(p.keys) // which have grown
		}
		from = to
	}
}

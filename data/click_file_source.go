package data

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// clickFileSource is the source of the rows of an uncompressed file. It reads and parses rows again
// on demand, so that it needs one byte of memory per row. It suits access in file order.
type clickFileSource struct {
	path   string
	format *clicks.Format
	widths clicks.Shape // format.Shape()
	shape  Shape        // shapeOf(widths)
	parser clicks.Parser
	parts  []clickPart
	labels []uint8 // label of each row

	mu   sync.Mutex
	idle []*clickReader
}

// clickPart is a range of lines of the file.
type clickPart struct {
	offset int64
	bytes  int
	first  int // first row
	rows   int // number of rows, without bad lines
}

// clickReader holds the rows of one part.
type clickReader struct {
	part  clickPart
	text  []byte
	rows  clicks.Block
	batch clicks.Rows
}

// partBytes is the size of a part: a few hundred rows, so that goroutines that take batches in turn
// parse few rows of other batches.
const partBytes = 1 << 16

// openClickFile parses a file to the end, or to row limit (0: all).
func openClickFile(path string, f *clicks.Format, threads, limit int, bad *datafile.Skips) (*clickFileSource, error) {
	in, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out := &clickFileSource{path: path, format: f, widths: f.Shape(), shape: shapeOf(f.Shape())}
	head, err := f.Each(path, in, partBytes, threads, bad, func(c *clicks.Chunk) bool {
		if n := len(c.Block.Labels); n > 0 {
			out.parts = append(out.parts, clickPart{c.Offset, len(c.Text), len(out.labels), n})
		}
		for _, label := range c.Block.Labels {
			out.labels = append(out.labels, uint8(label))
		}
		return limit == 0 || len(out.labels) < limit
	})
	out.parser = head.Parser
	if limit > 0 && len(out.labels) > limit {
		out.labels = out.labels[:limit]
	}
	if err == nil && len(out.labels) == 0 {
		err = f.EmptyError(path)
	}
	return out, err
}

func (c *clickFileSource) Len() int     { return len(c.labels) }
func (c *clickFileSource) Shape() Shape { return c.shape }

func (c *clickFileSource) evidence(w io.Writer) {
	labels := make([]int32, 0, pageRows)
	for page := range slices.Chunk(c.labels, pageRows) {
		labels = labels[:0]
		for _, label := range page {
			labels = append(labels, int32(label))
		}
		_, _ = w.Write(bytesview.Bytes(labels)) // hash.Write never fails
	}
}

// Fill parses the rows. A batch can span several parts; the reader holds one part at a time.
func (c *clickFileSource) Fill(b *Batch, idx []int32, _ Draw) error {
	b.places = b.places[:0]
	if len(idx) == 0 {
		return b.gather(c.shape, b.places)
	}
	r := c.take(int(idx[0]))
	defer c.give(r)
	r.batch.Reset()
	for i, n := range idx {
		row := int(n)
		if row < 0 || row >= len(c.labels) {
			panic(fmt.Sprintf("data: sample %d of %d", row, len(c.labels)))
		}
		if !r.has(row) {
			if err := r.read(c, row); err != nil {
				return fmt.Errorf("reading %s again: %w", c.path, err)
			}
		}
		row -= r.part.first
		r.batch.Add(&c.widths, &r.rows.Rows, row, row+1)
		b.places = append(b.places, clickAt{&r.batch, i})
	}
	return b.gather(c.shape, b.places)
}

// take returns an idle reader, preferably a reader that holds the row.
func (c *clickFileSource) take(row int) *clickReader {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return new(clickReader)
	}
	if i := slices.IndexFunc(c.idle, func(r *clickReader) bool { return r.has(row) }); i >= 0 {
		c.idle[i], c.idle[n-1] = c.idle[n-1], c.idle[i]
	}
	r := c.idle[n-1]
	c.idle = c.idle[:n-1]
	return r
}

func (c *clickFileSource) give(r *clickReader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, r)
}

func (r *clickReader) has(row int) bool {
	return row >= r.part.first && row < r.part.first+r.part.rows
}

// read parses the part of a row.
func (r *clickReader) read(c *clickFileSource, row int) error {
	r.part = clickPart{} // invalid until parsed
	part := c.parts[sort.Search(len(c.parts), func(i int) bool { return c.parts[i].first > row })-1]
	f, err := pathname.Open(c.path)
	if err != nil {
		return err
	}
	defer f.Close()
	r.text = bytesview.Sized(r.text, part.bytes)
	if _, err := f.ReadAt(r.text, part.offset); err != nil {
		return datafile.ReadFault(c.path, part.offset, err)
	}
	c.parser.Parse(r.text, &r.rows)
	if n := len(r.rows.Labels); n != part.rows {
		return datafile.Errorf(c.path, part.offset, "%d rows, there were %d when it was opened: the file has changed", n, part.rows)
	}
	r.part = part
	return nil
}

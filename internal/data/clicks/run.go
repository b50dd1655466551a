package clicks

import (
	"bytes"
	"io"
	"sync"
)

// Run is one pass over files: a splitter, workers that read and parse, and blocks in order for a
// collector. Blocks and their order do not depend on the number of workers.
type Run struct {
	count bool        // count lines without parsing
	Free  chan *Split // free blocks; capacity for all
	queue chan *Split // splitter to workers
	Order chan *Split // splitter to collector; closed at the end
	stop  chan struct{}
	all   sync.WaitGroup
}

// NewRun starts a pass at a block.
func NewRun(cfg *RunConfig, format *Format, first int64, count bool) *Run {
	blocks := 2*cfg.Threads + 2 // two per worker: one in use, one waiting
	r := &Run{
		count: count, stop: make(chan struct{}),
		Free: make(chan *Split, blocks), queue: make(chan *Split, blocks), Order: make(chan *Split, blocks),
	}
	for range blocks {
		r.Free <- newSplit()
	}
	c := &splitter{cfg: cfg, format: format, first: first, stop: r.stop, side: &r.all}
	r.all.Go(func() { r.cut(c) })
	for range cfg.Threads {
		r.all.Go(r.work)
	}
	return r
}

func newSplit() *Split { return &Split{Done: make(chan struct{}, 1)} }

// cut distributes blocks until the end or an error.
func (r *Run) cut(c *splitter) {
	defer close(r.queue)
	defer close(r.Order)
	defer c.Close()
	for {
		var b *Split
		select {
		case b = <-r.Free:
		case <-r.stop:
			return
		}
		b.reset()
		err := c.cut(b)
		if err == io.EOF {
			return
		}
		if b.Err = err; err != nil {
			b.Done <- struct{}{}
			r.Order <- b
			return
		}
		r.Order <- b
		r.queue <- b
	}
}

// reset empties a block.
func (b *Split) reset() {
	b.Rows.Reset()
	b.Lines, b.Faults, b.Err = 0, b.Faults[:0], nil
	b.plain, b.packed, b.text = nil, nil, nil
}

// work reads and parses blocks. After stop it only releases them.
func (r *Run) work() {
	var memory []byte // reused for pieces
	for b := range r.queue {
		select {
		case <-r.stop:
			if b.plain != nil {
				b.plain.release()
			}
			continue
		default:
		}
		if b.plain != nil {
			b.text, b.Offset, memory, b.Err = b.plain.piece(b.piece, memory)
			b.plain.release()
		}
		if b.Err == nil {
			r.parse(b)
		}
		if b.packed != nil {
			b.packed.free <- b.text
		}
		b.text, b.plain, b.packed = nil, nil, nil
		b.Done <- struct{}{}
	}
}

// parse parses or counts the lines of a block, without a header.
func (r *Run) parse(b *Split) {
	lines := b.text
	if b.Offset == 0 && b.head.bytes > 0 {
		n := min(b.head.bytes, len(lines))
		lines, b.Offset = lines[n:], int64(n)
	}
	if r.count {
		countLines(lines, &b.Block)
		return
	}
	b.head.Parser.Parse(lines, &b.Block)
}

// Close ends the pass.
func (r *Run) Close() {
	close(r.stop)
	r.all.Wait()
}

// countLines counts lines.
func countLines(text []byte, out *Block) {
	out.Lines = bytes.Count(text, []byte{'\n'})
	if n := len(text); n > 0 && text[n-1] != '\n' {
		out.Lines++
	}
}

// RunConfig selects the files and blocks of a pass; see data.ClickStreamConfig.
type RunConfig struct {
	Files                           []string
	Rank, Size                      int
	ByFile                          bool
	Interleave, Threads, BlockBytes int
}

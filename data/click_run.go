package data

import (
	"bytes"
	"io"
	"sync"
)

// clickRun is one pass over files: a cutter, workers that read and parse, and
// blocks in the cutter's order for a collector. However many workers there are,
// the blocks and their order are the same.
type clickRun struct {
	count bool             // lines alone
	free  chan *clickSplit // blocks that may be cut; holds them all
	queue chan *clickSplit // to the workers
	order chan *clickSplit // to the collector; closed after the last one
	stop  chan struct{}
	all   sync.WaitGroup
}

// newClickRun starts a pass from a block on.
func newClickRun(cfg *ClickStreamConfig, format *lineFormat, first int64, count bool) *clickRun {
	blocks := 2*cfg.Threads + 2 // each worker has one, and one waiting
	r := &clickRun{
		count: count, stop: make(chan struct{}),
		free: make(chan *clickSplit, blocks), queue: make(chan *clickSplit, blocks), order: make(chan *clickSplit, blocks),
	}
	for range blocks {
		r.free <- newClickBlock()
	}
	c := &clickSplitter{cfg: cfg, format: format, first: first, stop: r.stop, side: &r.all}
	r.all.Go(func() { r.cut(c) })
	for range cfg.Threads {
		r.all.Go(r.work)
	}
	return r
}

func newClickBlock() *clickSplit { return &clickSplit{done: make(chan struct{}, 1)} }

// cut hands out blocks until there are no more, or one that cannot be had.
func (r *clickRun) cut(c *clickSplitter) {
	defer close(r.queue)
	defer close(r.order)
	defer c.close()
	for {
		var b *clickSplit
		select {
		case b = <-r.free:
		case <-r.stop:
			return
		}
		b.reset()
		err := c.cut(b)
		if err == io.EOF {
			return
		}
		if b.err = err; err != nil {
			b.done <- struct{}{}
			r.order <- b
			return
		}
		r.order <- b
		r.queue <- b
	}
}

// reset makes b an empty block.
func (b *clickSplit) reset() {
	b.clickRows.reset()
	b.lines, b.faults, b.err = 0, b.faults[:0], nil
	b.plain, b.packed, b.text = nil, nil, nil
}

// work reads and parses blocks. After stop they are only let go.
func (r *clickRun) work() {
	var memory []byte // of the pieces that this worker reads
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
			b.text, b.offset, memory, b.err = b.plain.piece(b.piece, memory)
			b.plain.release()
		}
		if b.err == nil {
			r.parse(b)
		}
		if b.packed != nil {
			b.packed.free <- b.text
		}
		b.text, b.plain, b.packed = nil, nil, nil
		b.done <- struct{}{}
	}
}

// parse makes samples of a block's lines, or counts them; a header is none.
func (r *clickRun) parse(b *clickSplit) {
	lines := b.text
	if b.offset == 0 && b.head.bytes > 0 {
		n := min(b.head.bytes, len(lines))
		lines, b.offset = lines[n:], int64(n)
	}
	if r.count {
		countLines(lines, &b.block)
		return
	}
	b.head.parser.parse(lines, &b.block)
}

// close ends the pass, wherever it is.
func (r *clickRun) close() {
	close(r.stop)
	r.all.Wait()
}

// countLines only counts.
func countLines(text []byte, out *block) {
	out.lines = bytes.Count(text, []byte{'\n'})
	if n := len(text); n > 0 && text[n-1] != '\n' {
		out.lines++
	}
}

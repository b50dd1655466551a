package data

import (
	"io"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// clickSplit is a piece of a file on its way from the cutter by way of a worker
// to the collector. It owns the memory of its rows alone.
type clickSplit struct {
	block
	number int64  // in the order of all ranks' blocks of an epoch
	path   string // of its file
	offset int64  // of its text in the unpacked file
	err    error  // in place of rows
	done   chan struct{}
	head   lineHead // of its file

	// One of both, for a worker: a piece of a file to read, or text that was
	// unpacked.
	plain  *plainFile
	piece  int64
	packed *unpacker
	text   []byte
}

// clickSplitter gives out the blocks of files, in an order that depends on the files,
// the size of blocks and how many files are read at once.
type clickSplitter struct {
	cfg    *ClickStreamConfig
	format *lineFormat
	first  int64 // blocks before it are left out
	stop   <-chan struct{}
	side   *sync.WaitGroup // of the goroutines that unpack

	next   int // file to open
	open   []clickSource
	place  int   // of the next file among those
	turn   int   // whose block is the next one
	number int64 // of the next block
}

// clickSource is an open file of a clickSplitter.
type clickSource interface {
	// next makes b its next block, or with want false leaves that out. io.EOF:
	// there are no more.
	next(b *clickSplit, want bool) error
	close()
}

// cut makes b the next block of this rank; io.EOF when there are no more.
// Another error is that of the block.
func (c *clickSplitter) cut(b *clickSplit) error {
	for {
		select {
		case <-c.stop:
			return io.EOF
		default:
		}
		b.number = c.number
		if err := c.refill(); err != nil {
			return err
		}
		if len(c.open) == 0 {
			return io.EOF
		}
		c.turn %= len(c.open)
		want := c.number >= c.first && (c.cfg.ByFile || c.number%int64(c.cfg.Size) == int64(c.cfg.Rank))
		src := c.open[c.turn]
		switch err := src.next(b, want); {
		case err == io.EOF: // the file after it takes its place
			src.close()
			c.open = slices.Delete(c.open, c.turn, c.turn+1)
			c.place = c.turn
		case err != nil:
			return err
		default:
			c.number++
			c.turn++
			if want {
				return nil
			}
		}
	}
}

// refill opens files until so many are open as shall be read at once.
func (c *clickSplitter) refill() error {
	for ; c.next < len(c.cfg.Files) && len(c.open) < c.cfg.Interleave; c.next++ {
		if c.cfg.ByFile && c.next%c.cfg.Size != c.cfg.Rank {
			continue
		}
		src, err := c.source(c.cfg.Files[c.next])
		if err != nil {
			return err
		}
		c.open = slices.Insert(c.open, c.place, src)
		c.place++
	}
	return nil
}

func (c *clickSplitter) source(path string) (clickSource, error) {
	head, err := c.format.head(path)
	if err != nil {
		return nil, err
	}
	if datafile.Packed(path) {
		u := newUnpacker(path, c.cfg.BlockBytes, c.cfg.Threads+2, c.stop)
		u.head, u.most = head, c.format.most()
		c.side.Go(u.run)
		return u, nil
	}
	f, err := pathname.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	p := &plainSource{head: head, file: &plainFile{path: path, f: f, length: info.Size(), size: int64(c.cfg.BlockBytes), most: c.format.most()}}
	p.file.users.Store(1)
	return p, nil
}

// close ends the files that are open.
func (c *clickSplitter) close() {
	for _, src := range c.open {
		src.close()
	}
	c.open = nil
}

// plainSource gives out pieces of a file that workers read.
type plainSource struct {
	file *plainFile
	head lineHead
	at   int64
}

func (p *plainSource) next(b *clickSplit, want bool) error {
	if p.at*p.file.size >= p.file.length {
		return io.EOF
	}
	if want {
		p.file.users.Add(1)
		b.path, b.head, b.plain, b.piece = p.file.path, p.head, p.file, p.at
		// The cutter is a few blocks ahead of the workers, which thus find their
		// pieces in memory and parse instead of waiting.
		readAhead(p.file.f, p.at*p.file.size, p.file.size)
	}
	p.at++
	return nil
}

func (p *plainSource) close() { p.file.release() }

// unpacker reads a compressed file ahead, on a goroutine of its own.
type unpacker struct {
	path string
	head lineHead
	size int // of blocks
	most int // how long a line may be; 0: as usual
	stop <-chan struct{}
	quit chan struct{} // closed with the source
	out  chan unpacked // in order
	free chan []byte   // texts to be used again; holds them all
}

// unpacked is a piece of a file's text.
type unpacked struct {
	text   []byte
	offset int64
	err    error
}

func newUnpacker(path string, size, texts int, stop <-chan struct{}) *unpacker {
	u := &unpacker{path: path, size: size, stop: stop, quit: make(chan struct{}), out: make(chan unpacked, 1), free: make(chan []byte, texts)}
	for range texts {
		u.free <- nil
	}
	return u
}

func (u *unpacker) run() {
	r, err := datafile.OpenText(u.path)
	if err != nil {
		u.send(unpacked{err: err})
		return
	}
	defer r.Close()
	in := &chunks{name: u.path, r: r, size: u.size, most: u.most}
	for {
		var p unpacked
		select {
		case p.text = <-u.free:
		case <-u.quit:
			return
		case <-u.stop:
			return
		}
		p.text, p.offset, p.err = in.next(p.text)
		if !u.send(p) || p.err != nil {
			return
		}
	}
}

func (u *unpacker) send(p unpacked) bool {
	select {
	case u.out <- p:
		return true
	case <-u.quit:
	case <-u.stop:
	}
	return false
}

func (u *unpacker) next(b *clickSplit, want bool) error {
	var p unpacked
	select {
	case p = <-u.out:
	case <-u.stop:
		return io.EOF
	}
	switch {
	case p.err != nil:
		return p.err
	case want:
		b.path, b.head, b.packed, b.text, b.offset = u.path, u.head, u, p.text, p.offset
	default:
		u.free <- p.text
	}
	return nil
}

func (u *unpacker) close() { close(u.quit) }

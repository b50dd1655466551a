package clicks

import (
	"io"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Split is a piece of a file between splitter, worker and collector. It owns the memory of its rows
// only.
type Split struct {
	Block
	Number int64  // number among all ranks' blocks of an epoch
	Path   string // file
	Offset int64  // position in the decompressed file
	Err    error  // error instead of rows
	Done   chan struct{}
	head   Head // file

	// plain and the fields below are a worker's input: a piece of a file, or decompressed text.
	plain  *plainFile
	piece  int64
	packed *unpacker
	text   []byte
}

// splitter returns the blocks of files. Their order depends on the files, the block size and the
// number of files read concurrently.
type splitter struct {
	cfg    *RunConfig
	format *Format
	first  int64 // first block; earlier ones are skipped
	stop   <-chan struct{}
	side   *sync.WaitGroup // decompressing goroutines

	next   int // next file to open
	open   []fileSource
	place  int   // index in open of the next file
	turn   int   // index in open of the next block
	number int64 // number of the next block
}

// fileSource is an open file of a splitter.
type fileSource interface {
	// next sets b to its next block; with want false it skips the block. io.EOF is the end.
	next(b *Split, want bool) error
	Close()
}

// cut sets b to the next block of this rank; io.EOF at the end. Another error is that of the block.
func (c *splitter) cut(b *Split) error {
	for {
		select {
		case <-c.stop:
			return io.EOF
		default:
		}
		b.Number = c.number
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
		case err == io.EOF: // replaced by the next file
			src.Close()
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

// refill opens files up to the number read concurrently.
func (c *splitter) refill() error {
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

func (c *splitter) source(path string) (fileSource, error) {
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

// Close closes the open files.
func (c *splitter) Close() {
	for _, src := range c.open {
		src.Close()
	}
	c.open = nil
}

// plainSource returns pieces of a file for workers.
type plainSource struct {
	file *plainFile
	head Head
	at   int64
}

func (p *plainSource) next(b *Split, want bool) error {
	if p.at*p.file.size >= p.file.length {
		return io.EOF
	}
	if want {
		p.file.users.Add(1)
		b.Path, b.head, b.plain, b.piece = p.file.path, p.head, p.file, p.at
		// The splitter is a few blocks ahead of the workers, so that pieces are in memory when a
		// worker parses them.
		readAhead(p.file.f, p.at*p.file.size, p.file.size)
	}
	p.at++
	return nil
}

func (p *plainSource) Close() { p.file.release() }

// unpacker decompresses a file ahead, on a separate goroutine.
type unpacker struct {
	path string
	head Head
	size int // block size
	most int // maximum line; 0: default
	stop <-chan struct{}
	quit chan struct{} // closed by close
	out  chan unpacked // pieces in order
	free chan []byte   // reusable texts; capacity for all
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
	in := &Chunks{Name: u.path, R: r, Size: u.size, most: u.most}
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

func (u *unpacker) next(b *Split, want bool) error {
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
		b.Path, b.head, b.packed, b.text, b.Offset = u.path, u.head, u, p.text, p.offset
	default:
		u.free <- p.text
	}
	return nil
}

func (u *unpacker) Close() { close(u.quit) }

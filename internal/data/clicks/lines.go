package clicks

import (
	"bytes"
	"io"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// ChunkBytes is the length of text that a goroutine parses at a time: large compared to the cost of
// the hand-over, small compared to a cache.
const ChunkBytes = 1 << 18

// Block is a parsed chunk of lines.
type Block struct {
	Rows
	Lines  int // good and bad lines
	Faults []Fault
	cuts   lineCuts // fields of the current line
}

// Fault is a bad line, counted from the beginning of the chunk.
type Fault struct {
	Line   int
	Offset int // position in the chunk
	Text   string
}

// MaxLine is the maximum length of a line, unless chunks are longer.
const MaxLine = 1 << 18

// longest returns the maximum length of a line, without its end, in a file cut into pieces of size.
func longest(size int) int { return max(size, MaxLine) }

// tooLong returns the error of a file without line ends, such as a binary one.
func tooLong(name string, offset int64, most int) error {
	return datafile.Errorf(name, offset, "a line of more than %d bytes: this is no file of text lines", most)
}

// Chunk is a part of a file between reader and collector.
type Chunk struct {
	Text   []byte // whole lines; a file's last line may lack its end
	Offset int64
	Block  Block
}

// Chunks cuts a stream into pieces of whole lines.
type Chunks struct {
	Name   string
	R      io.Reader
	Size   int    // bytes per piece, more for a longer line
	most   int    // maximum line; 0: longest(size)
	rest   []byte // text after the last line's end
	offset int64  // position of rest
	ended  bool
}

func (s *Chunks) longest() int { return max(s.most, longest(s.Size)) }

// next returns the next piece, in text's memory if possible, and its position; io.EOF at the end.
// After an error text's memory belongs to the caller.
func (s *Chunks) next(text []byte) (_ []byte, offset int64, err error) {
	text = append(text[:0], s.rest...)
	s.rest = s.rest[:0]
	end := -1
	for want := s.Size; ; want = min(2*max(want, len(text)), s.longest()+1) {
		if text, err = s.fill(text, want); err != nil {
			return text, s.offset, err
		}
		if len(text) == 0 {
			return text, s.offset, io.EOF
		}
		if end = bytes.LastIndexByte(text, '\n') + 1; end == 0 && len(text) > s.longest() {
			return text, s.offset, tooLong(s.Name, s.offset, s.longest())
		}
		if end > 0 || s.ended {
			break
		}
	}
	if !s.ended {
		s.rest = append(s.rest, text[end:]...)
		text = text[:end]
	}
	offset = s.offset
	s.offset += int64(len(text))
	return text, offset, nil
}

// fill reads until text has a length, or the stream ends.
func (s *Chunks) fill(text []byte, want int) ([]byte, error) {
	text = slices.Grow(text, max(0, want-len(text)))
	for !s.ended && len(text) < want {
		got, err := s.R.Read(text[len(text):want])
		text = text[:len(text)+got]
		if err == io.EOF {
			s.ended = true
		} else if err != nil {
			return text, datafile.ReadFault(s.Name, s.offset+int64(len(text)), err)
		}
	}
	return text, nil
}

// ParseLines parses a file's chunks on several goroutines, and calls collect with the blocks in the
// file's order until collect returns false or an error.
func ParseLines(in *Chunks, threads int, parse func([]byte, *Block), collect func(*Chunk) (bool, error)) error {
	supply := func(c *Chunk) (err error) {
		c.Text, c.Offset, err = in.next(c.Text)
		return err
	}
	parser := func() func(*Chunk) { return func(c *Chunk) { parse(c.Text, &c.Block) } }
	return inOrder(threads, supply, parser, collect)
}

// inOrder works on items on several goroutines, and passes them to collect in the order of supply.
// An error of supply, io.EOF at the end, is returned after the items before it. Each goroutine
// calls worker once for its function work. Items are reused.
func inOrder[T any](threads int, supply func(*T) error, worker func() (work func(*T)),
	collect func(*T) (more bool, err error)) error {
	type slot struct {
		item T
		done chan struct{}
	}
	queue := make(chan *slot, threads+1)
	ring := make([]slot, threads+1)
	for i := range ring {
		ring[i].done = make(chan struct{}, 1)
	}
	var workers sync.WaitGroup
	for range threads {
		workers.Go(func() {
			work := worker()
			for s := range queue {
				work(&s.item)
				s.done <- struct{}{}
			}
		})
	}
	defer workers.Wait()
	defer close(queue)
	given := 0
	var ended error
	for next := 0; ; next++ {
		for ; ended == nil && given < next+len(ring); given++ {
			s := &ring[given%len(ring)]
			if ended = supply(&s.item); ended != nil {
				break
			}
			queue <- s
		}
		if next == given {
			if ended == io.EOF {
				return nil
			}
			return ended
		}
		s := &ring[next%len(ring)]
		<-s.done
		if more, err := collect(&s.item); err != nil || !more {
			return err
		}
	}
}

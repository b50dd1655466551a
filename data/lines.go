package data

import (
	"bytes"
	"io"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// chunkBytes is how much of a file one goroutine parses at a time: large
// against the cost of handing it over, small against a cache.
const chunkBytes = 1 << 18

// block is a parsed chunk of lines.
type block struct {
	clickRows
	lines  int // good and bad
	faults []lineFault
	cuts   lineCuts // of the line that is being parsed
}

// lineFault is a bad line, counted from the chunk's beginning.
type lineFault struct {
	line   int
	offset int // of the fault, in the chunk
	text   string
}

// lineLimit is how long a line may be, where chunks are not longer.
const lineLimit = 1 << 18

// longest is how long a line may be, without its end, in a file that is cut
// into pieces of a size.
func longest(size int) int { return max(size, lineLimit) }

// tooLong is the fault of a file without line ends, such as a binary one.
func tooLong(name string, offset int64, most int) error {
	return datafile.Errorf(name, offset, "a line of more than %d bytes: this is no file of text lines", most)
}

// chunk is a part of a file on its way from the reader to the collector.
type chunk struct {
	text   []byte // whole lines; only a file's last may lack its end
	offset int64
	block  block
	done   chan struct{}
}

// chunks cuts a stream into pieces of whole lines.
type chunks struct {
	name   string
	r      io.Reader
	size   int    // of a piece, unless a line is longer
	most   int    // how long a line may be; 0: longest(size)
	rest   []byte // of the last chunk, from its last line's end on
	offset int64  // of rest
	ended  bool
}

func (s *chunks) longest() int { return max(s.most, longest(s.size)) }

// next returns the next piece in text's memory, if that is large enough, and
// where it begins; io.EOF when there is no more. An error leaves text's memory
// with the caller.
func (s *chunks) next(text []byte) (_ []byte, offset int64, err error) {
	text = append(text[:0], s.rest...)
	s.rest = s.rest[:0]
	end := -1
	for want := s.size; ; want = min(2*max(want, len(text)), s.longest()+1) {
		if text, err = s.fill(text, want); err != nil {
			return text, s.offset, err
		}
		if len(text) == 0 {
			return text, s.offset, io.EOF
		}
		if end = bytes.LastIndexByte(text, '\n') + 1; end == 0 && len(text) > s.longest() {
			return text, s.offset, tooLong(s.name, s.offset, s.longest())
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

// fill reads until text is so long, or the stream has ended.
func (s *chunks) fill(text []byte, want int) ([]byte, error) {
	text = slices.Grow(text, max(0, want-len(text)))
	for !s.ended && len(text) < want {
		got, err := s.r.Read(text[len(text):want])
		text = text[:len(text)+got]
		if err == io.EOF {
			s.ended = true
		} else if err != nil {
			return text, datafile.ReadFault(s.name, s.offset+int64(len(text)), err)
		}
	}
	return text, nil
}

// parseLines parses a file's chunks by several goroutines and gives the blocks
// to collect in the file's order, until that returns false or an error.
func parseLines(in *chunks, threads int, parse func([]byte, *block), collect func(*chunk) (bool, error)) error {
	queue := make(chan *chunk, threads+1)
	ring := make([]chunk, threads+1)
	for i := range ring {
		ring[i].done = make(chan struct{}, 1)
	}
	var workers sync.WaitGroup
	for range threads {
		workers.Go(func() {
			for c := range queue {
				parse(c.text, &c.block)
				c.done <- struct{}{}
			}
		})
	}
	defer workers.Wait()
	defer close(queue)
	head, pending := 0, 0
	var failed error // told after what came before it
	for end := false; ; {
		for !end && pending < len(ring) {
			c := &ring[(head+pending)%len(ring)]
			var err error
			if c.text, c.offset, err = in.next(c.text); err != nil {
				if end = true; err != io.EOF {
					failed = err
				}
				break
			}
			pending++
			queue <- c
		}
		if pending == 0 {
			return failed
		}
		c := &ring[head]
		<-c.done
		head, pending = (head+1)%len(ring), pending-1
		if more, err := collect(c); err != nil || !more {
			return err
		}
	}
}

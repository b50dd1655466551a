package data

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// chunkBytes is how much of a file one goroutine parses at a time: large
// against the cost of handing it over, small against a cache.
const chunkBytes = 1 << 18

// block is a parsed chunk of lines.
type block struct {
	clickRows
	lines  int // good and bad
	faults []lineFault
}

// lineFault is a bad line, counted from the chunk's beginning.
type lineFault struct {
	line   int
	offset int // of the fault, in the chunk
	text   string
}

// chunk is a part of a file on its way from the reader to the collector.
type chunk struct {
	text   []byte // whole lines; only a file's last may lack its end
	offset int64
	block  block
	done   chan struct{}
}

// chunks cuts a file into pieces of whole lines.
type chunks struct {
	name   string
	r      io.Reader
	size   int
	rest   []byte // of the last chunk, from its last line's end on
	offset int64  // of rest
	ended  bool
}

// next fills c's text; io.EOF when there is no more.
func (s *chunks) next(c *chunk) error {
	c.text = append(c.text[:0], s.rest...)
	c.offset = s.offset
	s.rest = s.rest[:0]
	for filled := len(c.text); !s.ended && filled < s.size; filled = len(c.text) {
		c.text = append(c.text, make([]byte, s.size-filled)...)
		got, err := s.r.Read(c.text[filled:])
		c.text = c.text[:filled+got]
		if err == io.EOF {
			s.ended = true
		} else if err != nil {
			return readFault(s.name, c.offset+int64(len(c.text)), err)
		}
	}
	if len(c.text) == 0 {
		return io.EOF
	}
	if !s.ended {
		end := bytes.LastIndexByte(c.text, '\n') + 1
		if end == 0 {
			return &FormatError{s.name, c.offset, fmt.Sprintf("a line of more than %d bytes: this is no file of text lines", s.size)}
		}
		s.rest = append(s.rest, c.text[end:]...)
		c.text = c.text[:end]
	}
	s.offset += int64(len(c.text))
	return nil
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
			err := in.next(c)
			if err != nil {
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

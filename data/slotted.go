package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/ringo-ml/ringo/data/layout"
	"github.com/ringo-ml/ringo/internal/raw"
)

// slotLine is how long a line of a layout may be, so that a bag of a million keys has room.
const slotLine = 16 << 20

// slotted is the source of samples by a layout, in memory: 8 bytes a key and 4 a slot.
type slotted struct {
	shape Shape
	pages []slotRows // one of each chunk of the file
	first []int      // sample of each page
	n     int
}

func (s *slotted) Len() int     { return s.n }
func (s *slotted) Shape() Shape { return s.shape }

func (s *slotted) evidence(w io.Writer) {
	for _, p := range s.pages {
		writeInts(w, p.labels)
		_, _ = w.Write(raw.Bytes(p.numbers)) // of a hash: never fails
		_, _ = w.Write(raw.Bytes(p.keys))
		_, _ = w.Write(raw.Bytes(p.ends))
	}
}

// at is the page of a sample, and which of it it is.
func (s *slotted) at(sample int32) (*slotRows, int) {
	if sample < 0 || int(sample) >= s.n {
		panic(fmt.Sprintf("data: sample %d of %d", sample, s.n))
	}
	i := sort.SearchInts(s.first, int(sample)+1) - 1
	return &s.pages[i], int(sample) - s.first[i]
}

// Fill copies the samples.
func (s *slotted) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(s.shape, len(idx))
	numbers, slots := s.shape.Size(), len(s.shape.Slots)
	for i, n := range idx {
		p, row := s.at(n)
		b.Labels[i] = p.labels[row]
		copy(b.Values[i*numbers:][:numbers], p.numbers[row*numbers:])
	}
	b.Bags.begin(slots, len(idx))
	for slot := range slots {
		for i, n := range idx {
			p, row := s.at(n)
			bag := p.bag(row, slots, slot)
			if len(b.Bags.Keys)+len(bag) > maxKeys {
				return fmt.Errorf("data: a batch of %d samples has more than %d keys: use a smaller batch", len(idx), maxKeys)
			}
			b.Bags.Keys = append(b.Bags.Keys, bag...)
			b.Bags.Offsets[slot*len(idx)+i+1] = int32(len(b.Bags.Keys))
		}
	}
	return nil
}

// add takes a chunk's samples, as many as a limit allows (0: all).
func (s *slotted) add(r *slotRows, limit int) {
	n, numbers, slots := len(r.labels), s.shape.Size(), len(s.shape.Slots)
	if limit > 0 {
		n = min(n, limit-s.n)
	}
	if n <= 0 {
		return
	}
	s.pages = append(s.pages, slotRows{
		numbers: slices.Clone(r.numbers[:n*numbers]), labels: slices.Clone(r.labels[:n]), ends: slices.Clone(r.ends[:n*slots]),
		keys: slices.Clone(r.keys[:r.starts[n]]), starts: slices.Clone(r.starts[:n+1]),
	})
	s.first = append(s.first, s.n)
	s.n += n
}

// readSlotted parses a text by a layout to its end, or until limit samples are there.
func readSlotted(name string, r io.Reader, l *layout.Layout, threads, limit int, bad *skips) (*slotted, error) {
	in := &chunks{name: name, r: r, size: chunkBytes, most: slotLine}
	line := 0
	var header []byte
	if l.Header {
		text := bufio.NewReaderSize(r, 1<<20)
		first, err := text.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, tooLong(name, 0, 1<<20)
		} else if err != nil && err != io.EOF {
			return nil, readFault(name, int64(len(first)), err)
		}
		header = bytes.Clone(bytes.TrimRight(bytes.TrimPrefix(first, []byte("\ufeff")), "\r\n"))
		in.r, in.offset, line = text, int64(len(first)), 1
	}
	p, err := newSlotParser(l, header)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := &slotted{shape: p.shape()}
	err = parseLines(in, threads, p.parse, func(c *chunk) (bool, error) {
		for _, f := range c.block.faults {
			fault := &FormatError{name, c.offset + int64(f.offset), fmt.Sprintf("line %d: %s", line+f.line+1, f.text)}
			if err := bad.skip(fault); err != nil {
				return false, err
			}
		}
		line += c.block.lines
		out.add(&c.block.slotted, limit)
		return limit == 0 || out.n < limit, nil
	})
	if err == nil && out.n == 0 {
		err = &FormatError{name, 0, fmt.Sprintf("no samples: want lines by layout %s", l.Name())}
	}
	return out, err
}

func findSlotted(c Config) error {
	if _, err := layout.Open(c.Layout); err != nil {
		return err
	}
	_, err := findPair("clicks", c)
	return err
}

// openSlotted reads the two files of a layout into memory.
func openSlotted(c Config, bad *skips) (*Set, error) {
	l, err := layout.Open(c.Layout)
	if err != nil {
		return nil, err
	}
	files, err := findPair("clicks", c)
	if err != nil {
		return nil, err
	}
	read := func(path string, limit int) (*slotted, error) {
		f, err := OpenText(path)
		if err != nil {
			return nil, fmt.Errorf("clicks: %w", err)
		}
		defer f.Close()
		rows, err := readSlotted(path, f, l, c.threads(), limit, bad)
		if err != nil {
			return nil, fmt.Errorf("clicks: %w", err)
		}
		return rows, nil
	}
	train, err := read(files.train, c.TrainLimit)
	if err != nil {
		return nil, err
	}
	eval, err := read(files.eval, c.EvalLimit)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("layout %s: %d numbers and %d slots of keys", l.Name(), train.shape.Size(), len(train.shape.Slots))
	return &Set{Train: train, Eval: eval, Classes: 2, Rows: or(c.Rows, clickTableRows), Notes: append(files.notes(), note)}, nil
}

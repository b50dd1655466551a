package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// lineParser makes samples of whole lines, and the last of a file may lack its end. Several
// goroutines may share it. A bad line leaves its fault alone.
type lineParser interface {
	parse(text []byte, out *block)
	shape() Shape
}

// lineFormat is how lines become samples: Criteo's format, or a layout. Where files have a header,
// each has a parser of its own, for its columns may be in another order than other files'; the
// samples have the same shape.
type lineFormat struct {
	layout *layout.Layout // nil: Criteo's format
	usual  lineParser     // of files without a header
	// unlabelled says that a header may lack the label: samples are to be predicted.
	unlabelled bool
}

// slotLine is how long a line of a layout may be, so that a bag of a million keys has room.
const slotLine = 32 << 20

// headLine is how long a header may be.
const headLine = 1 << 20

// criteoFormat gives ids of a table with so many rows, 0 for none, or keys.
func criteoFormat(rows int, keys bool) *lineFormat {
	p := newClickParser(rows)
	p.keys = keys
	return &lineFormat{usual: p}
}

// layoutFormat is that of a layout.
func layoutFormat(l *layout.Layout) (*lineFormat, error) {
	f := &lineFormat{layout: l}
	if l.Header {
		return f, nil
	}
	var err error
	if f.usual, err = newLineParser(l, nil, false); err != nil {
		return nil, err
	}
	return f, nil
}

// newLineParser is the parser of a layout's lines: Criteo's own where that gives the same samples.
func newLineParser(l *layout.Layout, header []byte, unlabelled bool) (lineParser, error) {
	p, err := newSlotParser(l, header, unlabelled)
	if err != nil {
		return nil, err
	}
	if !likeCriteo(l) {
		return p, nil
	}
	own := newClickParser(0)
	own.slots = p.slots
	return own, nil
}

// shape is that of the samples, whatever files are like.
func (f *lineFormat) shape() Shape {
	if f.usual != nil {
		return f.usual.shape()
	}
	return layoutShape(f.layout)
}

// requirement says what lines should be like.
func (f *lineFormat) requirement() string {
	if f.layout == nil {
		return "lines of a label, 13 numbers and 26 categories, separated by tabs"
	}
	return fmt.Sprintf("lines by layout %s", f.layout.Name())
}

// most is how long a line may be; 0: as usual.
func (f *lineFormat) most() int {
	if f.layout == nil {
		return 0
	}
	return slotLine
}

// lineHead is what a file's first line says of those after it.
type lineHead struct {
	parser lineParser
	bytes  int // of the header; 0: there is none
}

// begin reads the header of a text, if it has one, and returns what comes after it.
func (f *lineFormat) begin(name string, r io.Reader) (lineHead, io.Reader, error) {
	if f.usual != nil {
		return lineHead{parser: f.usual}, r, nil
	}
	text := bufio.NewReaderSize(r, headLine)
	first, err := text.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return lineHead{}, nil, tooLong(name, 0, headLine)
	} else if err != nil && err != io.EOF {
		return lineHead{}, nil, datafile.ReadFault(name, int64(len(first)), err)
	}
	header := bytes.Clone(bytes.TrimRight(bytes.TrimPrefix(first, []byte("\ufeff")), "\r\n"))
	p, err := newLineParser(f.layout, header, f.unlabelled)
	if err != nil {
		return lineHead{}, nil, datafile.Errorf(name, 0, "%s", err.Error())
	}
	return lineHead{p, len(first)}, text, nil
}

// head is begin of a file alone: a stream cuts files into blocks, of which one rank may never see
// the first.
func (f *lineFormat) head(path string) (lineHead, error) {
	if f.usual != nil {
		return lineHead{parser: f.usual}, nil
	}
	r, err := datafile.OpenText(path)
	if err != nil {
		return lineHead{}, err
	}
	defer r.Close()
	head, _, err := f.begin(path, r)
	return head, err
}

// each gives the parsed chunks of a text to collect, in order, until that returns false. Bad lines
// that may be left out are.
func (f *lineFormat) each(name string, r io.Reader, size, threads int, bad *datafile.Skips, collect func(*chunk) bool) (lineHead, error) {
	head, r, err := f.begin(name, r)
	if err != nil {
		return head, err
	}
	lines := 0
	if head.bytes > 0 {
		lines = 1
	}
	in := &chunks{name: name, r: r, size: size, most: f.most(), offset: int64(head.bytes)}
	return head, parseLines(in, threads, head.parser.parse, func(c *chunk) (bool, error) {
		for _, fault := range c.block.faults {
			told := datafile.Errorf(name, c.offset+int64(fault.offset), "line %d: %s", lines+fault.line+1, fault.text)
			if err := bad.Skip(told); err != nil {
				return false, err
			}
		}
		lines += c.block.lines
		return collect(c), nil
	})
}

// none is the fault of a text without samples.
func (f *lineFormat) none(name string) error {
	if f.layout == nil {
		return datafile.Errorf(name, 0, "%s", "no rows: want "+f.requirement())
	}
	return datafile.Errorf(name, 0, "%s", "no samples: want "+f.requirement())
}

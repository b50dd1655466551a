package clicks

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// Parser parses whole lines; the last line of a file may lack its end. Goroutines may share a
// parser. A bad line adds a fault only.
type Parser interface {
	Parse(text []byte, out *Block)
}

// Format converts lines to samples: Criteo's format, or a layout. Each file with a header has its
// own parser, because the order of columns can differ; the shape of samples is equal.
type Format struct {
	Layout  *layout.Layout // nil: Criteo's format
	Default Parser         // parser of files without a header
	// Unlabelled allows headers without the label, and lines in Criteo's format without it, as in
	// Criteo's published test file, for predictions.
	Unlabelled bool
}

// slotLine is the maximum length of a layout's line, enough for a bag of a million keys.
const slotLine = 32 << 20

// headLine is the maximum length of a header.
const headLine = 1 << 20

// CriteoFormat returns Criteo's format with ids for a table of this size (0: no ids), or with keys.
func CriteoFormat(rows int, keys bool) *Format {
	p := NewCriteoParser(rows, keys)
	return &Format{Default: p}
}

// LayoutFormat returns the format of a layout.
func LayoutFormat(l *layout.Layout) (*Format, error) {
	f := &Format{Layout: l}
	if l.Header {
		return f, nil
	}
	var err error
	if f.Default, err = NewParser(l, nil, false); err != nil {
		return nil, err
	}
	return f, nil
}

// NewParser returns the parser of a layout: Criteo's parser if it gives equal samples.
func NewParser(l *layout.Layout, header []byte, unlabelled bool) (Parser, error) {
	p, err := NewLayoutParser(l, header, unlabelled)
	if err != nil {
		return nil, err
	}
	if !likeCriteo(l) {
		return p, nil
	}
	own := NewCriteoParser(0, false)
	own.bags = true
	return own, nil
}

// Expects describes the expected lines.
func (f *Format) Expects() string {
	if f.Layout == nil {
		return "lines of a label, 13 numbers and 26 categories, separated by tabs"
	}
	return fmt.Sprintf("lines by layout %s", f.Layout.Name())
}

// most returns the maximum length of a line; 0 means the default.
func (f *Format) most() int {
	if f.Layout == nil {
		return 0
	}
	return slotLine
}

// Head is the parser of a file with the length of its header.
type Head struct {
	Parser Parser
	bytes  int // length of the header; 0: no header
}

// begin reads the header of a text, if the format has one, and returns the rest.
func (f *Format) begin(name string, r io.Reader) (Head, io.Reader, error) {
	if f.Unlabelled && f.Layout == nil {
		text := bufio.NewReaderSize(r, MaxLine)
		if first, _ := text.Peek(MaxLine); lacksLabel(first) {
			p := *f.Default.(*CriteoParser)
			p.unlabelled = true
			return Head{Parser: &p}, text, nil
		}
		r = text
	}
	if f.Default != nil {
		return Head{Parser: f.Default}, r, nil
	}
	text := bufio.NewReaderSize(r, headLine)
	first, err := text.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return Head{}, nil, tooLong(name, 0, headLine)
	} else if err != nil && err != io.EOF {
		return Head{}, nil, datafile.ReadFault(name, int64(len(first)), err)
	}
	header := bytes.Clone(bytes.TrimRight(bytes.TrimPrefix(first, []byte("\ufeff")), "\r\n"))
	p, err := NewParser(f.Layout, header, f.Unlabelled)
	if err != nil {
		return Head{}, nil, datafile.Errorf(name, 0, "%s", err.Error())
	}
	return Head{p, len(first)}, text, nil
}

// lacksLabel reports whether the first line has one field fewer than Criteo's format.
func lacksLabel(text []byte) bool {
	first, _, _ := bytes.Cut(text, []byte{'\n'})
	return bytes.Count(first, []byte{'\t'}) == CriteoFields-2
}

// head reads the header of a file separately, because a stream cuts files into blocks, and a rank
// can miss the first block.
func (f *Format) head(path string) (Head, error) {
	if f.Default != nil {
		return Head{Parser: f.Default}, nil
	}
	r, err := datafile.OpenText(path)
	if err != nil {
		return Head{}, err
	}
	defer r.Close()
	head, _, err := f.begin(path, r)
	return head, err
}

// Each calls collect with the parsed chunks of a text, in order, until collect returns false. It
// leaves out bad lines up to the limit.
func (f *Format) Each(name string, r io.Reader, size, threads int, bad *datafile.Skips, collect func(*Chunk) bool) (Head, error) {
	head, r, err := f.begin(name, r)
	if err != nil {
		return head, err
	}
	lines := 0
	if head.bytes > 0 {
		lines = 1
	}
	in := &Chunks{Name: name, R: r, Size: size, most: f.most(), offset: int64(head.bytes)}
	return head, ParseLines(in, threads, head.Parser.Parse, func(c *Chunk) (bool, error) {
		for _, fault := range c.Block.Faults {
			told := datafile.Errorf(name, c.Offset+int64(fault.Offset), "line %d: %s", lines+fault.Line+1, fault.Text)
			if err := bad.Skip(told); err != nil {
				return false, err
			}
		}
		lines += c.Block.Lines
		return collect(c), nil
	})
}

// EmptyError returns the error of a text without samples.
func (f *Format) EmptyError(name string) error {
	if f.Layout == nil {
		return datafile.Errorf(name, 0, "%s", "no rows: want "+f.Expects())
	}
	return datafile.Errorf(name, 0, "%s", "no samples: want "+f.Expects())
}

package table

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// chunkRows is how many rows a reader hands over at once.
const chunkRows = 1024

// CSV is a file of rows as text: fields separated by commas, semicolons or tabs, the names of the columns in the first
// line, quoted as RFC 4180 has it.
type CSV struct {
	name  string
	open  func() (io.ReadCloser, error)
	comma rune
	names []string
}

// OpenCSV reads the first line. open opens the file anew, unpacked; name is for errors.
func OpenCSV(name string, open func() (io.ReadCloser, error)) (*CSV, error) {
	c := &CSV{name: name, open: open}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, text := unmarked(f)
	line, err := text.Peek(readAhead)
	if err != nil && err != io.EOF {
		return nil, unreadable(name, 1, err)
	}
	if line, err = firstLine(name, line); err != nil {
		return nil, err
	}
	if c.comma = separator(line); c.comma == 0 {
		return nil, &Fault{File: name, Line: 1, Problem: "one column alone: want a header with the names of the columns, separated by commas, tabs or semicolons"}
	}
	r.left = MaxRecord
	in := c.reader(text)
	names, err := in.Read()
	if err != nil {
		return nil, c.fault(err, 1)
	}
	for i, n := range names {
		names[i] = strings.TrimSpace(n)
	}
	if numbers := slices.IndexFunc(names, func(n string) bool { _, err := strconv.ParseFloat(n, 64); return err != nil }) < 0; numbers {
		return nil, &Fault{File: name, Line: 1, Problem: fmt.Sprintf("%s, …: these are numbers: want a header with the names of the columns first", names[0])}
	}
	c.names = names
	return c, CheckNames(name, names)
}

// Name is the file's.
func (c *CSV) Name() string { return c.name }

// Columns are the header's names.
func (c *CSV) Columns() []string { return slices.Clone(c.names) }

// readAhead is how much of a file is read at a time.
const readAhead = 1 << 16

// unmarked is a file of text without the mark that some programs begin it with.
func unmarked(f io.Reader) (*bounded, *bufio.Reader) {
	r := &bounded{r: f, left: MaxRecord}
	text := bufio.NewReaderSize(r, readAhead)
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
		_, _ = text.Discard(3) // they are there
	}
	return r, text
}

// firstLine is the first line of a file's beginning.
func firstLine(name string, begin []byte) ([]byte, error) {
	line, _, _ := bytes.Cut(begin, []byte{'\n'})
	if len(begin) == 0 {
		return nil, &Fault{File: name, Problem: "the file is empty: want a header and rows"}
	}
	if bytes.IndexByte(line, 0) >= 0 {
		return nil, &Fault{File: name, Line: 1, Problem: "a zero byte: this is no file of text"}
	}
	return line, nil
}

// separator is the one that a header has most of; 0: none.
func separator(line []byte) rune {
	best, most := rune(0), 0
	for _, s := range []rune{',', '\t', ';'} {
		if n := bytes.Count(line, []byte(string(s))); n > most {
			best, most = s, n
		}
	}
	return best
}

func (c *CSV) reader(r io.Reader) *csv.Reader {
	in := csv.NewReader(r)
	in.Comma, in.ReuseRecord = c.comma, true
	return in
}

// fault names what csv.Reader or the file below it says, after a line.
func (c *CSV) fault(err error, line int64) error {
	var p *csv.ParseError
	switch {
	case errors.As(err, &p) && errors.Is(err, csv.ErrFieldCount):
		return &Fault{File: c.name, Line: int64(p.Line), Problem: fmt.Sprintf("not as many fields as the header has names, %d", len(c.names))}
	case errors.As(err, &p) && p.Err != nil && !errors.As(err, new(*Fault)):
		return &Fault{File: c.name, Line: int64(p.Line), Problem: fmt.Sprintf("byte %d of the line: %v", p.Column, p.Err)}
	}
	var at *boundError
	if errors.As(err, &at) {
		return &Fault{File: c.name, Line: line, Problem: err.Error()}
	}
	return unreadable(c.name, line, err)
}

// unreadable names a file that cannot be read on behind a line.
func unreadable(name string, line int64, err error) error {
	var disk *fs.PathError
	if errors.As(err, &disk) {
		return err
	}
	problem := err.Error()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		problem = "truncated: the file ends too early"
	}
	return &Fault{File: name, Line: line, Problem: problem}
}

// Scan reads all rows. It parses with one goroutine, at about 100 MB/s.
func (c *CSV) Scan(want []int, bad func(error) error, visit func(*Chunk) error) error {
	f, err := c.open()
	if err != nil {
		return err
	}
	defer f.Close()
	r, text := unmarked(f)
	in := c.reader(text)
	in.FieldsPerRecord = len(c.names)
	if _, err := in.Read(); err != nil {
		return c.fault(err, 1)
	}
	line := 1
	out := Chunk{Columns: make([]Vector, len(want)), lines: []int64{}}
	for {
		r.left = MaxRecord
		record, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			if fault := c.fault(err, int64(line)); !errors.Is(err, csv.ErrFieldCount) { // what follows is lost
				return fault
			} else if err := bad(fault); err != nil {
				return err
			}
			continue
		}
		line, _ = in.FieldPos(0)
		if err := c.add(&out, record, want, int64(line)); err != nil {
			return err
		}
		if out.N == chunkRows {
			if err := c.hand(&out, visit); err != nil {
				return err
			}
		}
	}
	return c.hand(&out, visit)
}

// add takes a row into the chunk.
func (c *CSV) add(out *Chunk, record []string, want []int, line int64) error {
	if out.First+int64(out.N) >= MaxRows {
		return &Fault{File: c.name, Line: line, Problem: fmt.Sprintf("more than %d rows", MaxRows)}
	}
	for i, column := range want {
		out.Columns[i].Words = append(out.Columns[i].Words, record[column])
	}
	out.lines = append(out.lines, line)
	out.N++
	return nil
}

// hand gives the chunk to visit and begins the next one.
func (c *CSV) hand(out *Chunk, visit func(*Chunk) error) error {
	if out.N == 0 {
		return nil
	}
	if err := visit(out); err != nil {
		return err
	}
	for i := range out.Columns {
		out.Columns[i].Words = out.Columns[i].Words[:0]
	}
	out.First += int64(out.N)
	out.N, out.lines = 0, out.lines[:0]
	return nil
}

// bounded ends a stream that has more bytes than may come before left is set anew.
type bounded struct {
	r    io.Reader
	left int
}

type boundError struct{ most int }

func (e *boundError) Error() string {
	return fmt.Sprintf("a row of more than %d bytes: this is no table of text, or a quote does not end", e.most)
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, &boundError{MaxRecord}
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

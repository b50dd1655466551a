package table

import (
	"bufio"
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

// CSV is a file of rows as text: fields separated by commas, semicolons or tabs, the names of the
// columns in the first line, quoted as RFC 4180 has it.
type CSV struct {
	name    string
	open    func() (io.ReadCloser, error)
	comma   rune
	names   []string
	unnamed bool // the first column has no name in the header
}

// OpenCSV reads the first lines. open reopens the file, unpacked; name is for errors.
func OpenCSV(name string, open func() (io.ReadCloser, error)) (*CSV, error) {
	c := &CSV{name: name, open: open}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, text := unmarked(name, f)
	begin, err := text.Peek(readAhead)
	if err != nil && err != io.EOF {
		return nil, unreadable(name, 1, err)
	}
	if len(begin) == 0 {
		return nil, &Fault{File: name, Problem: "the file is empty: want a header and rows"}
	}
	if c.comma = separator(begin); c.comma == 0 {
		return nil, &Fault{File: name, Line: 1, Problem: "one column alone: want a header with the names of the columns, separated by commas, tabs or semicolons"}
	}
	r.left = maxRecord
	in := c.reader(text)
	names, err := in.Read()
	if err != nil {
		return nil, c.fault(nil, err, 1)
	}
	return c, c.header(names)
}

// header takes the names of the first line.
func (c *CSV) header(names []string) error {
	numbers, first := 0, ""
	for i, n := range names {
		if n = strings.TrimSpace(n); strings.ContainsRune(n, '\r') {
			return &Fault{File: c.name, Line: 1, Problem: "lines end with CR alone: convert the file, for instance with `tr '\\r' '\\n' < OLD > NEW`"}
		}
		names[i] = n
		if x, err := strconv.ParseFloat(n, 64); err == nil && x-x == 0 {
			if numbers++; numbers == 1 {
				first = n
			}
		}
	}
	switch {
	case numbers == len(names):
		return &Fault{File: c.name, Line: 1, Problem: fmt.Sprintf("%s, …: these are numbers: want a header with the names of the columns first", names[0])}
	case numbers > 0:
		return &Fault{File: c.name, Line: 1, Problem: fmt.Sprintf("%q is a number and no name of a column: want a header first, a line with the names of all %d columns", first, len(names))}
	}
	c.unnamed = len(names) > 1 && names[0] == ""
	c.names = names
	if c.unnamed { // as pandas calls it when it reads such a file
		name := "Unnamed: 0"
		for slices.Contains(names, name) {
			name += ".1"
		}
		names[0] = name
	}
	if err := CheckNames(c.name, names); err != nil {
		return fmt.Errorf("%w; the first line is the header, with the names of the columns", err)
	}
	return nil
}

// index is the name of the first column if the header has none for it.
func (c *CSV) index() string {
	if c.unnamed {
		return c.names[0]
	}
	return ""
}

// described is how the text is read.
func (c *CSV) described() string {
	return fmt.Sprintf("%s: fields separated by %s, names of %d columns in line 1", c.name, map[rune]string{',': "commas", ';': "semicolons", '\t': "tabs"}[c.comma], len(c.names))
}

// Name is the file's.
func (c *CSV) Name() string { return c.name }

// Columns are the header's names.
func (c *CSV) Columns() []string { return slices.Clone(c.names) }

// readAhead is how much of a file is read at a time.
const readAhead = 1 << 16

// unmarked is a file of text without the mark that some programs begin it with.
func unmarked(name string, f io.Reader) (*bounded, *bufio.Reader) {
	r := &bounded{r: f, left: maxRecord, name: name, line: 1}
	text := bufio.NewReaderSize(r, readAhead)
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
		_, _ = text.Discard(3) // they are there
	}
	return r, text
}

// separatorLines is the number of lines by which a separator is chosen.
const separatorLines = 20

// separator returns the character that separates as many fields in each of the first lines, and
// most of them if several do. If none does, it is the one that the first line has most of. 0: the
// first line has none.
func separator(begin []byte) rune {
	best, most, alike := rune(0), 0, false
	for _, s := range []rune{',', '\t', ';'} {
		counts := separators(begin, byte(s))
		same := counts[0] > 0 && len(slices.Compact(slices.Clone(counts))) == 1
		if counts[0] > 0 && (same && !alike || same == alike && counts[0] > most) {
			best, most, alike = s, counts[0], same
		}
	}
	return best
}

// separators returns how often a character is in each of the first lines, outside quotes. The last
// line of begin counts if it is alone.
func separators(begin []byte, s byte) (counts []int) {
	n, quoted, filled := 0, false, false
	for _, b := range begin {
		switch {
		case b == '"':
			quoted = !quoted
		case b == s && !quoted:
			n++
		case b == '\n' && !quoted:
			if filled {
				counts = append(counts, n)
			}
			if n, filled = 0, false; len(counts) == separatorLines {
				return counts
			}
			continue
		}
		filled = filled || b != '\r'
	}
	if len(counts) == 0 {
		return []int{n}
	}
	return counts
}

func (c *CSV) reader(r io.Reader) *csv.Reader {
	in := csv.NewReader(r)
	in.Comma, in.ReuseRecord = c.comma, true
	return in
}

// fault names what csv.Reader or the file below it reports of a record, after a line.
func (c *CSV) fault(record []string, err error, line int64) error {
	var p *csv.ParseError
	var text *Fault
	switch {
	case errors.As(err, &text):
		return text
	case errors.As(err, &p) && errors.Is(err, csv.ErrFieldCount):
		return &Fault{File: c.name, Line: int64(p.Line), Problem: fmt.Sprintf("fields: %d: want %d, as many as the header has names", len(record), len(c.names))}
	case errors.As(err, &p) && errors.Is(err, csv.ErrQuote) && p.StartLine < p.Line:
		return &Fault{File: c.name, Line: int64(p.StartLine), Problem: fmt.Sprintf("a quote of the row that begins here does not end before line %d", p.Line)}
	case errors.As(err, &p):
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
	if errors.As(err, new(*fs.PathError)) || errors.As(err, new(*Fault)) {
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
	r, text := unmarked(c.name, f)
	in := c.reader(text)
	in.FieldsPerRecord = len(c.names)
	if record, err := in.Read(); err != nil {
		return c.fault(record, err, 1)
	}
	line := 1
	out := Chunk{Columns: make([]Vector, len(want)), lines: []int64{}}
	for {
		r.left = maxRecord
		record, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			if fault := c.fault(record, err, int64(line)); !errors.Is(err, csv.ErrFieldCount) { // what follows is lost
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

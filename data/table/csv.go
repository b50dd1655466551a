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

// chunkRows is the number of rows per chunk.
const chunkRows = 1024

// CSV is a table in text: fields separated by commas, semicolons or tabs, quoted by RFC 4180, with
// column names in the first line.
type CSV struct {
	name    string
	open    func() (io.ReadCloser, error)
	comma   rune
	names   []string
	unnamed bool // first column without a name in the header
}

// OpenCSV reads the header, and the first lines for the choice of the separator. open opens the
// file, decompressed, at its start, once now and once per Scan; name is the file in errors.
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
	r.budget = maxRecord
	in := c.reader(text)
	names, err := in.Read()
	if err != nil {
		return nil, c.fault(nil, err, 1)
	}
	return c, c.header(names)
}

// header sets the names from the first line.
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
		return &Fault{File: c.name, Line: 1, Problem: fmt.Sprintf("%q is a number, not a column name: want a header first, a line with the names of all %d columns", first, len(names))}
	}
	c.unnamed = len(names) > 1 && names[0] == ""
	c.names = names
	if c.unnamed { // pandas' name for such a column
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

// index returns the name given to the first column if the header has none; otherwise "".
func (c *CSV) index() string {
	if c.unnamed {
		return c.names[0]
	}
	return ""
}

// described describes the format of the text in one line.
func (c *CSV) described() string {
	return fmt.Sprintf("%s: fields separated by %s, names of %d columns in line 1", c.name, map[rune]string{',': "commas", ';': "semicolons", '\t': "tabs"}[c.comma], len(c.names))
}

// Name returns the file's name.
func (c *CSV) Name() string { return c.name }

// Columns returns the header's names.
func (c *CSV) Columns() []string { return slices.Clone(c.names) }

// readAhead is the buffer size in bytes.
const readAhead = 1 << 16

// unmarked returns the text of f without a byte order mark, and the limit of a record's bytes.
func unmarked(name string, f io.Reader) (*bounded, *bufio.Reader) {
	r := &bounded{r: f, budget: maxRecord, name: name, line: 1}
	text := bufio.NewReaderSize(r, readAhead)
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
		_, _ = text.Discard(3) // buffered bytes: no error
	}
	return r, text
}

// separatorLines is the number of lines used to choose a separator.
const separatorLines = 20

// separator returns the candidate (comma, tab or semicolon) that occurs equally often in each of
// the first lines; if several do, the most frequent; if none does, the most frequent candidate of
// the first line, or 0.
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

// separators returns the counts of a character in each of the first lines, outside quotes. A last
// line without a line end counts only if it is the only line.
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

// fault converts an error of csv.Reader or of the file to a Fault with a line; line is the last
// line read.
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

// unreadable adds file and line, the last line read, to an error that does not name the file.
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

// Scan reads all rows. One goroutine parses at about 100 MB/s.
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
		r.budget = maxRecord
		record, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			if fault := c.fault(record, err, int64(line)); !errors.Is(err, csv.ErrFieldCount) { // no recovery after such an error
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

// add adds a row to the chunk.
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

// hand passes the chunk to visit and begins the next one.
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

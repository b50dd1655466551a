// Package table reads tables: files of rows with named columns, such as CSV.
package table

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Kind is the use of a column. In a schema, a format can follow a colon, such as date:DD/MM/YYYY.
type Kind string

const (
	// guess, the zero value, leaves the choice to the values of the column.
	guess Kind = ""
	// Number is an input number, scaled to mean 0 and deviation 1.
	Number Kind = "number"
	// Category is one of several values; the input is the value's row of an embedding table.
	Category Kind = "category"
	// Label is the class to predict.
	Label Kind = "label"
	// Target is the number to predict.
	Target Kind = "target"
	// Date is a date or time: its parts are input numbers, scaled like numbers.
	Date Kind = "date"
	// Ignore skips the column; formats that allow it do not read the column.
	Ignore Kind = "ignore"
)

// kinds returns the kinds that a schema can have.
func kinds() []Kind { return []Kind{Number, Category, Date, Label, Target, Ignore} }

// Limits of a file, which bound a reader's memory.
const (
	// maxColumns is the largest number of columns of a table.
	maxColumns = 1 << 14
	// maxRecord is the largest number of bytes of a row as text.
	maxRecord = 1 << 20
	// maxCategories is the largest number of different values of a category.
	maxCategories = 1 << 20
	// MaxClasses is the largest number of different labels.
	MaxClasses = 1 << 16
	// MaxRows is the largest number of rows of a table.
	MaxRows = 1<<31 - 1
)

// Fault is an error in a file, with line (from 1), or row if the format has no lines, and column.
type Fault struct {
	File    string `json:"file"`
	Line    int64  `json:"line"`   // 0: the file as a whole
	Row     bool   `json:"row"`    // Line counts rows of the table, from 0, and not lines of text
	Column  string `json:"column"` // empty: no specific column
	Problem string `json:"problem"`
}

// Error returns file, position and problem.
func (f *Fault) Error() string {
	place := ""
	switch {
	case f.Row:
		place = fmt.Sprintf(": row %d", f.Line)
	case f.Line > 0:
		place = fmt.Sprintf(": line %d", f.Line)
	}
	if f.Column != "" {
		place += fmt.Sprintf(": column %q", f.Column)
	}
	return f.File + place + ": " + f.Problem
}

// Vector is a column's part of a chunk: Numbers or Words, or Text in a pass with all values as
// text. The other fields are nil.
type Vector struct {
	Numbers []float64 // NaN: missing
	Words   []string  // Missing: missing
	Text    []byte    // values in sequence; empty: missing. Bools are 1 and 0; dates and times are numbers
	Ends    []int     // end of each value in Text
	Rows    []int     // lists: end of each row's values in Ends; nil: one value per row
	Seconds float64   // dates and times: Numbers count units of this many seconds since 1970; 0: other values
}

// Chunk is a range of rows, valid until the visitor returns.
type Chunk struct {
	N       int
	First   int64    // number of the first row in the table, from 0
	Columns []Vector // requested columns, in the requested order
	lines   []int64  // line of each row, if the file has lines
	file    string   // file of a table in parts; empty: single file
	before  int64    // rows of the earlier files
}

// place returns a Fault at row i of the chunk.
func (c *Chunk) place(file string, i int, column, problem string) *Fault {
	file = cmp.Or(c.file, file)
	if c.lines != nil {
		return &Fault{File: file, Line: c.lines[i], Column: column, Problem: problem}
	}
	return &Fault{File: file, Line: c.First - c.before + int64(i), Row: true, Column: column, Problem: problem}
}

// Reader reads the rows of a file, any number of times.
type Reader interface {
	// Name returns the file's name, for errors.
	Name() string
	// Columns returns the names of the columns, all different.
	Columns() []string
	// Scan calls visit with all rows in order, chunk by chunk, with the columns of the indices
	// want. One goroutine calls visit; an error of visit ends the pass. Scan calls bad for each
	// faulty row: if bad returns an error, the pass ends; nil skips the row.
	Scan(want []int, bad func(error) error, visit func(*Chunk) error) error
}

// Schema maps column names to kinds. Columns that it lacks get guessed kinds.
type Schema map[string]Kind

// ParseSchema reads NAME=KIND, separated by commas: age=number,city=category,id=ignore. A
// kind can have a format.
func ParseSchema(text string) (Schema, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	s := Schema{}
	for _, part := range strings.Split(text, ",") {
		at := strings.LastIndexByte(part, '=')
		if at < 0 {
			return nil, fmt.Errorf("%q: want COLUMN=KIND", part)
		}
		name, kind := strings.TrimSpace(part[:at]), Kind(strings.TrimSpace(part[at+1:]))
		if err := kind.check(); err != nil {
			return nil, fmt.Errorf("column %q is to be %w", name, err)
		}
		if _, twice := s[name]; twice || name == "" {
			return nil, fmt.Errorf("column %q: want each column once, by its name", name)
		}
		s[name] = kind
	}
	return s, nil
}

// String returns the schema in ParseSchema's format, by name.
func (s Schema) String() string {
	var parts []string
	for name, kind := range s {
		parts = append(parts, name+"="+string(kind))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// CheckNames returns an error for column names that are equal, empty, not text, or too many. It
// serves implementations of Reader.
func CheckNames(file string, names []string) error {
	if len(names) > maxColumns {
		return &Fault{File: file, Problem: fmt.Sprintf("%d columns: want %d at most", len(names), maxColumns)}
	}
	seen := map[string]int{}
	var errs []error
	for i, n := range names {
		problem := ""
		switch first, twice := seen[n]; {
		case n == "":
			problem = fmt.Sprintf("column %d of %d has no name: name it, or remove it (a separator at the end of each line?)", i+1, len(names))
		case !utf8.ValidString(n):
			problem = fmt.Sprintf("column %d of %d is called %q, which is not UTF-8: rename it", i+1, len(names), n)
		case twice:
			problem = fmt.Sprintf("columns %d and %d are both called %q: rename one", first, i+1, n)
		}
		if seen[n] = i + 1; problem != "" && len(errs) < mostNamed {
			errs = append(errs, &Fault{File: file, Problem: problem})
		}
	}
	return errors.Join(errs...)
}

// mostNamed is the number of faults of one kind in an error.
const mostNamed = 5

// isMissing reports whether a word means a missing value.
func isMissing(word string) bool {
	switch word {
	case "", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?":
		return true
	}
	return false
}

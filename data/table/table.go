// Package table reads tables: files of rows whose columns have names, such as CSV.
//
// A Reader passes over a file's rows chunk by chunk. A Survey of such a pass knows what each column
// holds, from which a Schema says what the column is for, as far as the user has not. An Encoder
// made of both turns rows into what a model takes: numbers on one scale, categories as rows of one
// embedding table, labels or targets.
package table

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Kind is what a column is for.
type Kind string

const (
	// guess, the zero value, leaves the choice to the values of the column.
	guess Kind = ""
	// Number is a value that a model sees on a scale of mean 0 and deviation 1.
	Number Kind = "number"
	// Category is one of several values, which a model sees as a row of an embedding table.
	Category Kind = "category"
	// Label is the class that a model is to find.
	Label Kind = "label"
	// Target is the number that a model is to find.
	Target Kind = "target"
	// Ignore leaves the column out; it is not even read where the format allows that.
	Ignore Kind = "ignore"
)

// kinds are those that a user may name.
func kinds() []Kind { return []Kind{Number, Category, Label, Target, Ignore} }

// Limits of what a file may make a reader hold.
const (
	// maxColumns is the largest number of columns of a table.
	maxColumns = 1 << 14
	// maxRecord is the largest number of bytes of a row as text.
	maxRecord = 1 << 20
	// maxCategories is the largest number of different values of a category.
	maxCategories = 1 << 20
	// MaxClasses is how many different labels there may be.
	MaxClasses = 1 << 16
	// MaxRows is how many rows a table may have.
	MaxRows = 1<<31 - 1
)

// Fault is what is wrong with a file: in which line (from 1) or, where a format has none, row, and
// in which column.
type Fault struct {
	File    string
	Line    int64  // 0: the file as a whole
	Row     bool   // Line counts rows of the table, from 0, and not lines of text
	Column  string // empty: none in particular
	Problem string
}

// Error gives file, place and problem.
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

// Vector is a column's part of a chunk: numbers or words, or of a pass that wants all values as
// text, one after the other, Text; what is of the others is nil.
type Vector struct {
	Numbers []float64 // NaN where there is none
	Words   []string  // Missing where there is none
	Text    []byte    // empty where there is none; truth values are 1 and 0, dates and times as numbers are
	Ends    []int     // of each value in Text
	Rows    []int     // of lists: where each row's values end among Ends; nil: each row has one value
}

// Chunk is some rows that follow one another. It is good until the visitor that got it returns.
type Chunk struct {
	N       int
	First   int64    // its first row's number in the table, from 0
	Columns []Vector // of the columns that were asked for, in that order
	lines   []int64  // of the rows, where the file has lines
	file    string   // of several that are one table; empty: the table is one file
	before  int64    // rows of the files before that one
}

// place is where row i of the chunk is.
func (c *Chunk) place(file string, i int, column, problem string) *Fault {
	file = cmp.Or(c.file, file)
	if c.lines != nil {
		return &Fault{File: file, Line: c.lines[i], Column: column, Problem: problem}
	}
	return &Fault{File: file, Line: c.First - c.before + int64(i), Row: true, Column: column, Problem: problem}
}

// Reader passes over the rows of one file, as often as is wanted.
type Reader interface {
	// Name is the file's, for errors.
	Name() string
	// Columns are their names, each once.
	Columns() []string
	// Scan calls visit with all rows in their order, chunk by chunk, each with the columns of the
	// numbers in want. visit is called by one goroutine; its error ends the pass. bad is asked
	// about each fault of a row: what it returns ends the pass, and nil leaves the row out.
	Scan(want []int, bad func(error) error, visit func(*Chunk) error) error
}

// Schema says by the columns' names what they are for; of others it is guessed.
type Schema map[string]Kind

// ParseSchema reads NAME=KIND, separated by commas: age=number,city=category,id=ignore.
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
		if !slices.Contains(kinds(), kind) {
			return nil, fmt.Errorf("column %q is to be %q: want number, category, label, target or ignore", name, kind)
		}
		if _, twice := s[name]; twice || name == "" {
			return nil, fmt.Errorf("column %q: want each column once, by its name", name)
		}
		s[name] = kind
	}
	return s, nil
}

// String is what ParseSchema reads, in the order of names.
func (s Schema) String() string {
	var parts []string
	for name, kind := range s {
		parts = append(parts, name+"="+string(kind))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// CheckNames reports names of a file's columns that are equal, empty or no text, or are too many.
// It is for implementations of Reader.
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

// mostNamed is the number of faults of one kind that an error names.
const mostNamed = 5

// isMissing reports whether a word stands for a missing value.
func isMissing(word string) bool {
	switch word {
	case "", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?":
		return true
	}
	return false
}

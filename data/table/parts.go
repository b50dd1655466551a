package table

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// parts is several files as one table.
type parts struct {
	name  string
	files []Reader
}

// Join returns one table of the rows of several files with the same columns in the same order. name
// is the table in errors.
func Join(name string, files []Reader) (Reader, error) {
	want := files[0].Columns()
	for _, f := range files[1:] {
		if got := f.Columns(); !slices.Equal(got, want) {
			return nil, &Fault{File: f.Name(), Problem: fmt.Sprintf("its columns are %s, the columns of %s are %s: want the same columns in the same order in all files of a table", some(got, 12), files[0].Name(), some(want, 12))}
		}
	}
	return &parts{name, files}, nil
}

// Name returns the name of the whole table.
func (p *parts) Name() string { return p.name }

// Columns returns the names, equal in all files.
func (p *parts) Columns() []string { return p.files[0].Columns() }

// index returns the column without a name.
func (p *parts) index() string { return indexOf(p.files[0]) }

// described returns the format of the files.
func (p *parts) described() string {
	return fmt.Sprintf("%s: %s, %s to %s, the first one read so: %s", p.name, quantity.Count(len(p.files), "file"), p.files[0].Name(), p.files[len(p.files)-1].Name(), described(p.files[0]))
}

// Scan reads one file after another.
func (p *parts) Scan(want []int, bad func(error) error, visit func(*Chunk) error) error {
	before := int64(0)
	for _, f := range p.files {
		rows := int64(0)
		err := f.Scan(want, bad, func(c *Chunk) error {
			first, of := c.First, *c
			of.First, of.file, of.before = before+first, f.Name(), before
			rows = first + int64(c.N)
			if of.First+int64(c.N) > MaxRows {
				return &Fault{File: p.name, Problem: fmt.Sprintf("more than %d rows", MaxRows)}
			}
			return visit(&of)
		})
		if err != nil {
			return err
		}
		before += rows
	}
	return nil
}

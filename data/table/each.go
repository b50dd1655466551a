package table

import (
	"slices"
	"strings"
)

// Unlabelled are encoded rows of which a model is to find what they do not say.
type Unlabelled struct {
	Samples
	// Rows are their numbers in the table, from 0.
	Rows []int64
	// PassThrough are the columns of each row, as words, that were to be kept.
	PassThrough [][]string
}

// Each passes over a table that has the encoder's columns, in any order, but for the one to find,
// which need not be there. It gives the rows to visit, those with numbers from k*batch to
// (k+1)*batch-1 at a time, for each k that mine takes; a row that bad accepts is left out. keep
// names columns whose words are kept, whatever their kind. Memory of a call of visit is reused
// after its return.
func (e *Encoder) Each(r Reader, keep []string, batch int, mine func(k int64) bool, bad func(error) error, visit func(*Unlabelled) error) error {
	want, columns, err := e.bind(r, false)
	if err != nil {
		return err
	}
	names := r.Columns()
	for _, name := range keep {
		at := slices.Index(names, name)
		if at < 0 {
			return &Fault{File: r.Name(), Column: name, Problem: "there is no such column, which is to be kept: there are " + some(names, 12)}
		}
		want = append(want, at)
	}
	p := part{columns: columns, visit: visit, number: -1}
	err = r.Scan(want, bad, func(c *Chunk) error {
		for i := range c.N {
			if k := (c.First + int64(i)) / int64(batch); k != p.number {
				if err := p.end(); err != nil {
					return err
				}
				p.number, p.open = k, mine(k)
			}
			if !p.open {
				continue
			}
			if column, problem := refused(columns, c, i); problem != "" {
				if err := bad(c.place(r.Name(), i, column, problem)); err != nil {
					return err
				}
				continue
			}
			p.add(c, i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.end()
}

// part is the batch that is being filled.
type part struct {
	Unlabelled
	columns []*Column
	visit   func(*Unlabelled) error
	number  int64
	open    bool // it is one to be visited, even if no row of it is good
}

// add appends row i of a chunk, which was not refused.
func (p *part) add(c *Chunk, i int) {
	p.Samples.add(p.columns, c, i)
	p.Rows = append(p.Rows, c.First+int64(i))
	var kept []string
	for k := len(p.columns); k < len(c.Columns); k++ {
		word := c.Columns[k].word(i)
		if c.Columns[k].Numbers != nil && c.Columns[k].missing(i) {
			word = ""
		}
		kept = append(kept, strings.Clone(word)) // a reader may use its memory again
	}
	p.PassThrough = append(p.PassThrough, kept)
}

// end gives the batch away.
func (p *part) end() error {
	if !p.open {
		return nil
	}
	p.open = false
	err := p.visit(&p.Unlabelled)
	p.Samples = Samples{Values: p.Values[:0], IDs: p.IDs[:0]}
	p.Rows, p.PassThrough = p.Rows[:0], p.PassThrough[:0]
	return err
}

// Value is the number that stands for a model's output x of a target: in the units of its column.
func (c Column) Value(x float32) float64 { return float64(x)*c.Deviation + c.Mean }

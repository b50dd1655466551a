package table

import (
	"slices"
	"strings"
)

// Unlabelled is a batch of encoded rows for prediction, without the goal.
type Unlabelled struct {
	Samples
	// Rows lists the rows' numbers in the table, from 0.
	Rows []int64
	// PassThrough lists the kept columns of each row, as words.
	PassThrough [][]string
}

// Each encodes a table for prediction. The table must have the encoder's columns in any order; the
// goal (label or target) is optional. visit gets rows k*batch to (k+1)*batch-1 as batch k, for each
// k with mine(k). Bad rows are omitted if bad returns nil. keep names columns, of any kind, that
// visit gets as words. Memory that visit gets is reused later.
func (e *Encoder) Each(r Reader, keep []string, batch int, mine func(k int64) bool, bad func(error) error, visit func(*Unlabelled) error) error {
	want, columns, err := e.bind(r, false)
	if err != nil {
		return err
	}
	names := r.Columns()
	for _, name := range keep {
		at := slices.Index(names, name)
		if at < 0 {
			return &Fault{File: r.Name(), Column: name, Problem: "a column to pass through does not exist: the table has " + some(names, 12)}
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

// part is the current batch.
type part struct {
	Unlabelled
	columns []*Column
	visit   func(*Unlabelled) error
	number  int64
	open    bool // visit must get the batch, even without a good row
}

// add appends row i of a chunk, a good row.
func (p *part) add(c *Chunk, i int) {
	p.Samples.add(p.columns, c, i)
	p.Rows = append(p.Rows, c.First+int64(i))
	var kept []string
	for k := len(p.columns); k < len(c.Columns); k++ {
		word := c.Columns[k].word(i)
		if c.Columns[k].Numbers != nil && c.Columns[k].missing(i) {
			word = ""
		}
		kept = append(kept, strings.Clone(word)) // readers can reuse the memory
	}
	p.PassThrough = append(p.PassThrough, kept)
}

// end passes the batch to visit.
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

// Value converts a model's output x of a target to the units of the column.
func (c Column) Value(x float32) float64 { return float64(x)*c.Deviation + c.Mean }

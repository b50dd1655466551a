package table

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Samples holds encoded rows, stored contiguously in each slice.
type Samples struct {
	N       int
	Values  []float32 // N*Numbers
	IDs     []int32   // N*Categories
	Labels  []int32   // N labels, if the encoder has a label
	Targets []float32 // N targets, if the encoder has a target
	// Unseen counts, by column, values of categories that did not occur in training.
	Unseen map[string]int
}

// Encode encodes a table with at least the encoder's columns, in any order. For each row, to
// returns the samples to which the row is appended, or nil to skip the row. With find false the
// goal (label or target) is not read. most limits the bytes of samples. bad is as in Reader.Scan,
// and is also called for an unknown label.
func (e *Encoder) Encode(r Reader, find bool, most int64, to func(row int64) *Samples, bad func(error) error) error {
	want, columns, err := e.bind(r, find)
	if err != nil {
		return err
	}
	each := int64(4 * (max(len(columns), e.numbers+e.categories) + 1))
	return r.Scan(want, bad, func(c *Chunk) error {
		if most -= int64(c.N) * each; most < 0 {
			return c.place(r.Name(), 0, "", "more samples than there is to be memory for")
		}
		for i := range c.N {
			s := to(c.First + int64(i))
			if s == nil {
				continue
			}
			if column, problem := refused(columns, c, i); problem != "" {
				if err := bad(c.place(r.Name(), i, column, problem)); err != nil {
					return err
				}
				continue
			}
			s.add(columns, c, i)
		}
		return nil
	})
}

// bind locates the encoder's columns in a table.
func (e *Encoder) bind(r Reader, find bool) (want []int, columns []*Column, err error) {
	names := r.Columns()
	for i := range e.Columns {
		c := &e.Columns[i]
		if c.Kind == Ignore || i == e.goal && !find {
			continue
		}
		at := slices.Index(names, c.Name)
		if at < 0 {
			return nil, nil, &Fault{File: r.Name(), Column: c.Name, Problem: "no such column, which the model needs: the table has " + some(names, 12)}
		}
		want, columns = append(want, at), append(columns, c)
	}
	return want, columns, nil
}

// refused returns the problem that makes row i bad, and its column; "" for a good row.
func refused(columns []*Column, c *Chunk, i int) (column, problem string) {
	for k, col := range columns {
		v := &c.Columns[k]
		if problem := refuses(col.Kind, col.Format, v, i); problem != "" {
			return col.Name, problem
		}
		switch col.Kind {
		case Label:
			if _, ok := col.codes[v.word(i)]; ok {
				continue
			}
			if v.missing(i) {
				return col.Name, noLabel(v, i)
			}
			return col.Name, fmt.Sprintf("%.40q is none of the %d classes (%s)", v.word(i), len(col.Words), some(col.Words, 5))
		case Number, Target:
			if math.IsInf(float64(col.scaled(v, i)), 0) {
				return col.Name, fmt.Sprintf("%s is too far from the mean of training, %s: want at most %s deviations of %s", v.word(i), quantity.FloatDigits(col.Mean, 4), quantity.Float(math.MaxFloat32), quantity.FloatDigits(col.Deviation, 4))
			}
		}
	}
	return "", ""
}

// add appends a good row.
func (s *Samples) add(columns []*Column, c *Chunk, i int) {
	for k, col := range columns {
		v := &c.Columns[k]
		switch col.Kind {
		case Number:
			s.Values = append(s.Values, col.scaled(v, i))
		case Date:
			s.Values = col.appendParts(s.Values, v, i)
		case Target:
			s.Targets = append(s.Targets, col.scaled(v, i))
		case Category:
			id := col.first
			if code, ok := col.codes[v.word(i)]; ok && !v.missing(i) {
				id += 1 + code
			} else if !ok && !v.missing(i) {
				if s.Unseen == nil {
					s.Unseen = map[string]int{}
				}
				s.Unseen[col.Name]++
			}
			s.IDs = append(s.IDs, id)
		case Label:
			s.Labels = append(s.Labels, col.codes[v.word(i)])
		}
	}
	s.N++
}

// scaled returns a number on the scale of the training rows.
func (c *Column) scaled(v *Vector, i int) float32 {
	x, missing, _ := v.number(i, c.Format)
	if missing {
		return 0
	}
	return float32((x - c.Mean) / c.Deviation)
}

// appendParts appends the inputs of a date, on the scale of training rows; 0 for a missing date.
func (c *Column) appendParts(to []float32, v *Vector, i int) []float32 {
	t, missing, _ := v.time(i, c.Format)
	all := values(t)
	for _, p := range c.Parts {
		x := float32(0)
		if !missing {
			x = float32((all[slices.Index(dateParts[:], p.Name)] - p.Mean) / p.Deviation)
		}
		to = append(to, x)
	}
	return to
}

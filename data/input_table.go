package data

import (
	"bytes"
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/setting"
)

// openAskedTable reads a table's rows on demand and encodes this rank's rows.
func openAskedTable(d Description, c InputConfig, bad *datafile.Skips) (PredictInput, error) {
	in, err := openRows(c)
	if err != nil {
		return nil, err
	}
	mine := func(k int64) bool { return k%int64(c.Size) == int64(c.Rank) }
	unseen := map[string]int{}
	p := newPushed(bad, c.Path != Stdin, func(hand func(func(*Rows)) error) error {
		return d.Encoder.Each(in, c.Columns, c.Batch, mine, bad.Skip, func(a *table.Unlabelled) error {
			for name, n := range a.Unseen {
				unseen[name] += n
			}
			return hand(func(rows *Rows) {
				rows.N = a.N
				rows.Values, rows.IDs = append(rows.Values[:0], a.Values...), append(rows.IDs[:0], a.IDs...)
				rows.Numbers, rows.PassThrough = append(rows.Numbers[:0], a.Rows...), append(rows.PassThrough[:0], a.PassThrough...)
			})
		})
	})
	p.unseen = unseen
	return p, nil
}

// openRows opens a table from a path or the standard input.
func openRows(c InputConfig) (table.Reader, error) {
	switch {
	case c.Path == Synthetic || datafile.IsFolder(c.Path) && !isParts(c.Path):
		return nil, setting.Errorf(datafile.DirPath, "%s: the model was trained on a table: name a file of rows such as my.csv, or - for the standard input", c.Path)
	case c.Path != Stdin:
		return OpenTable(c.Path)
	}
	again := &rereader{r: c.Stdin}
	in, err := table.OpenCSV(nameOfInput(c.Path), again.open)
	if err != nil {
		return nil, err
	}
	return in, nil
}

// rereader opens a stream twice. The first pass reads the names of the columns, and its bytes, at
// most the limit of a row, are kept for the second pass.
type rereader struct {
	r      io.Reader
	begun  bytes.Buffer
	opened int
}

func (o *rereader) open() (io.ReadCloser, error) {
	switch o.opened++; o.opened {
	case 1:
		return io.NopCloser(io.TeeReader(o.r, &o.begun)), nil
	case 2:
		return io.NopCloser(io.MultiReader(&o.begun, o.r)), nil
	}
	return nil, fmt.Errorf("the standard input can be read once alone")
}

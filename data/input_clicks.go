package data

import (
	"cmp"
	"errors"
	"io"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// openAskedClicks reads click rows in Criteo's format or the training's layout from files or the
// standard input, on demand.
func openAskedClicks(d Description, c InputConfig, bad *datafile.Skips) (PredictInput, error) {
	format, err := d.clickFormat()
	if err != nil {
		return nil, err
	}
	files := []string{Stdin}
	if c.Path != Stdin {
		if files, err = ClickFiles(c.Path); err != nil {
			return nil, err
		}
	}
	return newPushed(bad, c.Path != Stdin, func(hand func(func(*Rows)) error) error {
		a := &predictClicks{cfg: c, format: format, widths: format.Shape(), shape: shapeOf(format.Shape()), hand: hand, number: -1}
		for _, path := range files {
			if err := a.file(path, bad); err != nil {
				return err
			}
		}
		if a.line == 0 {
			return format.EmptyError(nameOfInput(files[0]))
		}
		return a.end()
	}), nil
}

// clickFormat returns the format of lines for a described model.
func (d Description) clickFormat() (*clicks.Format, error) {
	c := Config{Keys: len(d.Shape.Slots) > 0, Rows: d.Rows}
	f, err := clicks.CriteoFormat(c.criteoRows(), c.Keys), error(nil)
	if d.Layout != nil {
		f, err = clicks.LayoutFormat(d.Layout)
	}
	if err == nil {
		f.Unlabelled = true
	}
	return f, err
}

// predictClicks collects this rank's batches. Batch k is lines k*Batch to (k+1)*Batch-1 of the
// input.
type predictClicks struct {
	cfg    InputConfig
	format *clicks.Format
	widths clicks.Shape
	shape  Shape // shapeOf(widths)
	hand   func(func(*Rows)) error
	line   int64 // line number over all files, including bad lines
	number int64 // number of the current batch
	open   bool  // the current batch belongs to this rank
	rows   clicks.Rows
	lines  []int64
}

func (a *predictClicks) file(path string, bad *datafile.Skips) error {
	var stopped error
	take := func(c *clicks.Chunk) bool {
		stopped = a.take(c)
		return stopped == nil
	}
	if datafile.Typed(path) {
		err := eachTyped(a.format, path, bad, take)
		return cmp.Or(stopped, err)
	}
	name, in := nameOfInput(path), io.NopCloser(a.cfg.Stdin)
	if path != Stdin {
		var err error
		if in, err = datafile.OpenText(path); err != nil {
			return err
		}
	}
	defer in.Close()
	_, err := a.format.Each(name, in, clicks.ChunkBytes, a.cfg.Threads, bad, take)
	if stopped != nil {
		return stopped
	}
	return err
}

// take adds the rows of a chunk. Bad lines count as lines of a batch, so that all ranks agree which
// batch a line belongs to without parsing the lines of other ranks.
func (a *predictClicks) take(c *clicks.Chunk) error {
	faults, row := c.Block.Faults, 0
	for i := range c.Block.Lines {
		if k := a.line / int64(a.cfg.Batch); k != a.number {
			if err := a.end(); err != nil {
				return err
			}
			a.number, a.open = k, k%int64(a.cfg.Size) == int64(a.cfg.Rank)
		}
		a.line++
		if len(faults) > 0 && faults[0].Line == i {
			faults = faults[1:]
			continue
		}
		if a.open {
			a.rows.Add(&a.widths, &c.Block.Rows, row, row+1)
			a.lines = append(a.lines, a.line-1)
		}
		row++
	}
	return nil
}

// end returns the batch to the reader.
func (a *predictClicks) end() error {
	if !a.open {
		return nil
	}
	a.open = false
	var failed error
	err := a.hand(func(rows *Rows) {
		rows.places = rows.places[:0]
		for i := range a.lines {
			rows.places = append(rows.places, clickAt{&a.rows, i})
		}
		failed = rows.gather(a.shape, rows.places)
		rows.Numbers = append(rows.Numbers[:0], a.lines...)
	})
	a.rows.Reset()
	a.lines = a.lines[:0]
	return errors.Join(failed, err)
}

// Package predict uses what was trained: it runs a saved model over samples and writes what it finds, row by row in their order, or has a
// language model write text.
//
//	p, err := train.NewPredictor(ctx, job, spec, cfg)
//	…
//	in, err := data.OpenInput(p.Description(), data.InputConfig{Path: "new.csv", Batch: cfg.Batch, Rank: job.Rank(), Size: job.Size()})
//	…
//	_, err = predict.Run(p, job.Rank(), in, os.Stdout, predict.Config{})
//	err = p.End(err)
//
// A row is an object a line, a line of CSV, or one of a table in Parquet or Arrow. It has its number in the input ("row", from 0), for images the file, the columns that are
// passed through, and what the model has found:
//
//	classes        "prediction", the name of the most probable one, and its "probability"; of Top classes their
//	               probabilities by name as "top", in CSV as prediction2, probability2 and so on
//	a number       "prediction", in the units of the column that was to be found
//	a click        "probability"
//
// Ranks share the work batch by batch: rank r has the batches r, r+n, r+2n and so on, turns its own into text, and rank 0 writes
// those of all in order. So what is written does not depend on the number of ranks, and what is held is a batch on each rank and n blocks
// of text on each.
package predict

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/train"
)

// Formats of what is written.
const (
	JSONL   = "jsonl"   // an object a line
	CSV     = "csv"     // a header, and a line a row
	Parquet = "parquet" // columns as in CSV, numbers as such; of builds that have a writer of it: see data.CreateTable
	Arrow   = "arrow"   // the same as an Arrow file
)

// Config says how predictions are written. The zero value is JSON lines with the best class alone.
type Config struct {
	Format string // JSONL, CSV, Parquet or Arrow; "": JSONL
	// Top is how many classes are told, the most probable first; 0: 1. It has no effect on other models.
	Top int
	// Columns are those of a table that are passed through, which data.InputConfig has too.
	Columns []string
	// Progress, where it is set, is told on rank 0 now and then how many rows were written.
	Progress func(rows int64)
}

// Validate reports all faults together, a format that this build cannot write among them. What does not go with a model is told by Run.
func (c Config) Validate() error {
	var errs []error
	if !slices.Contains([]string{"", JSONL, CSV, Parquet, Arrow}, c.Format) {
		errs = append(errs, fmt.Errorf("format %q: want %s, %s, %s or %s", c.Format, JSONL, CSV, Parquet, Arrow))
	}
	if c.Top < 0 {
		errs = append(errs, fmt.Errorf("the %d most probable classes: want 1 or more, or 0 for 1", c.Top))
	}
	if c.typed() {
		_, err := data.CreateTable(c.Format, io.Discard, []table.Field{{Name: "row", Type: table.Integer}})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// typed says that the format is a table whose columns have types.
func (c Config) typed() bool { return c.Format == Parquet || c.Format == Arrow }

// Run predicts the rows of an input, of which each rank has its part, and writes them on rank 0 to out, in order. Memory is that of
// a batch on each rank, whatever the input. What it writes does not depend on the number of ranks. It is a collective call.
func Run(p *train.Predictor, rank int, in data.PredictInput, out io.Writer, cfg Config) (rows int64, err error) {
	w, err := newWriter(p, cfg)
	if err != nil {
		return 0, err
	}
	to := w.newSink(out)
	for {
		own, err := w.next(p, in)
		if err != nil {
			return rows, err
		}
		all, err := p.Gather(own)
		if err != nil {
			return rows, err
		}
		more := false
		for from, block := range all {
			n, text, err := cut(block)
			if err != nil {
				return rows, fmt.Errorf("rank %d: %w", from, err)
			}
			more = more || len(block) > 0
			if rows += n; rank == 0 {
				if err := to.write(text); err != nil {
					return rows, fmt.Errorf("writing the predictions: %w", err)
				}
			}
		}
		if !more {
			break
		}
		if rank == 0 {
			if err := to.flush(); err != nil {
				return rows, fmt.Errorf("writing the predictions: %w", err)
			}
			if cfg.Progress != nil {
				cfg.Progress(rows)
			}
		}
	}
	if rank == 0 {
		if err := to.close(); err != nil {
			return rows, fmt.Errorf("writing the predictions: %w", err)
		}
	}
	return rows, nil
}

// next is this rank's next block: how many rows, and their text; empty at its end.
func (w *writer) next(p *train.Predictor, in data.PredictInput) ([]byte, error) {
	rows, ok, err := in.Next()
	if err != nil || !ok {
		return nil, err
	}
	w.block = binary.LittleEndian.AppendUint64(w.block[:0], uint64(rows.N))
	if rows.N == 0 {
		return w.block, nil
	}
	outputs, err := p.Forward(&rows.Batch)
	if err != nil {
		return nil, err
	}
	w.block, err = w.append(w.block, rows, outputs[0].Data)
	return w.block, err
}

// cut takes a block apart.
func cut(block []byte) (rows int64, text []byte, err error) {
	switch {
	case len(block) == 0:
		return 0, nil, nil
	case len(block) < 8:
		return 0, nil, errors.New("a block of predictions without its length")
	}
	return int64(binary.LittleEndian.Uint64(block)), block[8:], nil
}

// Package predict runs a saved model over samples and writes one prediction per row, in input
// order. A language model writes text.
//
//	p, err := train.NewPredictor(ctx, job, spec, cfg)
//	…
//	in, err := data.OpenInput(p.Description(), data.InputConfig{Path: "new.csv", Batch: cfg.Batch, Rank: job.Rank(), Size: job.Size()})
//	…
//	_, err = predict.Run(p, job.Rank(), in, os.Stdout, predict.Config{})
//	err = p.End(err)
//
// A prediction is a JSON object per line, a line of CSV, or a row of a table in Parquet or Arrow.
// Its fields are the number of the row in the input ("row", from 0), the file of an image, the
// columns passed through, and the model's output:
//
//	classes        "prediction", the name of the most probable class, and "probability"; with Top the
//	               probabilities of Top classes by name as "top", in CSV as prediction2, probability2 and so on
//	a number       "prediction", in the units of the target column
//	a click        "probability"
//
// The ranks divide the batches: rank r of n predicts the batches r, r+n, r+2n and so on and formats
// the output; rank 0 writes all output in order. The output therefore does not depend on the number
// of ranks. Each rank buffers one batch and n blocks of text.
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

// Formats of predictions.
const (
	JSONL   = "jsonl"   // one object per line
	CSV     = "csv"     // a header and one line per row
	Parquet = "parquet" // columns as in CSV with typed numbers; needs a build with a writer: see data.CreateTable
	Arrow   = "arrow"   // an Arrow file, columns as in Parquet
)

// Config configures the output. The zero value writes JSON lines with the most probable class.
type Config struct {
	Format string // JSONL, CSV, Parquet or Arrow; "": JSONL
	// Top is the number of classes per row, the most probable first. 0 means 1. Only models with
	// classes accept more than 1.
	Top int
	// Columns lists the table columns to pass through. data.InputConfig needs the same list.
	Columns []string
	// Progress, if not nil, gets the number of rows on rank 0 after each round of batches.
	Progress func(rows int64)
}

// Validate returns all errors joined, also for a format that the build cannot write. Run checks the
// settings against the model.
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

// typed reports whether the format is a table with typed columns.
func (c Config) typed() bool { return c.Format == Parquet || c.Format == Arrow }

// Run writes a prediction for each row of in. All ranks call it: each predicts a part of the input,
// and rank 0 writes all rows to out in order. Memory: one batch per rank, for an input of any size.
// The output does not depend on the number of ranks.
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

// next predicts the rank's next batch and returns a block: the number of rows, and their text. At
// the end of the input the block is empty.
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

// cut splits a block into the number of rows and the text.
func cut(block []byte) (rows int64, text []byte, err error) {
	switch {
	case len(block) == 0:
		return 0, nil, nil
	case len(block) < 8:
		return 0, nil, errors.New("a block of predictions without its length")
	}
	return int64(binary.LittleEndian.Uint64(block)), block[8:], nil
}

package predict

import (
	"fmt"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/train"
)

// Formatter formats outputs of a model as the JSON lines of Run, for a program with own batches,
// such as a server. Only one goroutine may use a Formatter.
type Formatter struct{ w *writer }

// NewFormatter returns a Formatter of JSON lines. The error is the error of Run for cfg. Predictor
// p may be in use by another goroutine.
func NewFormatter(p *train.Predictor, cfg Config) (*Formatter, error) {
	if cfg.Format != "" && cfg.Format != JSONL || len(cfg.Columns) > 0 {
		return nil, fmt.Errorf("a formatter writes %s without columns passed through", JSONL)
	}
	w, err := newWriter(p, cfg)
	if err != nil {
		return nil, err
	}
	return &Formatter{w}, nil
}

// Append appends a line per row to dst. outputs are the rows.N outputs of Predictor.Forward, in
// order; rows needs N and Numbers. An output that is not finite is an error with its row.
func (f *Formatter) Append(dst []byte, rows *data.Rows, outputs []float32) ([]byte, error) {
	return f.w.append(dst, rows, outputs)
}

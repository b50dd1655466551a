package predict

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/evalmetrics"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

// finding is the kind of a prediction.
type finding uint8

const (
	class  finding = iota // a class with a probability
	chance                // a click probability
	number                // a number
)

// writer formats outputs as lines. Each rank formats its own batches: formatting takes about as
// long as a small model's forward pass.
type writer struct {
	Config
	finds finding
	goal  table.Column // target column of a table, with units
	words []string     // names of the classes; nil: numbers
	size  int          // outputs per row

	block   []byte
	order   []int
	chances []float64
	record  []string
}

func newWriter(p *train.Predictor, cfg Config) (*writer, error) {
	s, d := p.Spec(), p.Description()
	w := &writer{Config: cfg, words: d.Words}
	if d.Encoder != nil {
		w.goal, _ = d.Encoder.Goal()
	}
	switch {
	case s.Task == model.Language:
		return nil, fmt.Errorf("%s is a language model, which writes text: give it a prompt", s.Name)
	case s.Task == model.Click:
		w.finds, w.size = chance, 2 // or 1: append decides
	case s.Targets > 1:
		return nil, fmt.Errorf("%s finds %d numbers of each sample, and predictions have one", s.Name, s.Targets)
	case s.Targets == 1:
		w.finds, w.size = number, 1
	default:
		w.size = s.Classes
		if d.Classes > 0 {
			w.size = d.Classes
		}
	}
	switch {
	case cfg.Top < 0 || cfg.Top > max(1, w.size):
		return nil, fmt.Errorf("the %d most probable classes are asked for, and there are %d", cfg.Top, w.size)
	case cfg.Top > 1 && w.finds != class:
		return nil, fmt.Errorf("the %d most probable classes are asked for, and %s finds none", cfg.Top, s.Name)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w.Top = max(1, cfg.Top)
	if cfg.typed() { // reject duplicate names
		if _, err := data.CreateTable(cfg.Format, io.Discard, w.fields(true)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// fields returns the columns of a prediction. files adds the file of an image. A column passed
// through with the name of another field appears twice in CSV.
func (w *writer) fields(files bool) []table.Field {
	out := []table.Field{{Name: "row", Type: table.Integer}}
	if files {
		out = append(out, table.Field{Name: "file"})
	}
	for _, name := range w.Columns {
		out = append(out, table.Field{Name: name})
	}
	chanceField := func(name string) table.Field { return table.Field{Name: name, Type: table.Float} }
	switch w.finds {
	case class:
		out = append(out, table.Field{Name: "prediction"}, chanceField("probability"))
		for k := 2; k <= w.Top; k++ {
			out = append(out, table.Field{Name: fmt.Sprintf("prediction%d", k)}, chanceField(fmt.Sprintf("probability%d", k)))
		}
	case chance:
		out = append(out, chanceField("probability"))
	case number:
		out = append(out, table.Field{Name: "prediction", Type: table.Float})
	}
	return out
}

func line(dst []byte, record []string) []byte {
	var b strings.Builder
	c := csv.NewWriter(&b)
	_ = c.Write(record) // memory never fails
	c.Flush()
	return append(dst, b.String()...)
}

// errDiverged reports outputs that are not finite.
var errDiverged = errors.New("the model's output is no finite number: what was saved has diverged")

func (w *writer) append(dst []byte, rows *data.Rows, outputs []float32) ([]byte, error) {
	if w.finds == chance && len(outputs) == rows.N {
		w.size = 1 // one logit for a click: see model.Probability
	}
	if len(outputs) != rows.N*w.size {
		return nil, fmt.Errorf("the model has %d outputs for %d rows of %d", len(outputs), rows.N, w.size)
	}
	for i := range rows.N {
		out := outputs[i*w.size:][:w.size]
		if slices.ContainsFunc(out, func(x float32) bool { return x-x != 0 }) {
			return nil, fmt.Errorf("row %d: %w", rows.Numbers[i], errDiverged)
		}
		name := strconv.FormatInt(rows.Numbers[i], 10)
		file := ""
		if len(rows.Files) > 0 {
			file = rows.Files[i]
		}
		var kept []string
		if len(rows.PassThrough) > 0 {
			kept = rows.PassThrough[i]
		}
		switch w.Format {
		case CSV, Parquet, Arrow:
			if w.record = append(w.record[:0], name); file != "" {
				w.record = append(w.record, file)
			}
			if w.found(kept, out); w.Format == CSV {
				dst = line(dst, w.record)
			} else {
				dst = appendRecord(dst, w.record)
			}
		default:
			dst = w.json(dst, name, file, kept, out)
		}
	}
	return dst, nil
}

// found appends the columns passed through, kept, and the prediction of output out to w.record,
// which begins with the row's number and file.
func (w *writer) found(kept []string, out []float32) {
	w.record = append(w.record, kept...)
	switch w.finds {
	case class:
		for _, k := range w.best(out) {
			w.record = append(w.record, w.word(k), string(probability(nil, w.chances[k])))
		}
	case chance:
		w.record = append(w.record, string(probability(nil, clickChance(out))))
	case number:
		w.record = append(w.record, string(value(nil, w.valueOf(out[0]))))
	}
}

func (w *writer) json(dst []byte, name, file string, kept []string, out []float32) []byte {
	dst = append(append(dst, `{"row":`...), name...)
	if file != "" {
		dst = quoted(append(dst, `,"file":`...), file)
	}
	if len(w.Columns) > 0 {
		dst = append(dst, `,"columns":{`...)
		for k, column := range w.Columns {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = quoted(append(quoted(dst, column), ':'), kept[k])
		}
		dst = append(dst, '}')
	}
	switch w.finds {
	case class:
		best := w.best(out)
		dst = quoted(append(dst, `,"prediction":`...), w.word(best[0]))
		dst = probability(append(dst, `,"probability":`...), w.chances[best[0]])
		if w.Top > 1 {
			dst = append(dst, `,"top":{`...)
			for i, k := range best {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = probability(append(quoted(dst, w.word(k)), ':'), w.chances[k])
			}
			dst = append(dst, '}')
		}
	case chance:
		dst = probability(append(dst, `,"probability":`...), clickChance(out))
	case number:
		dst = value(append(dst, `,"prediction":`...), w.valueOf(out[0]))
	}
	return append(dst, '}', '\n')
}

// best returns the most probable classes, smaller numbers first among equals, and sets chances to
// all probabilities.
func (w *writer) best(logits []float32) []int {
	w.chances = Softmax(w.chances[:0], logits, 1)
	w.order = w.order[:0]
	if w.Top == 1 {
		at := 0
		for k, x := range logits {
			if x > logits[at] {
				at = k
			}
		}
		return append(w.order, at)
	}
	for k := range logits {
		w.order = append(w.order, k)
	}
	slices.SortStableFunc(w.order, func(a, b int) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	return w.order[:w.Top]
}

// Softmax appends the probabilities of logits at a temperature above 0.
func Softmax(dst []float64, logits []float32, temperature float64) []float64 {
	return evalmetrics.Softmax(dst, logits, temperature)
}

// clickChance returns the probability of label 1.
func clickChance(logits []float32) float64 {
	return float64(model.Probability(model.Pass{Outputs: model.Outputs{&nn.Tensor{Shape: []int{1, len(logits)}, Data: logits}}}, 0))
}

// word returns a class's name, or the number of a class without a name.
func (w *writer) word(k int) string {
	if k < len(w.words) {
		return w.words[k]
	}
	return strconv.Itoa(k)
}

// valueOf converts a regression's output to the units of the target column.
func (w *writer) valueOf(x float32) float64 {
	if w.goal.Deviation > 0 {
		return w.goal.Value(x)
	}
	return float64(x)
}

// probability appends the shortest text that identifies the float32: a model's outputs have no more
// precision.
func probability(dst []byte, p float64) []byte { return strconv.AppendFloat(dst, p, 'g', -1, 32) }

func value(dst []byte, x float64) []byte {
	if a := math.Abs(x); a >= 1e-4 && a < 1e15 || x == 0 {
		return strconv.AppendFloat(dst, x, 'f', -1, 32)
	}
	return strconv.AppendFloat(dst, x, 'g', -1, 32)
}

// quoted appends a word as a JSON string.
func quoted(dst []byte, word string) []byte {
	plain := true
	for i := range len(word) {
		plain = plain && word[i] >= ' ' && word[i] < 0x7f && !strings.ContainsRune(`"\<>&`, rune(word[i]))
	}
	if plain {
		return append(append(append(dst, '"'), word...), '"')
	}
	text, _ := json.Marshal(word) // a string never fails
	return append(dst, text...)
}

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

package progress

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/tensorboard"
)

// board writes step and epoch records for TensorBoard, in a file per seed or fold: every number
// under the kind of record and its name, as in --json.
type board struct {
	dir    string
	seeds  bool // a folder per seed, displayed as a run
	writer *tensorboard.Writer
	fault  error // first error, which ends only the writing
}

// TensorBoard enables event files in a folder, or in a subfolder per seed.
func (r *Reporter) TensorBoard(dir string, seeds bool) { r.board = &board{dir: dir, seeds: seeds} }

// place names the fields with the position in the run, which are not drawn.
var place = map[string]bool{"epoch": true, "step": true, "seed": true, "fold": true, "done": true, "wall_s": true}

func (b *board) add(v any) {
	if b != nil && b.fault == nil {
		b.fault = b.record(v)
	}
}

func (b *board) finish() error {
	if b == nil {
		return nil
	}
	return errors.Join(b.fault, b.close())
}

// record writes a record of a kind with values.
func (b *board) record(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var is struct {
		Event string `json:"event"`
		Seed  uint64 `json:"seed"`
		Fold  int    `json:"fold"`
		Done  int64  `json:"done"`
	}
	if err := json.Unmarshal(text, &is); err != nil {
		return err
	}
	switch is.Event {
	case "run":
		return b.begin(is.Seed, is.Fold)
	case "step", "epoch":
		return b.writer.Add(is.Done, time.Now(), scalars(is.Event, text)...)
	}
	return nil
}

// begin switches to a new file at the begin or resumption of a run.
func (b *board) begin(seed uint64, fold int) (err error) {
	if err := b.close(); err != nil {
		return err
	}
	dir := b.dir
	if fold > 0 {
		dir = filepath.Join(dir, fmt.Sprintf("fold-%d", fold))
	} else if b.seeds {
		dir = filepath.Join(dir, fmt.Sprintf("seed-%d", seed))
	}
	b.writer, err = tensorboard.Create(dir, time.Now())
	return err
}

func (b *board) close() error {
	if b.writer == nil {
		return nil
	}
	w := b.writer
	b.writer = nil
	return w.Close()
}

func scalars(event string, text []byte) (out []tensorboard.Scalar) {
	var fields map[string]any
	if json.Unmarshal(text, &fields) != nil {
		return nil // already parsed as an object before
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if v, is := fields[name].(float64); is && !place[name] {
			out = append(out, tensorboard.Scalar{Tag: event + "/" + name, Value: v})
		}
	}
	return out
}

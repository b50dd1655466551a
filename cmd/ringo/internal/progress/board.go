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

// board writes the records of steps and epochs for TensorBoard, in a file for each seed: every number under its name in
// the record, behind the kind of record, so that names are those of --json.
type board struct {
	dir    string
	seeds  bool // a folder for each seed, which TensorBoard takes for a run
	writer *tensorboard.Writer
	fault  error // the first, which ends what is drawn and nothing else
}

// TensorBoard writes figures as event files into a folder, too, or into folders in it where there are several seeds.
func (r *Reporter) TensorBoard(dir string, seeds bool) { r.board = &board{dir: dir, seeds: seeds} }

// place is what records say of where they belong, which is no figure.
var place = map[string]bool{"epoch": true, "step": true, "seed": true, "done": true, "wall_s": true}

// add writes a record and keeps the first fault.
func (b *board) add(v any) {
	if b != nil && b.fault == nil {
		b.fault = b.record(v)
	}
}

// finish closes the file.
func (b *board) finish() error {
	if b == nil {
		return nil
	}
	return errors.Join(b.fault, b.close())
}

// record writes a record, if it is of a kind that has figures.
func (b *board) record(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var is struct {
		Event string `json:"event"`
		Seed  uint64 `json:"seed"`
		Done  int64  `json:"done"`
	}
	if err := json.Unmarshal(text, &is); err != nil {
		return err
	}
	switch is.Event {
	case "run":
		return b.begin(is.Seed)
	case "step", "epoch":
		return b.writer.Add(is.Done, time.Now(), scalars(is.Event, text)...)
	}
	return nil
}

// begin goes on in another file: a run begins, or goes on.
func (b *board) begin(seed uint64) (err error) {
	if err := b.close(); err != nil {
		return err
	}
	dir := b.dir
	if b.seeds {
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

// scalars are the numbers of a record, by name.
func scalars(event string, text []byte) (out []tensorboard.Scalar) {
	var fields map[string]any
	if json.Unmarshal(text, &fields) != nil {
		return nil // it was read as an object before
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if v, is := fields[name].(float64); is && !place[name] {
			out = append(out, tensorboard.Scalar{Tag: event + "/" + name, Value: v})
		}
	}
	return out
}

package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/weights"
)

// maxDescription limits the bytes of names (classes, words, categories) in a checkpoint's header,
// which needs space for other fields.
const maxDescription = 7 << 20

// describe stores a description of the data for checkpoints.
func (d *runData) describe() error {
	about := d.set.Description()
	if name, ok := unsafeText(reflect.ValueOf(about)); !ok && d.cfg.Checkpoint.Dir != "" {
		return fmt.Errorf("checkpoint: data set %s: the name %q is not UTF-8, and a checkpoint could not restore it: rename it", d.set.Name, name)
	}
	text, err := json.Marshal(about)
	if err != nil {
		return fmt.Errorf("the description of the data cannot be saved: %w", err)
	}
	if len(text) > maxDescription && d.cfg.Checkpoint.Dir != "" {
		return fmt.Errorf("the names of classes, words and categories are %d bytes, and checkpoints have room for %d: leave out columns with data.schema, such as id=ignore", len(text), maxDescription)
	}
	d.description = string(text)
	d.cfg.about = &about
	return nil
}

// unsafeText returns the first text of a value that JSON would change because it is not UTF-8. ok
// is true without such a text.
func unsafeText(v reflect.Value) (text string, ok bool) {
	switch v.Kind() {
	case reflect.String:
		return v.String(), utf8.ValidString(v.String())
	case reflect.Pointer:
		if !v.IsNil() {
			return unsafeText(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if text, ok := unsafeText(v.Index(i)); !ok {
				return text, false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if text, ok := unsafeText(v.Field(i)); !ok && v.Type().Field(i).IsExported() {
				return text, false
			}
		}
	}
	return "", true
}

// ModelFromCheckpoint returns the description of a run's data from a checkpoint's header, and the
// run's model with its options: Spec.Build then makes parameters of the saved lengths. Programs
// without a job read checkpoints by it.
func ModelFromCheckpoint(h checkpoint.Header, m model.Spec) (d data.Description, shape model.Spec, o model.Options, err error) {
	if d, err = descriptionOf(&h); err != nil {
		return d, m, o, err
	}
	if s := d.Shape; s.Size() > 0 || s.IDs > 0 || len(s.Slots) > 0 { // a Loop has no shape: its model is complete
		m = shaped(m, s)
	}
	return d, m, optionsOf(m, d.Classes, d.Vocabulary, d.Rows), nil
}

// optionsOf returns a model's options for data with numbers of classes, tokens and rows; 0 means
// the data have none.
func optionsOf(m model.Spec, classes, vocabulary, rows int) model.Options {
	return model.Options{
		Input: m.Input, IDs: m.IDs, Labels: m.LabelsEach(), Targets: m.Targets, Slots: m.Slots,
		Classes: cmp.Or(classes, m.Classes), Vocabulary: vocabulary, Rows: rows,
	}
}

// follow makes the run encode a table like the checkpoint with its initial weights, because the
// weights belong to that encoding. A resumed run uses the encoding in its own checkpoint: the
// initial one may be deleted, and this version of ringo may guess other kinds of columns. Rank 0
// reads the file, or every rank if ranks have no connections. All ranks call follow.
func (c *Config) follow(job *ringo.Job) error {
	isTable := data.NameOf(c.Model.Data, c.dataOf()) == "table"
	if c.encoder != nil || c.Start.From == "" && !(c.Checkpoint.Resume && isTable) {
		return nil
	}
	var e struct {
		Encoder *table.Encoder
		Resumed bool
	}
	if job.Rank() == 0 || job.ServersOnly() {
		var err error
		if e.Encoder, e.Resumed, err = startEncoder(c.Start.From, c.Checkpoint); err != nil {
			return err
		}
	}
	var err error
	if !job.ServersOnly() {
		e, err = broadcastJSON(job.Group(), e)
	}
	if c.previous, c.resumed = e.Encoder, e.Resumed; err != nil {
		return fmt.Errorf("sending all ranks the encoding of %s: %w", c.Start.From, err)
	}
	return nil
}

// startEncoder reads a table's encoding from the checkpoint with which the run starts or resumes;
// nil without a table. resumed reports whether it is a checkpoint of the run's own folder.
func startEncoder(path string, c Checkpoint) (e *table.Encoder, resumed bool, err error) {
	if c.Resume {
		switch own, err := checkpoint.Locate(c.Dir); {
		case err == nil:
			path, resumed = own, true
		case !errors.Is(err, checkpoint.ErrNone):
			return nil, false, err
		}
	}
	if path == "" {
		return nil, false, nil
	}
	f, err := weights.OpenSource(path)
	if err != nil {
		return nil, false, err
	}
	d, err := descriptionOf(f.Saved)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	return d.Encoder, resumed, nil
}

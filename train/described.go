package train

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
)

// ModelFromCheckpoint is what a checkpoint's header says of its run's data, and the model as it was
// built for them: with those options Spec.Build makes parameters of the lengths that were saved. It
// is for programs that read checkpoints without a job.
func ModelFromCheckpoint(h checkpoint.Header, m model.Spec) (d data.Description, shape model.Spec, o model.Options, err error) {
	if text, ok := h.More[moreSet]; ok {
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			return d, m, o, fmt.Errorf("what the run's data were cannot be read: %w", err)
		}
	}
	if err := d.Validate(); err != nil {
		return d, m, o, err
	}
	if s := d.Shape; s.Size() > 0 || s.IDs > 0 || len(s.Slots) > 0 { // a Loop's has none: its model says all
		m = shaped(m, s)
	}
	return d, m, optionsOf(m, d.Classes, d.Vocabulary, d.Rows), nil
}

// optionsOf are those of a model for data with so many classes, tokens and rows; 0: there are none.
func optionsOf(m model.Spec, classes, vocabulary, rows int) model.Options {
	return model.Options{
		Input: m.Input, IDs: m.IDs, Labels: m.LabelsEach(), Targets: m.Targets, Slots: m.Slots,
		Classes: cmp.Or(classes, m.Classes), Vocabulary: vocabulary, Rows: rows,
	}
}

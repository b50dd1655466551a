package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// Description is what a set says of its samples without any: what a model is built for, and how its inputs are made and its outputs
// read. A checkpoint holds that of its run's data, as JSON.
type Description struct {
	// Name is the set's, one of Names; empty: it is one of the program's own.
	Name string `json:"name,omitempty"`
	// Shape is that of a sample.
	Shape Shape `json:"shape"`
	// Classes is how many labels there are; 0 where labels are tokens or targets are numbers.
	Classes int `json:"classes,omitempty"`
	// Vocabulary is how many tokens there are; 0 where there are none.
	Vocabulary int `json:"vocabulary,omitempty"`
	// Rows is how many the embedding table has to which categories are hashed or numbered; 0: there is none.
	Rows int `json:"rows,omitempty"`
	// Words are the names of classes or tokens by number, where there are any.
	Words []string `json:"words,omitempty"`
	// Encoder is how the columns of a table became samples; nil for other sets.
	Encoder *table.Encoder `json:"encoder,omitempty"`
	// Layout is how samples of clicks lay in files; nil for Criteo's format, and other sets.
	Layout *layout.Layout `json:"layout,omitempty"`
}

// Description is that of the set.
func (s *Dataset) Description() Description {
	d := Description{Name: s.Name, Classes: s.Classes, Vocabulary: s.Vocabulary, Rows: s.Rows, Words: s.Words, Encoder: s.Encoder, Layout: s.Layout}
	if s.Eval != nil {
		d.Shape = s.Eval.Shape()
	}
	return d
}

// Validate reports a description that no set has, as a damaged or foreign one may be: nothing is allocated by its numbers before. What
// its parts have to do with each other is the model's business, whose parameters have their own lengths in a checkpoint.
func (d Description) Validate() error {
	if least := min(d.Classes, d.Vocabulary, d.Rows); least < 0 || max(d.Classes, d.Vocabulary, d.Rows) > datafile.MaxElements {
		return fmt.Errorf("data: %d classes, a vocabulary of %d and %d rows cannot be", d.Classes, d.Vocabulary, d.Rows)
	}
	return d.Shape.validate()
}

// Normalisation is by which numbers pixels become a model's inputs, by channel: (pixel/255 - mean)/deviation. ok is false of a set that
// has no pixels, or is the program's own.
func (d Description) Normalisation() (mean, deviation []float32, ok bool) {
	of, ok := map[string]func() images.Statistics{"mnist": images.MNISTStatistics, "cifar10": images.CIFARStatistics, "images": images.ImageNetStatistics}[d.Name]
	if !ok {
		return nil, nil, false
	}
	s := of()
	return s.Mean, s.Deviation, true
}

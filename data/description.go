package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/layout"
)

// Description describes the samples of a set: models, inputs and outputs are built from the
// description. A checkpoint stores the description of the run's data as JSON.
type Description struct {
	// Name is the set's name, one of Names; empty for a set of the program.
	Name string `json:"name,omitempty"`
	// Shape is the shape of a sample.
	Shape Shape `json:"shape"`
	// Classes is the number of classes; 0 if labels are tokens or targets are numbers.
	Classes int `json:"classes,omitempty"`
	// Vocabulary is the number of tokens; 0 for other samples than tokens.
	Vocabulary int `json:"vocabulary,omitempty"`
	// Rows is the number of rows of the table for hashed or numbered categories; 0: no table.
	Rows int `json:"rows,omitempty"`
	// Words lists the names of classes or tokens by number; it can be empty.
	Words []string `json:"words,omitempty"`
	// Encoder converts the columns of a table to samples; nil for other sets.
	Encoder *table.Encoder `json:"encoder,omitempty"`
	// Layout describes the files of click samples; nil for Criteo's format and other sets.
	Layout *layout.Layout `json:"layout,omitempty"`
}

// Description returns the description of the set.
func (s *Dataset) Description() Description {
	d := Description{Name: s.Name, Classes: s.Classes, Vocabulary: s.Vocabulary, Rows: s.Rows, Words: s.Words, Encoder: s.Encoder, Layout: s.Layout}
	if s.Eval != nil {
		d.Shape = s.Eval.Shape()
	}
	return d
}

// Validate returns an error for impossible values, as in a damaged or foreign file, before any
// allocation of those sizes. The model checks whether the fields fit each other, when it reads
// parameters.
func (d Description) Validate() error {
	if least := min(d.Classes, d.Vocabulary, d.Rows); least < 0 || max(d.Classes, d.Vocabulary, d.Rows) > datafile.MaxElements {
		return fmt.Errorf("data: %d classes, a vocabulary of %d and %d rows: out of range", d.Classes, d.Vocabulary, d.Rows)
	}
	return d.Shape.validate()
}

// Normalisation returns mean and deviation by channel; a model's input is (pixel/255 -
// mean)/deviation. ok is false for sets without image files, and for sets of the program.
func (d Description) Normalisation() (mean, deviation []float32, ok bool) {
	var s images.Statistics
	switch d.Name {
	case "mnist":
		s = images.MNISTStatistics()
	case "cifar10":
		s = images.CIFARStatistics()
	case "images", "imagenet", "shards":
		s = images.ImageNetStatistics()
	default:
		return nil, nil, false
	}
	return s.Mean, s.Deviation, true
}

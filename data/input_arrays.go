package data

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/npy"
)

// openAskedArrays reads the rows of a sample array, if possible on demand. Labels and targets of
// the file are ignored.
func openAskedArrays(d Description, c InputConfig, bad *datafile.Skips) (PredictInput, error) {
	f, names, err := askedFile(c, func(name string) bool { return (roles{schema: c.Schema}).kind(name) == table.Number })
	if err != nil {
		return nil, fmt.Errorf("arrays: %w", err)
	}
	s, err := askedArray(d, c, f, names)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return newPicked(s, c, bad, nil, f)
}

// askedFile opens a .npy, or the arrays of a .npz with a sample name, or a .npz's only array. names
// lists all arrays.
func askedFile(c InputConfig, samples func(name string) bool) (f *npy.File, names []string, err error) {
	if ending(c.Path) == ".npy" {
		f, err = npy.Open(c.Path, func(string) bool { return false }) // without other arrays of the folder
		return f, nil, err
	}
	f, err = npy.Open(c.Path, func(name string) bool {
		names = append(names, name)
		return samples(name)
	})
	if err != nil || len(f.Arrays) > 0 || len(names) != 1 {
		return f, names, err
	}
	if err := f.Close(); err != nil {
		return nil, nil, err
	}
	f, err = npy.Open(c.Path, nil)
	return f, names, err
}

// askedArray returns the array with the samples to predict. If names have parts, it is that of the
// evaluation part.
func askedArray(d Description, c InputConfig, f *npy.File, names []string) (*arrays, error) {
	parts := map[string][]*npy.Array{}
	for _, a := range f.Arrays {
		part, _ := partOf(a.Name)
		parts[part] = append(parts[part], a)
	}
	var found []*npy.Array
	for _, part := range append(append(datafile.EvalParts(), datafile.EvalWords()...), "train") {
		if found = parts[part]; len(found) > 0 {
			break
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("arrays: %s: want an array of samples, named %s or as in training; the file has %s", c.Path, strings.Join(valueNames, ", "), cmp.Or(strings.Join(names, ", "), "none"))
	case len(found) > 1:
		return nil, fmt.Errorf("arrays: %s: both %v and %v could be meant: leave one out", c.Path, found[0], found[1])
	}
	s := &arrays{path: c.Path, values: found[0]}
	if err := s.shaped(c.Path); err != nil {
		return nil, err
	}
	if !slices.Equal(s.shape.Values, d.Shape.Values) {
		return nil, fmt.Errorf("arrays: %s: %v: samples of %v values, but the model takes %v", c.Path, s.values, s.shape.Values, d.Shape.Values)
	}
	s.shape.Labels, s.shape.Targets = d.Shape.Labels, d.Shape.Targets
	if d.Shape.IDs > 0 || d.Shape.Keys > 0 || d.Shape.Labels > 1 {
		return nil, fmt.Errorf("arrays: %s: the model takes more of a sample than one array has", c.Path)
	}
	return s, nil
}

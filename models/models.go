// Package models is the zoo: networks built from nn, a file per model, found
// by name.
package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/nn"
)

// Forward computes the logits, [n, classes], of a batch of inputs.
type Forward func(t *nn.Tape, x *nn.Tensor) *nn.Tensor

// Spec describes a model.
type Spec struct {
	Name    string
	Aliases []string
	About   string // one line
	Input   []int  // shape of one sample
	Classes int
	Params  int // number of parameters
	// Build makes the parameters in ps and returns the forward function.
	Build func(ps *nn.Params) Forward
}

// All returns the known models, by name.
func All() []Spec { return []Spec{mlp(), mnistCNN()} }

// Names returns the names of the known models, aliases left out.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// Lookup finds a model by its name or an alias. The error of an unknown name
// lists the known ones and those that are spelt alike.
func Lookup(name string) (Spec, error) {
	for _, s := range All() {
		if s.Name == name || slices.Contains(s.Aliases, name) {
			return s, nil
		}
	}
	hint := ""
	if near := similar(name); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
	}
	return Spec{}, fmt.Errorf("models: unknown model %q%s: known are %s", name, hint, strings.Join(Names(), ", "))
}

// similar returns the known names and aliases that are part of name, hold it,
// or are at most two edits away.
func similar(name string) []string {
	var near []string
	given := strings.ToLower(name)
	for _, s := range All() {
		for _, known := range append([]string{s.Name}, s.Aliases...) {
			part := len(given) > 1 && (strings.Contains(known, given) || strings.Contains(given, known))
			if part || edits(given, known) <= min(2, len(known)/2) {
				near = append(near, fmt.Sprintf("%q", known))
			}
		}
	}
	return near
}

// edits is the Levenshtein distance in bytes, O(len(a)·len(b)).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

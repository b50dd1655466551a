// Package failure puts into words how a job ended: where in its run, because of whom, and
// who shares the fault. It is the one place where faults become text for a person; what a
// program wants to know of them it finds in the errors themselves, with errors.As.
package failure

import "strings"

// Position is where in a run something failed, in words. The zero value is a place that nobody
// knows.
type Position struct {
	// Where begins with a preposition: "in step 412 of epoch 2", "while evaluating after
	// step 468 of epoch 3".
	Where string `json:"where,omitempty"`
	// Bucket is of a step, and names its layers: "bucket 3 (conv1.weight … fc.bias)".
	Bucket string `json:"bucket,omitempty"`
}

// String is "in step 412 of epoch 2, bucket 3 (conv1.weight … fc.bias)", or as much of it as is known.
func (p Position) String() string {
	switch {
	case p.Bucket == "":
		return p.Where
	case p.Where == "":
		return "in " + p.Bucket
	}
	return p.Where + ", " + p.Bucket
}

// At adds to a text where it is from, if that is known.
func At(text string, p Position) string {
	if at := p.String(); at != "" {
		return text + ", " + at
	}
	return text
}

// located is an error with the place in a run where it happened.
type located interface {
	error
	Place() Position
}

// PositionOf is what err and the errors that it wraps know of where it happened: of each part
// the outermost's word, which knows most of the run.
func PositionOf(err error) Position {
	var p Position
	visit(err, func(err error) {
		at, ok := err.(located)
		if !ok {
			return
		}
		q := at.Place()
		if p.Where == "" {
			p.Where = q.Where
		}
		if p.Bucket == "" {
			p.Bucket = q.Bucket
		}
	})
	return p
}

// visit calls see for err and all that it wraps, the outermost first.
func visit(err error, see func(error)) {
	if err == nil {
		return
	}
	see(err)
	switch inside := err.(type) {
	case interface{ Unwrap() error }:
		visit(inside.Unwrap(), see)
	case interface{ Unwrap() []error }:
		for _, e := range inside.Unwrap() {
			visit(e, see)
		}
	}
}

// Bucket names a bucket by its number and its first and last layer.
func Bucket(name, first, last string) string {
	switch {
	case first == "":
		return name
	case last == "" || last == first:
		return name + " (" + first + ")"
	}
	return name + " (" + first + " … " + last + ")"
}

// oneLine is a text of several lines on one.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

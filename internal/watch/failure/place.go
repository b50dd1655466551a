// Package failure describes the end of a job as text: the position in the run, the cause, and the
// affected processes. Programs use errors.As on the errors instead.
package failure

import "strings"

// Position is a position in a run, as text. The zero value is an unknown position.
type Position struct {
	// Where begins with a preposition: "in step 412 of epoch 2", "while evaluating after step 468".
	Where string `json:"where,omitempty"`
	// Bucket is a bucket of the step, with its layers: "bucket 3 (conv1.weight … fc.bias)".
	Bucket string `json:"bucket,omitempty"`
}

// String returns "in step 412 of epoch 2, bucket 3 (conv1.weight … fc.bias)", or the known part.
func (p Position) String() string {
	switch {
	case p.Bucket == "":
		return p.Where
	case p.Where == "":
		return "in " + p.Bucket
	}
	return p.Where + ", " + p.Bucket
}

// At appends the position to a text, if known.
func At(text string, p Position) string {
	if at := p.String(); at != "" {
		return text + ", " + at
	}
	return text
}

// located is an error with a position in the run.
type located interface {
	error
	Place() Position
}

// PositionOf returns the position in err and wrapped errors: each part from the outermost.
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

// visit calls see for err and all wrapped errors, outermost first.
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

// Bucket formats a bucket by its number and its first and last layer.
func Bucket(name, first, last string) string {
	switch {
	case first == "":
		return name
	case last == "" || last == first:
		return name + " (" + first + ")"
	}
	return name + " (" + first + " … " + last + ")"
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

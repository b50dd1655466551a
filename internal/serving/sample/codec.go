// Package sample converts the rows of requests to the samples of a model: JSON objects with the
// names of a table's columns, pixels, numbers, or the values of click logs. A sample has the same
// bits as the sample of `ringo predict` from a file with the same row.
//
//	codec, err := sample.New(predictor.Description())
//	rows, err := codec.JSON(body, 1024) // checked: the error has the row and the column
//	sample.Gather(&batch, codec.Shape(), []sample.Part{{rows, 0, rows.N}})
package sample

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/serving/jsonscan"
)

// Kind is the kind of an input.
type Kind string

// Values of Kind.
const (
	Number   Kind = "number"   // a number, or null for a missing value
	Category Kind = "category" // a text or number, or null for a missing value
	Date     Kind = "date"     // a text or number in the column's format, or null
	Bag      Kind = "bag"      // an array of texts or numbers, or null for an empty one
	Pixels   Kind = "pixels"   // integers from 0 to 255, channels last
	Values   Kind = "values"   // numbers, as the model receives them
)

// Field is an input of a model, with the name that requests use.
type Field struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Words lists the known values of a category of a table.
	Words []string `json:"words,omitempty"`
	// Shape is the shape of pixels or values.
	Shape []int `json:"shape,omitempty"`
	// Separator separates the values of a bag in a text.
	Separator string `json:"separator,omitempty"`

	exact bool // numbers keep their text, as in a log, without rounding
}

func (f *Field) array() bool { return f.Kind == Pixels || f.Kind == Values }

// size returns the number of elements of an array.
func (f *Field) size() int {
	size := 1
	for _, d := range f.Shape {
		size *= d
	}
	return size
}

// Codec converts rows. Goroutines may share a codec.
type Codec struct {
	fields  []Field
	index   map[string]int  // indices of fields by name
	ignored map[string]bool // columns that rows may have without effect
	shape   data.Shape
	encode  func(in *columns) (*Rows, error)
}

// Rows holds converted rows.
type Rows struct {
	data.Batch
	// Unknown lists words that their column did not have in training, as "row 3: column \"city\":
	// \"Atlantis\"": the first 20 (mostUnknown). UnknownWords is the number of all.
	Unknown      []string
	UnknownWords int
}

const mostUnknown = 20

// columns holds a request's values by field and row.
type columns struct {
	n       int
	numbers [][]float64 // numbers; NaN: missing. Elements of arrays, row by row
	words   [][]string  // other scalars; "": missing
	lists   [][][]string
}

// New returns the codec of a model's samples, or an error for a model whose samples no request can
// have.
func New(d data.Description) (*Codec, error) {
	c := &Codec{shape: d.Shape, index: map[string]int{}, ignored: map[string]bool{}}
	var err error
	switch s := d.Shape; {
	case d.Encoder != nil:
		c.table(d.Encoder)
	case d.Name == "criteo" || d.Name == "clicks" && d.Layout != nil:
		err = c.clicks(d)
	case (d.Name == "mnist" || d.Name == "cifar10" || d.Name == "images" || d.Name == "imagenet") && len(s.Values) == 3:
		c.pixels(d)
	case d.Name == "arrays" && s.IDs == 0 && s.Keys == 0 && len(s.Slots) == 0:
		c.fields = []Field{{Name: "values", Kind: Values, Shape: s.Values}}
		c.encode = c.values
	default:
		err = fmt.Errorf("data %q: no rows for requests: want a table, clicks, images or arrays (a language model writes by `ringo predict --prompt`)", d.Name)
	}
	for i, f := range c.fields {
		c.index[f.Name] = i
	}
	return c, err
}

// Fields returns the inputs. The caller must not modify the result.
func (c *Codec) Fields() []Field { return c.fields }

// Shape returns the shape of the samples.
func (c *Codec) Shape() data.Shape { return c.shape }

// Compatible returns an error if requests for c are no requests for other: the inputs need equal
// names, kinds and shapes. Known words may differ.
func (c *Codec) Compatible(other *Codec) error {
	for _, f := range c.fields {
		i, ok := other.index[f.Name]
		switch {
		case !ok:
			return fmt.Errorf("column %q: missing in the newer model", f.Name)
		case other.fields[i].Kind != f.Kind || !slices.Equal(other.fields[i].Shape, f.Shape):
			return fmt.Errorf("column %q: %s %v, in the newer model %s %v", f.Name, f.Kind, f.Shape, other.fields[i].Kind, other.fields[i].Shape)
		}
	}
	for _, f := range other.fields {
		if _, ok := c.index[f.Name]; !ok {
			return fmt.Errorf("column %q: new in the newer model", f.Name)
		}
	}
	return nil
}

func (c *Codec) newColumns() *columns {
	k := len(c.fields)
	return &columns{numbers: make([][]float64, k), words: make([][]string, k), lists: make([][][]string, k)}
}

// RowError is an error in a row of a request.
type RowError struct {
	Row     int
	Column  string // "": the row as a whole
	Problem string
}

// Error returns the position and the problem.
func (e *RowError) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("row %d: %s", e.Row, e.Problem)
	}
	return fmt.Sprintf("row %d: column %q: %s", e.Row, e.Column, e.Problem)
}

// CountError is a request with too many rows.
type CountError struct{ Limit int }

// Error returns the limit.
func (e *CountError) Error() string {
	return fmt.Sprintf("more than %d rows: send several requests", e.Limit)
}

// JSON converts a body: an object with a value for each field, or an array of at most most objects.
// Errors are texts for the client: a *RowError, a *CountError or a description of the body.
func (c *Codec) JSON(body []byte, most int) (*Rows, error) {
	if err := jsonscan.Check(body); err != nil {
		return nil, err
	}
	in := c.newColumns()
	body = jsonscan.Trim(body)
	switch kind := jsonscan.Kind(body); kind {
	case "object":
		if err := c.row(in, body); err != nil {
			return nil, err
		}
	case "array":
		err := jsonscan.Array(body, func(value []byte) error {
			if in.n == most {
				return &CountError{most}
			}
			return c.row(in, value)
		})
		if err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("the body is of type %s: want an object with a value for each column, or an array of such objects", kind)
	}
	if in.n == 0 {
		return nil, fmt.Errorf("no rows: want an object with a value for each column, or an array of such objects")
	}
	return c.encode(in)
}

// row appends a row.
func (c *Codec) row(in *columns, value []byte) error {
	fail := func(column, problem string) error { return &RowError{in.n, column, problem} }
	if kind := jsonscan.Kind(value); kind != "object" {
		return fail("", fmt.Sprintf("%s %s: want an object with a value for each column", kind, jsonscan.Show(value)))
	}
	given := make([]bool, len(c.fields))
	inside := false // the error has its position
	err := jsonscan.Object(value, func(name string, value []byte) error {
		i, ok := c.index[name]
		if !ok && c.ignored[name] {
			return nil
		}
		inside = true
		if !ok {
			return fail(name, "no column of the model: want "+c.names())
		}
		given[i] = true
		if problem := in.add(i, &c.fields[i], value); problem != "" {
			return fail(name, problem)
		}
		inside = false
		return nil
	})
	if err != nil && !inside {
		return fail("", err.Error())
	} else if err != nil {
		return err
	}
	if i := slices.Index(given, false); i >= 0 {
		return fail(c.fields[i].Name, "missing: want a value, or null for a missing one")
	}
	in.n++
	return nil
}

// names lists the fields for errors.
func (c *Codec) names() string {
	var names []string
	for _, f := range c.fields[:min(12, len(c.fields))] {
		names = append(names, f.Name)
	}
	if len(c.fields) > 12 {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// add appends a value of a field, and returns the problem of an unsuitable one.
func (in *columns) add(i int, f *Field, value []byte) (problem string) {
	kind := jsonscan.Kind(value)
	switch f.Kind {
	case Number:
		x, problem := number(kind, value)
		if f.exact {
			in.words[i] = append(in.words[i], exact(value, x))
		} else {
			in.numbers[i] = append(in.numbers[i], x)
		}
		return problem
	case Category, Date:
		word, problem := word(kind, value)
		in.words[i] = append(in.words[i], word)
		return problem
	case Bag:
		var list []string
		switch kind {
		case "null":
		case "array":
			_ = jsonscan.Array(value, func(value []byte) error {
				var w string
				if w, problem = word(jsonscan.Kind(value), value); problem == "" && w == "" {
					problem = "an empty value in the array"
				}
				if list = append(list, w); problem != "" {
					return errStop
				}
				return nil
			})
		default:
			return fmt.Sprintf("%s %s: want an array of texts", kind, jsonscan.Show(value))
		}
		in.lists[i] = append(in.lists[i], list)
		return problem
	}
	in.numbers[i], problem = f.elements(in.numbers[i], value)
	return problem
}

// errStop ends a visit; the caller has the problem.
var errStop = fmt.Errorf("stop")

// number returns the number of a value; NaN is missing.
func number(kind string, value []byte) (x float64, problem string) {
	switch kind {
	case "null":
		return math.NaN(), ""
	case "number":
		x, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return 0, fmt.Sprintf("%s: out of the range of numbers", jsonscan.Show(value))
		}
		return x, ""
	}
	return 0, fmt.Sprintf("%s %s: want a number, or null for a missing one", kind, jsonscan.Show(value))
}

// exact returns a number as in a log, with all digits of an integer; "" is missing.
func exact(value []byte, x float64) string {
	switch {
	case x != x:
		return ""
	case x == math.Trunc(x) && math.Abs(x) < 1<<53: // also 1e3 and 2.0
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return string(value)
}

// word returns the text of a value; "" is missing.
func word(kind string, value []byte) (text, problem string) {
	switch kind {
	case "null":
		return "", ""
	case "string":
		return jsonscan.String(value), ""
	case "number", "boolean":
		return string(value), ""
	}
	return "", fmt.Sprintf("%s %s: want a text, or null for a missing one", kind, jsonscan.Show(value))
}

// elements appends the elements of an array: flat, or nested by the shape.
func (f *Field) elements(to []float64, value []byte) (_ []float64, problem string) {
	if kind := jsonscan.Kind(value); kind != "array" {
		return to, fmt.Sprintf("%s %s: want an array of %v numbers", kind, jsonscan.Show(value), f.Shape)
	}
	from, shape := len(to), f.Shape
	nested := false
	_ = jsonscan.Array(value, func(v []byte) error { nested = v[0] == '['; return errStop })
	if !nested {
		shape = []int{f.size()}
	}
	if to, problem = f.nested(to, value, shape); problem == "" && len(to)-from != f.size() {
		problem = fmt.Sprintf("%d numbers: want %d, of shape %v", len(to)-from, f.size(), f.Shape)
	}
	return to, problem
}

// nested appends the elements of an array of a shape. A last dimension of 1 may be left out.
func (f *Field) nested(to []float64, value []byte, shape []int) (_ []float64, problem string) {
	n := 0
	_ = jsonscan.Array(value, func(v []byte) error {
		n++
		switch kind := jsonscan.Kind(v); {
		case n > shape[0]:
			problem = fmt.Sprintf("more than %d elements in an array of shape %v", shape[0], f.Shape)
		case len(shape) > 1 && kind == "array":
			to, problem = f.nested(to, v, shape[1:])
		case len(shape) == 1 || len(shape) == 2 && shape[1] == 1:
			var x float64
			if x, problem = number(kind, v); problem == "" {
				problem = f.refuses(x)
			}
			to = append(to, x)
		default:
			problem = fmt.Sprintf("%s %s in an array of shape %v", kind, jsonscan.Show(v), f.Shape)
		}
		if problem != "" {
			return errStop
		}
		return nil
	})
	if problem == "" && n < shape[0] {
		problem = fmt.Sprintf("%d elements: want %d, in an array of shape %v", n, shape[0], f.Shape)
	}
	return to, problem
}

// refuses returns the problem of an element.
func (f *Field) refuses(x float64) string {
	switch {
	case x != x:
		return "null: want a number"
	case f.Kind == Pixels && (x != math.Trunc(x) || x < 0 || x > 255):
		return fmt.Sprintf("%s: want integers from 0 to 255", strconv.FormatFloat(x, 'g', -1, 64))
	case math.IsInf(float64(float32(x)), 0):
		return fmt.Sprintf("%s: out of the range of float32", strconv.FormatFloat(x, 'g', -1, 64))
	}
	return ""
}

package sample

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/serving/jsonscan"
)

// Tensor is a named array of a request: a column of all rows, or all rows' pixels or values.
type Tensor struct {
	Name  string
	Shape []int
	Data  []byte // JSON array, flat or nested by Shape
}

// Tensors converts a request of a tensor per field, with at most most rows. A column has shape [n]
// or [n, 1], an array [n] and the field's shape. A bag is a text with the field's separator.
func (c *Codec) Tensors(tensors []Tensor, most int) (*Rows, error) {
	in, given := c.newColumns(), make([]bool, len(c.fields))
	for k, t := range tensors {
		i, ok := c.index[t.Name]
		switch {
		case !ok:
			return nil, fmt.Errorf("input %q: no input of the model: want %s", t.Name, c.names())
		case given[i]:
			return nil, fmt.Errorf("input %q occurs twice", t.Name)
		}
		given[i] = true
		f := &c.fields[i]
		if err := f.fits(t.Shape); err != nil {
			return nil, fmt.Errorf("input %q: %w", t.Name, err)
		}
		switch n := t.Shape[0]; {
		case n > most:
			return nil, &CountError{most}
		case n < 1:
			return nil, fmt.Errorf("input %q: shape %v: want at least 1 row", t.Name, t.Shape)
		case k > 0 && n != in.n:
			return nil, fmt.Errorf("input %q: %d rows, and input %q has %d", t.Name, n, tensors[0].Name, in.n)
		default:
			in.n = n
		}
		if err := in.tensor(i, f, t); err != nil {
			return nil, err
		}
	}
	if i := slices.Index(given, false); i >= 0 {
		return nil, fmt.Errorf("input %q is missing: want %s", c.fields[i].Name, c.names())
	}
	return c.encode(in)
}

// fits returns an error for a tensor's shape that does not suit the field.
func (f *Field) fits(shape []int) error {
	switch {
	case f.array():
		if len(shape) == 0 || !slices.Equal(shape[1:], f.Shape) {
			return fmt.Errorf("shape %v: want [n] and %v", shape, f.Shape)
		}
	case len(shape) != 1 && !(len(shape) == 2 && shape[1] == 1):
		return fmt.Errorf("shape %v: want [n] or [n, 1]", shape)
	}
	return nil
}

// tensor appends all rows of a field.
func (in *columns) tensor(i int, f *Field, t Tensor) error {
	if f.array() {
		all := Field{Kind: f.Kind, Shape: t.Shape}
		to, problem := all.elements(nil, t.Data)
		if in.numbers[i] = to; problem != "" {
			return &RowError{min(len(to)/f.size(), in.n-1), t.Name, problem}
		}
		return nil
	}
	row := 0
	fail := func(problem string) error { return &RowError{row, t.Name, problem} }
	err := jsonscan.Array(t.Data, func(value []byte) error {
		if value[0] == '[' {
			if value = jsonscan.Only(value); value == nil {
				return fail("want one value in each inner array")
			}
		}
		if row == in.n {
			return fail(fmt.Sprintf("more values than the %d of the shape", in.n))
		}
		if problem := in.addFlat(i, f, value); problem != "" {
			return fail(problem)
		}
		row++
		return nil
	})
	if err == nil && row < in.n {
		return fmt.Errorf("input %q: %d values, and the shape has %d", t.Name, row, in.n)
	}
	return err
}

// addFlat appends a value, with a bag as a text.
func (in *columns) addFlat(i int, f *Field, value []byte) (problem string) {
	if f.Kind != Bag {
		return in.add(i, f, value)
	}
	text, problem := word(jsonscan.Kind(value), value)
	var list []string
	if text != "" {
		list = strings.Split(text, f.Separator)
	}
	in.lists[i] = append(in.lists[i], list)
	return problem
}

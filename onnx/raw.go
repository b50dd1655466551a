package onnx

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
)

// Names of the outputs of a graph with raw inputs: the fields of package predict, and the
// probabilities of all classes.
const (
	predictionName    = "prediction"
	probabilityName   = "probability"
	probabilitiesName = "probabilities"
	classesName       = "classes"
	pixelsName        = "pixels"
)

// rawInputs are the inputs of a graph as the data have them: columns of a table, or pixels.
type rawInputs struct {
	data    data.Description
	values  string   // result with the encoded numbers, [batch, numbers]; "": none
	ids     string   // result with the rows of the categories, [batch, categories]; "": none
	invalid string   // result that is 0 for a sample of valid numbers and dates and else NaN, [batch, 1]; "": none
	wrong   []string // results that are NaN for a date out of range and else 0, [batch, 1]
}

// HasRaw reports whether a graph can take samples of the described data as raw inputs: rows of a
// table, or images.
func HasRaw(d data.Description) bool {
	_, _, images := d.Normalisation()
	return d.Encoder != nil || images
}

// takeRaw declares the raw inputs and adds their encoding.
func (b *builder) takeRaw() error {
	d := b.raw.data
	if len(b.elsewhere) > 0 {
		return errors.New("onnx: raw inputs need the rows of all tables in the model: export it with encoded inputs")
	}
	if len(b.passes[0].outs) != 1 || len(b.shapes[b.passes[0].outs[0]]) != 2 {
		return errors.New("onnx: raw inputs need a model with one output of two axes, a row for each sample: export it with encoded inputs")
	}
	if e := d.Encoder; e != nil {
		if n := volumeOf(b.spec.Input); n != e.Numbers() || b.spec.IDs != e.Categories() {
			return fmt.Errorf("onnx: the model takes %d numbers and %d categories, and the table has %d and %d", n, b.spec.IDs, e.Numbers(), e.Categories())
		}
		return b.takeColumns(e)
	}
	mean, deviation, ok := d.Normalisation()
	shape := b.spec.Input
	if !ok || len(shape) != 3 || shape[2] != len(mean) {
		return fmt.Errorf("onnx: samples of %q are neither rows of a table nor images: export the model with encoded inputs", d.Name)
	}
	b.takePixels(shape, mean, deviation)
	return nil
}

// volumeOf is the number of values of a shape; 0 without axes.
func volumeOf(shape []int) int {
	n, _ := volume(shapeOf(shape))
	if len(shape) == 0 {
		return 0
	}
	return n
}

// takePixels normalises images in the decoder's form: rows of pixels with all channels.
func (b *builder) takePixels(shape []int, mean, deviation []float32) {
	in := port{name: b.unique(pixelsName), kind: uint8Type, shape: append([]dim{batch}, shapeOf(shape)...), about: "images: height, width, channels"}
	b.inputs = append(b.inputs, in)
	name := b.add("Div", []string{b.cast(in.name, float32Type), b.scalar(255)})
	name = b.add("Sub", []string{name, b.floats("mean", "mean", []int{len(mean)}, mean)})
	b.raw.values = b.add("Div", []string{name, b.floats("deviation", "deviation", []int{len(deviation)}, deviation)})
}

// takeColumns encodes the columns of a table as table.Encoder does: a number x as (x -
// mean)/deviation, in float64, and a missing one as 0; a date as several numbers; a word as its row
// of the embedding table. The rows of a category begin with the row of missing and unknown words.
func (b *builder) takeColumns(e *table.Encoder) error {
	for _, c := range e.Columns { // before a value within the graph takes the name
		b.names[c.Name] = c.Kind == table.Number || c.Kind == table.Date || c.Kind == table.Category
	}
	var numbers, ids []string
	var means, deviations []float64
	row := 0
	for _, c := range e.Columns {
		in := port{name: c.Name, shape: []dim{batch}}
		switch c.Kind {
		case table.Ignore, table.Label, table.Target:
			continue
		case table.Number:
			in.kind, in.about = float64Type, "number; NaN for a missing one"
			numbers = append(numbers, b.add("Unsqueeze", []string{c.Name, b.list(1)}))
			means, deviations = append(means, c.Mean), append(deviations, c.Deviation)
		case table.Date:
			in.kind, in.about = float64Type, "date: seconds since 1970 in UTC; NaN for a missing one"
			numbers = append(numbers, b.encodeDate(c)...)
			for _, p := range c.Parts {
				means, deviations = append(means, p.Mean), append(deviations, p.Deviation)
			}
		case table.Category:
			in.kind, in.about = stringType, "word; empty for a missing one"
			ids = append(ids, b.add("Unsqueeze", []string{b.encodeWords(c, row), b.list(1)}))
			row += 1 + len(c.Words)
		default:
			return fmt.Errorf("onnx: column %q: kind %s has no raw input: export the model with encoded inputs", c.Name, c.Kind)
		}
		b.inputs = append(b.inputs, in)
	}
	if len(ids) > 0 {
		b.raw.ids = b.add("Concat", ids, intOf("axis", 1))
	}
	if len(numbers) > 0 {
		b.scaleNumbers(b.add("Concat", numbers, intOf("axis", 1)), means, deviations)
	}
	return nil
}

// encodeWords returns the rows of a category's words; first is that of missing or unknown words.
func (b *builder) encodeWords(c table.Column, first int) string {
	words, rows := []string{""}, []int{first} // a runtime can reject an empty list
	for k, w := range c.Words {
		words, rows = append(words, w), append(rows, first+1+k)
	}
	name := b.add("LabelEncoder", []string{c.Name}, stringsOf("keys_strings", words...), intsOf("values_int64s", rows...), intOf("default_int64", first))
	b.operators[len(b.operators)-1].domain = mlDomain
	return name
}

// scaleNumbers scales numbers as table.Encoder does. Infinite numbers, numbers too far from the
// mean for a float32, and dates out of range make the outputs of their samples NaN.
func (b *builder) scaleNumbers(name string, means, deviations []float64) {
	width := []int{len(means)}
	scaled := b.add("Sub", []string{name, b.doubles("means", width, means...)})
	scaled = b.add("Div", []string{scaled, b.doubles("deviations", width, deviations...)})
	scaled = b.add("Where", []string{b.add("IsNaN", []string{name}), b.doubles("missing", nil, 0), scaled})
	b.raw.values = b.cast(scaled, float32Type)
	zeros := b.add("Mul", []string{b.raw.values, b.scalar(0)})
	b.raw.invalid = b.add("ReduceSum", []string{zeros, b.list(1)}, intOf("keepdims", 1))
	for _, wrong := range b.raw.wrong {
		b.raw.invalid = b.add("Add", []string{b.raw.invalid, wrong})
	}
}

// reserveRaw reserves the names of the outputs, in case a column has one of them.
func (b *builder) reserveRaw() error {
	for _, name := range []string{predictionName, probabilityName, probabilitiesName, classesName} {
		if b.unique(name) != name {
			return fmt.Errorf("onnx: column %q: an output of the graph has this name: rename the column, or export the model with encoded inputs", name)
		}
	}
	return nil
}

// giveRaw makes predictions of the model's output: a number in the units of the target, or class
// and probabilities.
func (b *builder) giveRaw() {
	v := b.value(b.passes[0].outs[0])
	name, width := b.asHere(v), v.shape[1].plus
	if b.raw.invalid != "" {
		name = b.add("Add", []string{name, b.raw.invalid})
	}
	goal := table.Column{}
	if e := b.raw.data.Encoder; e != nil {
		goal, _ = e.Goal()
	}
	if goal.Kind == table.Target {
		name = b.add("Mul", []string{b.cast(name, float64Type), b.doubles("deviation", nil, goal.Deviation)})
		name = b.add("Add", []string{name, b.doubles("mean", nil, goal.Mean)})
		b.give(port{name: predictionName, kind: float64Type, shape: []dim{batch}}, b.reshape(name, []dim{batch}))
		return
	}
	classes := b.strings(classNames(b.raw.data.Words, width))
	probabilities := b.add("Softmax", []string{name}, intOf("axis", -1))
	best := b.add("ArgMax", []string{name}, intOf("axis", 1), intOf("keepdims", 1))
	probability := b.reshape(b.add("GatherElements", []string{probabilities, best}, intOf("axis", 1)), []dim{batch})
	class := b.reshape(b.add("Gather", []string{classes, best}), []dim{batch})
	class = b.add("Where", []string{b.add("IsNaN", []string{probability}), b.strings([]string{""}), class})
	b.give(port{name: predictionName, kind: stringType, shape: []dim{batch}}, class)
	b.give(port{name: probabilityName, kind: float32Type, shape: []dim{batch}}, probability)
	b.give(port{name: probabilitiesName, kind: float32Type, shape: []dim{batch, fixed(width)}}, probabilities)
	b.give(port{name: classesName, kind: stringType, shape: []dim{fixed(width)}}, classes)
}

// classNames returns the names of n classes; a class without a name has its number.
func classNames(words []string, n int) (names []string) {
	for k := range n {
		name := strconv.Itoa(k)
		if k < len(words) {
			name = words[k]
		}
		names = append(names, name)
	}
	return names
}

// cast converts a value to another type.
func (b *builder) cast(name string, kind int) string {
	return b.add("Cast", []string{name}, intOf("to", kind))
}

// strings is a constant vector of words.
func (b *builder) strings(words []string) string {
	return b.own(constant{name: "words", shape: []int{len(words)}, words: words})
}

// doubles is a constant of float64.
func (b *builder) doubles(name string, shape []int, vs ...float64) string {
	return b.own(constant{name: name, shape: shape, doubles: vs})
}

// own adds a constant that no other operator shares.
func (b *builder) own(c constant) string {
	c.name, c.at = b.unique(c.name), -1
	b.constants = append(b.constants, c)
	return c.name
}

// Package tensornames maps the tensors of a model to another model's by the names in the data of
// both: columns, categories, slots, classes and words. A run that starts from a checkpoint needs
// the map if the data have other columns, categories or classes, or another order. The mapping has
// three steps. The first two depend only on the descriptions of the data and the shapes of tensors:
//
//   - Extract returns the names of both descriptions, and Compare rejects conflicts.
//   - Trace labels the places of both models' tensors, and Match finds the old place of equal
//     labels for each new place.
//   - The caller reads old tensors in the new places. Places without a match keep the values of a
//     new run of the same seed.
package tensornames

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Kind is the kind of a label.
type Kind string

const (
	ofColumn   Kind = "column"   // part is a date's part, such as year
	ofCategory Kind = "category" // row of an embedding; part is "" for missing or unseen values
	ofSlot     Kind = "slot"
	ofClass    Kind = "class"
	ofTarget   Kind = "target"
	ofWord     Kind = "word"
	ofUnit     Kind = "unit" // place of a layer inside the model, or result of an operation on named places
)

// Label names a place along a tensor's axis. Equal labels have one meaning in any two runs.
type Label struct {
	Kind       Kind
	Name, Part string
	At         int // number among the values of one name, such as a category's vector
}

// String returns the name, NAME=PART of a category, or NAME (PART) of a date.
func (l Label) String() string {
	switch {
	case l.Kind == ofCategory:
		return fmt.Sprintf("%s=%s", l.Name, l.Part)
	case l.Part != "":
		return fmt.Sprintf("%s (%s)", l.Name, l.Part)
	}
	return l.Name
}

// Names are the names in a run's data: columns, categories, slots, classes or words.
type Names struct {
	Values  []Label // columns of a sample's numbers
	IDs     []IDColumn
	Slots   []string
	Outputs []Label // classes, words or the target
	Words   []Label // tokens
}

// IDColumn is a column of ids, whose rows of an embedding begin with first. Rows of hashed keys
// have no labels.
type IDColumn struct {
	Name  string
	First int
	Rows  []Label
}

// Extract returns the names in a run's data.
func Extract(d data.Description) (n Names) {
	switch {
	case d.Encoder != nil:
		n = namesOfTable(d.Encoder)
	case d.Layout != nil:
		for _, c := range d.Layout.Of(func(c layout.Column) bool { return c.Kind == layout.Number }) {
			n.Values = append(n.Values, Label{Kind: ofColumn, Name: c.Name})
		}
	case d.Name == "criteo":
		for i := range d.Shape.Size() {
			n.Values = append(n.Values, Label{Kind: ofColumn, Name: fmt.Sprintf("I%d", i+1)})
		}
		for i := range d.Shape.IDs {
			n.IDs = append(n.IDs, IDColumn{Name: fmt.Sprintf("C%d", i+1)})
		}
	}
	for _, s := range d.Shape.Slots {
		n.Slots = append(n.Slots, s.Name)
	}
	if d.Encoder != nil {
		return n
	}
	for _, w := range d.Words {
		if d.Vocabulary > 0 {
			n.Words = append(n.Words, Label{Kind: ofWord, Name: w})
		} else {
			n.Outputs = append(n.Outputs, Label{Kind: ofClass, Name: w})
		}
	}
	if d.Vocabulary > 0 {
		n.Outputs = n.Words
	}
	return n
}

func namesOfTable(e *table.Encoder) (n Names) {
	first := 0
	for _, c := range e.Columns {
		switch c.Kind {
		case table.Number:
			n.Values = append(n.Values, Label{Kind: ofColumn, Name: c.Name})
		case table.Date:
			for _, p := range c.Parts {
				n.Values = append(n.Values, Label{Kind: ofColumn, Name: c.Name, Part: p.Name})
			}
		case table.Category:
			rows := []Label{{Kind: ofCategory, Name: c.Name}}
			for _, w := range c.Words {
				rows = append(rows, Label{Kind: ofCategory, Name: c.Name, Part: w})
			}
			n.IDs = append(n.IDs, IDColumn{c.Name, first, rows})
			first += len(rows)
		case table.Label:
			for _, w := range c.Words {
				n.Outputs = append(n.Outputs, Label{Kind: ofClass, Name: w})
			}
		case table.Target:
			n.Outputs = []Label{{Kind: ofTarget, Name: c.Name}}
		}
	}
	return n
}

// None reports whether data have no names.
func (n Names) None() bool {
	return len(n.Values)+len(n.IDs)+len(n.Slots)+len(n.Outputs)+len(n.Words) == 0
}

// Inputs returns the names of a sample's inputs, of all kinds.
func (n Names) Inputs() (out []Label) {
	out = slices.Clone(n.Values)
	for _, c := range n.IDs {
		out = append(out, Label{Kind: ofColumn, Name: c.Name})
	}
	for _, s := range n.Slots {
		out = append(out, Label{Kind: ofSlot, Name: s})
	}
	return append(out, n.Words...)
}

// Rows returns the categories of all columns, except for missing values.
func (n Names) Rows() (out []Label) {
	for _, c := range n.IDs {
		for _, r := range c.Rows {
			if r.Part != "" {
				out = append(out, r)
			}
		}
	}
	return out
}

// without returns the labels of a that b lacks, in the order of a.
func without(a, b []Label) (out []Label) {
	has := map[Label]bool{}
	for _, l := range b {
		has[l] = true
	}
	for _, l := range a {
		if !has[l] {
			out = append(out, l)
		}
	}
	return out
}

// Unlike returns the names that b lacks, by kind, such as "class bee, wasp", without categories of
// missing columns, and without outputs unless outputs is set.
func (n Names) Unlike(b Names, outputs bool) string {
	lacks := without(n.Inputs(), b.Inputs())
	for _, r := range without(n.Rows(), b.Rows()) {
		if !slices.Contains(lacks, Label{Kind: ofColumn, Name: r.Name}) {
			lacks = append(lacks, r)
		}
	}
	if outputs && len(n.Words) == 0 {
		lacks = append(lacks, without(n.Outputs, b.Outputs)...)
	}
	var parts []string
	for _, kind := range []Kind{ofColumn, ofCategory, ofSlot, ofClass, ofTarget, ofWord} {
		var of []string
		for _, l := range lacks {
			if l.Kind == kind {
				of = append(of, l.String())
			}
		}
		if len(of) > 0 {
			parts = append(parts, string(kind)+" "+Enumerate(of))
		}
	}
	return strings.Join(parts, "; ")
}

// Compare reports names that cannot be mapped: columns with another meaning, and data without a
// name in common. outputs includes the last layer.
func Compare(was, now data.Description, outputs bool) error {
	a, b := Extract(was), Extract(now)
	var errs []error
	if was.Encoder != nil && now.Encoder != nil {
		errs = append(errs, compareColumns(was.Encoder, now.Encoder)...)
	}
	if keysOf(was) != "" || keysOf(now) != "" {
		errs = append(errs, compareClicks(was, now)...)
	}
	if goal, other := goalOf(was), goalOf(now); outputs && goal != "" && other != "" && goal != other {
		errs = append(errs, fmt.Errorf("the checkpoint predicts the %s, these data have the %s: choose the same with %v and %v; %v keeps the last layer's first values",
			goal, other, setting.Path("data.target"), setting.Path("data.schema"), setting.Path("training.init-except")))
	}
	nothing := func(what string, old, new []Label) {
		special := func(l Label) bool { return l.Kind == ofWord && (l.Name == "<unk>" || l.Name == "<eos>") }
		old, new = slices.DeleteFunc(slices.Clone(old), special), slices.DeleteFunc(slices.Clone(new), special)
		if len(old) > 0 && len(new) > 0 && len(without(new, old)) == len(new) {
			errs = append(errs, fmt.Errorf("no %s in common: the checkpoint has %s, these data %s", what, Enumerate(Texts(old)), Enumerate(Texts(new))))
		}
	}
	if len(b.Words) > 0 {
		nothing("word", a.Words, b.Words)
	} else {
		nothing("column", a.Inputs(), b.Inputs())
	}
	if outputs && len(b.Words) == 0 {
		nothing("class", a.Outputs, b.Outputs)
	}
	return errors.Join(errs...)
}

// Texts returns the texts of labels.
func Texts(labels []Label) (out []string) {
	for _, l := range labels {
		out = append(out, l.String())
	}
	return out
}

// goalOf returns the kind and name of the column that the last layer's output is compared with.
func goalOf(d data.Description) string {
	if d.Encoder != nil {
		c, _ := d.Encoder.Goal()
		return strings.TrimSpace(fmt.Sprintf("%s %s", c.Kind, c.Name))
	}
	if d.Layout != nil {
		for _, c := range d.Layout.Of(func(c layout.Column) bool { return c.Kind == layout.Label }) {
			return "label " + c.Name
		}
	}
	return ""
}

// compareColumns reports columns of tables with another kind, mean or deviation.
func compareColumns(was, now *table.Encoder) (errs []error) {
	for _, c := range now.Columns {
		i := slices.IndexFunc(was.Columns, func(o table.Column) bool { return o.Name == c.Name })
		if i < 0 {
			continue
		}
		switch o := was.Columns[i]; {
		case isInput(c.Kind) && isInput(o.Kind) && c.Kind != o.Kind:
			errs = append(errs, fmt.Errorf("column %s: the checkpoint has it as %s, these data as %s: set %v=%s=%s, or ignore it", c.Name, o.Kind, c.Kind, setting.Path("data.schema"), c.Name, o.Kind))
		case c.Kind == table.Date && o.Kind == c.Kind && !slices.Equal(c.Parts, o.Parts):
			errs = append(errs, fmt.Errorf("column %s: the checkpoint has the date's parts %v, these data were encoded with %v: open them with data.Config.Previous", c.Name, o.Parts, c.Parts))
		case c.Kind == o.Kind && (c.Mean != o.Mean || c.Deviation != o.Deviation):
			errs = append(errs, fmt.Errorf("column %s: the checkpoint has the mean %s and deviation %s, these data were encoded with %s and %s: open them with data.Config.Previous", c.Name, quantity.Exact(o.Mean), quantity.Exact(o.Deviation), quantity.Exact(c.Mean), quantity.Exact(c.Deviation)))
		}
	}
	return errs
}

func isInput(k table.Kind) bool { return k == table.Number || k == table.Category || k == table.Date }

// keysOf returns how samples of clicks name rows of tables; "" for other data.
func keysOf(d data.Description) string {
	switch {
	case len(d.Shape.Slots) > 0:
		return "keys"
	case d.Name == "criteo":
		return "hashed categories"
	}
	return ""
}

// compareClicks reports columns of clicks whose values become other keys or numbers.
func compareClicks(was, now data.Description) (errs []error) {
	if x, y := keysOf(was), keysOf(now); x != y {
		return []error{fmt.Errorf("the rows of the checkpoint's tables belong to %s, those of these data to %s: use parameter servers in both runs or in neither, or %v in both", cmp.Or(x, "no keys"), cmp.Or(y, "no keys"), setting.Path("data.table-rows"))}
	}
	old := makings(was)
	for _, m := range makings(now) {
		i := slices.IndexFunc(old, func(o making) bool { return o.Name == m.Name })
		if i >= 0 && old[i] != m {
			errs = append(errs, fmt.Errorf("column %s: the checkpoint has it as %s, these data as %s, so that its values mean other rows or numbers", m.Name, old[i].conversion, m.conversion))
		}
	}
	return errs
}

// making is the conversion of a column of clicks to keys or a number.
type making struct{ Name, conversion string }

func makings(d data.Description) (out []making) {
	if d.Layout == nil {
		for i := range d.Shape.Size() {
			out = append(out, making{fmt.Sprintf("I%d", i+1), "number log"})
		}
		for i := range max(d.Shape.IDs, len(d.Shape.Slots)) {
			out = append(out, making{fmt.Sprintf("C%d", i+1), fmt.Sprintf("category hex of table %d", i+1)})
		}
		return out
	}
	var hex []string
	for _, c := range d.Layout.Columns {
		kind := layout.Category // keys of a bag are a category's
		if c.Kind == layout.Sequence {
			kind = c.Kind
		}
		switch {
		case c.Kind == layout.Number:
			out = append(out, making{c.Name, strings.TrimSpace("number " + c.Transform)})
		case c.Slotted() && c.Values == layout.Hex:
			if !slices.Contains(hex, c.Table) {
				hex = append(hex, c.Table)
			}
			out = append(out, making{c.Name, fmt.Sprintf("%s hex of table %d", kind, slices.Index(hex, c.Table)+1)})
		case c.Slotted() && c.Values == layout.Key:
			out = append(out, making{c.Name, fmt.Sprintf("%s key", kind)})
		case c.Slotted():
			out = append(out, making{c.Name, fmt.Sprintf("%s %s of table %s", kind, c.Values, c.Table)})
		}
	}
	return out
}

// Meanings returns a text for each input and output of a model, in order: the name, and how values
// become numbers or keys. If two sets of data have the same texts, the same place of a parameter
// has the same meaning. Data without names have none.
func Meanings(d data.Description) (out []string) {
	n := Extract(d)
	if n.None() {
		return nil
	}
	how := map[string]string{}
	if d.Encoder != nil {
		for _, c := range d.Encoder.Columns {
			switch how[c.Name] = string(c.Kind); c.Kind {
			case table.Number:
				how[c.Name] = fmt.Sprintf("number of mean %v and deviation %v", c.Mean, c.Deviation)
			case table.Date:
				how[c.Name] = fmt.Sprintf("date %s of parts %v", c.Format, c.Parts)
			}
		}
	} else if keysOf(d) != "" {
		for _, m := range makings(d) {
			how[m.Name] = m.conversion
		}
	}
	for _, l := range n.Inputs() {
		if l.Kind != ofWord {
			out = append(out, strings.TrimSpace(l.String()+" "+how[l.Name]))
		}
	}
	out = append(out, many(ofCategory, n.Rows())...)
	if out = append(out, many(ofWord, n.Words)...); len(n.Outputs) > 0 && n.Outputs[0].Kind == ofClass {
		out = append(out, many(ofClass, n.Outputs)...)
	}
	if goal := goalOf(d); goal != "" {
		out = append(out, goal)
	}
	return out
}

// many returns one text for all labels of a kind, possibly very many; none without labels.
func many(kind Kind, labels []Label) []string {
	if len(labels) == 0 {
		return nil
	}
	texts := Texts(labels)
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return []string{fmt.Sprintf("%s %s (%x)", kind, Enumerate(texts), sum[:6])}
}

// Enumerate returns a few names in one line, or the first ones and the number of the rest.
func Enumerate(names []string) string {
	const most = 6
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

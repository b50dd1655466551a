package train

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

// labelKind is the kind of a label.
type labelKind string

const (
	ofColumn   labelKind = "column"
	ofCategory labelKind = "category" // row of an embedding; part is "" for missing or unseen values
	ofSlot     labelKind = "slot"
	ofClass    labelKind = "class"
	ofTarget   labelKind = "target"
	ofWord     labelKind = "word"
	ofUnit     labelKind = "unit" // place of a layer inside the model, or result of an operation on named places
)

// label names a place along an axis of a tensor. Equal labels have the same meaning in any two
// runs.
type label struct {
	kind       labelKind
	name, part string
	at         int // number among the values of one name, such as a category's vector
}

func (l label) String() string {
	if l.kind == ofCategory {
		return fmt.Sprintf("%s=%s", l.name, l.part)
	}
	return l.name
}

// names are the names in a run's data: columns, categories, slots, classes or words.
type names struct {
	values  []label // columns of a sample's numbers
	ids     []idColumn
	slots   []string
	outputs []label // classes, words or the target
	words   []label // tokens
}

// idColumn is a column of ids, whose rows of an embedding begin with first. Rows of hashed keys
// have no labels.
type idColumn struct {
	name  string
	first int
	rows  []label
}

// namesOf returns the names in a run's data.
func namesOf(d data.Description) (n names) {
	switch {
	case d.Encoder != nil:
		n = namesOfTable(d.Encoder)
	case d.Layout != nil:
		for _, c := range d.Layout.Of(func(c layout.Column) bool { return c.Kind == layout.Number }) {
			n.values = append(n.values, label{kind: ofColumn, name: c.Name})
		}
	case d.Name == "criteo":
		for i := range d.Shape.Size() {
			n.values = append(n.values, label{kind: ofColumn, name: fmt.Sprintf("I%d", i+1)})
		}
		for i := range d.Shape.IDs {
			n.ids = append(n.ids, idColumn{name: fmt.Sprintf("C%d", i+1)})
		}
	}
	for _, s := range d.Shape.Slots {
		n.slots = append(n.slots, s.Name)
	}
	if d.Encoder != nil {
		return n
	}
	for _, w := range d.Words {
		if d.Vocabulary > 0 {
			n.words = append(n.words, label{kind: ofWord, name: w})
		} else {
			n.outputs = append(n.outputs, label{kind: ofClass, name: w})
		}
	}
	if d.Vocabulary > 0 {
		n.outputs = n.words
	}
	return n
}

func namesOfTable(e *table.Encoder) (n names) {
	first := 0
	for _, c := range e.Columns {
		switch c.Kind {
		case table.Number:
			n.values = append(n.values, label{kind: ofColumn, name: c.Name})
		case table.Category:
			rows := []label{{kind: ofCategory, name: c.Name}}
			for _, w := range c.Words {
				rows = append(rows, label{kind: ofCategory, name: c.Name, part: w})
			}
			n.ids = append(n.ids, idColumn{c.Name, first, rows})
			first += len(rows)
		case table.Label:
			for _, w := range c.Words {
				n.outputs = append(n.outputs, label{kind: ofClass, name: w})
			}
		case table.Target:
			n.outputs = []label{{kind: ofTarget, name: c.Name}}
		}
	}
	return n
}

// none reports whether data have no names.
func (n names) none() bool {
	return len(n.values)+len(n.ids)+len(n.slots)+len(n.outputs)+len(n.words) == 0
}

// inputs returns the names of a sample's inputs, of all kinds.
func (n names) inputs() (out []label) {
	out = slices.Clone(n.values)
	for _, c := range n.ids {
		out = append(out, label{kind: ofColumn, name: c.name})
	}
	for _, s := range n.slots {
		out = append(out, label{kind: ofSlot, name: s})
	}
	return append(out, n.words...)
}

// rows returns the categories of all columns, except for missing values.
func (n names) rows() (out []label) {
	for _, c := range n.ids {
		for _, r := range c.rows {
			if r.part != "" {
				out = append(out, r)
			}
		}
	}
	return out
}

// without returns the labels of a that b lacks, in the order of a.
func without(a, b []label) (out []label) {
	has := map[label]bool{}
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

// unlike returns the names that b lacks, by kind, such as "class bee, wasp". It excludes categories
// of missing columns, and outputs unless they are mapped.
func (n names) unlike(b names, outputs bool) string {
	lacks := without(n.inputs(), b.inputs())
	for _, r := range without(n.rows(), b.rows()) {
		if !slices.Contains(lacks, label{kind: ofColumn, name: r.name}) {
			lacks = append(lacks, r)
		}
	}
	if outputs && len(n.words) == 0 {
		lacks = append(lacks, without(n.outputs, b.outputs)...)
	}
	var parts []string
	for _, kind := range []labelKind{ofColumn, ofCategory, ofSlot, ofClass, ofTarget, ofWord} {
		var of []string
		for _, l := range lacks {
			if l.kind == kind {
				of = append(of, l.String())
			}
		}
		if len(of) > 0 {
			parts = append(parts, string(kind)+" "+some(of))
		}
	}
	return strings.Join(parts, "; ")
}

// compare reports names that cannot be mapped: columns with another meaning, and data without a
// name in common. outputs reports that the last layer is mapped.
func compare(was, now data.Description, outputs bool) error {
	a, b := namesOf(was), namesOf(now)
	var errs []error
	if was.Encoder != nil && now.Encoder != nil {
		errs = append(errs, compareColumns(was.Encoder, now.Encoder)...)
	}
	if keysOf(was) != "" || keysOf(now) != "" {
		errs = append(errs, compareClicks(was, now)...)
	}
	if goal, other := goalOf(was), goalOf(now); outputs && goal != "" && other != "" && goal != other {
		errs = append(errs, fmt.Errorf("the checkpoint finds the %s, these data the %s: choose the same with %v and %v; %v leaves the last layer at its own first values",
			goal, other, setting.Path("data.target"), setting.Path("data.schema"), setting.Path("training.init-except")))
	}
	nothing := func(what string, old, new []label) {
		special := func(l label) bool { return l.kind == ofWord && (l.name == "<unk>" || l.name == "<eos>") }
		old, new = slices.DeleteFunc(slices.Clone(old), special), slices.DeleteFunc(slices.Clone(new), special)
		if len(old) > 0 && len(new) > 0 && len(without(new, old)) == len(new) {
			errs = append(errs, fmt.Errorf("no %s in common: the checkpoint has %s, these data %s", what, some(textsOf(old)), some(textsOf(new))))
		}
	}
	if len(b.words) > 0 {
		nothing("word", a.words, b.words)
	} else {
		nothing("column", a.inputs(), b.inputs())
	}
	if outputs && len(b.words) == 0 {
		nothing("class", a.outputs, b.outputs)
	}
	return errors.Join(errs...)
}

func textsOf(labels []label) (out []string) {
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
		case c.Kind == o.Kind && (c.Mean != o.Mean || c.Deviation != o.Deviation):
			errs = append(errs, fmt.Errorf("column %s: the checkpoint has the mean %s and deviation %s, these data were encoded with %s and %s: open them with data.Config.Previous", c.Name, quantity.Exact(o.Mean), quantity.Exact(o.Deviation), quantity.Exact(c.Mean), quantity.Exact(c.Deviation)))
		}
	}
	return errs
}

func isInput(k table.Kind) bool { return k == table.Number || k == table.Category }

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
		return []error{fmt.Errorf("the rows of the checkpoint's tables belong to %s, those of these data to %s", cmp.Or(x, "no keys"), cmp.Or(y, "no keys"))}
	}
	old := makings(was)
	for _, m := range makings(now) {
		i := slices.IndexFunc(old, func(o making) bool { return o.name == m.name })
		if i >= 0 && old[i] != m {
			errs = append(errs, fmt.Errorf("column %s: the checkpoint has it as %s, these data as %s, so that its values mean other rows or numbers", m.name, old[i].conversion, m.conversion))
		}
	}
	return errs
}

// making is the conversion of a column of clicks to keys or a number.
type making struct{ name, conversion string }

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

// meaningsOf returns a text for each input and output of a model, in order: its name, and how
// values become numbers or keys. Parameters without names of their own have the same meaning for
// two data with the same texts. Data without names have none.
func meaningsOf(d data.Description) (out []string) {
	n := namesOf(d)
	if n.none() {
		return nil
	}
	how := map[string]string{}
	if d.Encoder != nil {
		for _, c := range d.Encoder.Columns {
			if how[c.Name] = string(c.Kind); c.Kind == table.Number {
				how[c.Name] = fmt.Sprintf("number of mean %v and deviation %v", c.Mean, c.Deviation)
			}
		}
	} else if keysOf(d) != "" {
		for _, m := range makings(d) {
			how[m.name] = m.conversion
		}
	}
	for _, l := range n.inputs() {
		if l.kind != ofWord {
			out = append(out, strings.TrimSpace(l.name+" "+how[l.name]))
		}
	}
	out = append(out, many(ofCategory, n.rows())...)
	if out = append(out, many(ofWord, n.words)...); len(n.outputs) > 0 && n.outputs[0].kind == ofClass {
		out = append(out, many(ofClass, n.outputs)...)
	}
	if goal := goalOf(d); goal != "" {
		out = append(out, goal)
	}
	return out
}

// many returns one text for all labels of a kind, which may be numerous; none without labels.
func many(kind labelKind, labels []label) []string {
	if len(labels) == 0 {
		return nil
	}
	texts := textsOf(labels)
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return []string{fmt.Sprintf("%s %s (%x)", kind, some(texts), sum[:6])}
}

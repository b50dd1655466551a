package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Column is how an Encoder treats one column.
type Column struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Mean and Deviation are those of a number's or target's training rows: a model sees
	// (x-Mean)/Deviation, and 0 for a missing number.
	Mean      float64 `json:"mean,omitempty"`
	Deviation float64 `json:"deviation,omitempty"`
	// Words are a category's values, or the classes of a label, by number: a label's from 0; a
	// category's from 1, 0 being what is missing or was not seen in training.
	Words []string `json:"words,omitempty"`
	// Reason says why a column is ignored that nobody has said to ignore.
	Reason string `json:"why,omitempty"`

	first int32 // row of the embedding table that stands for what is missing
	codes map[string]int32
}

// Encoder turns rows of tables with the same columns into what a model takes.
type Encoder struct {
	// Columns are in the order of the table that it was made for, after those of Options.Previous
	// in the order there; ignored ones among them.
	Columns []Column `json:"columns"`

	surveys                   []*survey // of InferEncoder, by column; nil: it is ignored
	numbers, categories, rows int
	goal                      int // of Columns; -1: none
}

// Options is what a user says of a table.
type Options struct {
	// Target is the column to find; empty: the one of the schema that is a label or target; else
	// one called target, label, class or y; else the last one.
	Target string
	Schema Schema
	// Gather, where it is not nil, brings some bytes of this process to all that share the
	// encoding, each with a table of its own, and returns what each brought, the same to all: then
	// the encoding is that of all tables together. These have the same columns in the same order.
	// Every process calls InferEncoder.
	Gather func(own []byte) ([][]byte, error)
	// Previous is the encoder of the checkpoint that a run starts from. Its columns keep their
	// order, means and deviations, and decide the column to find and the kinds that Target and
	// Schema leave open. nil means that there is no such run. Processes that share an encoding have
	// the same one.
	Previous *Encoder
}

// goalOf is the name of the column to find.
func (c Options) goalOf(names []string) (string, error) {
	goal := c.Target
	for _, name := range slices.Sorted(maps(c.Schema)) {
		if k := c.Schema[name]; k == Label || k == Target {
			if goal != "" && goal != name {
				return "", fmt.Errorf("columns %q and %q are both to be found: want one label or target", goal, name)
			}
			goal = name
		}
	}
	if goal != "" {
		return goal, nil
	}
	for _, usual := range []string{"target", "label", "class", "y"} {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, usual) }); i >= 0 && c.Schema[names[i]] == guess {
			return names[i], nil
		}
	}
	for _, name := range slices.Backward(names) {
		if c.Schema[name] == guess {
			return name, nil
		}
	}
	return "", errors.New("no column is left to be found: name one")
}

// InferEncoder passes over a table and makes its encoder, by the schema and, for the rest, what the
// columns hold. Numbers with words among them and other doubts are errors. A column without a name
// is ignored. heldOut reports by a row's number that it is not to train on: no mean or category
// comes from it, but classes do. bad is as in Reader.Scan; a row with a word where the schema has a
// number, or without its label or target, is bad. A second pass may report a row again.
func InferEncoder(r Reader, choice Options, heldOut func(row int64) bool, bad func(error) error) (*Encoder, error) {
	choice = choice.continued(r.Columns())
	schema := Schema{}
	index := indexOf(r)
	if _, named := choice.Schema[index]; index != "" && !named && choice.Target != index {
		schema[index] = Ignore
	}
	for name, kind := range choice.Schema {
		schema[name] = kind
	}
	goal, err := Options{Target: choice.Target, Schema: schema}.goalOf(r.Columns())
	if err != nil {
		return nil, &Fault{File: r.Name(), Problem: err.Error()}
	}
	schema[goal] = choice.Schema[goal] // which the table must have
	switch schema[goal] {
	case guess, Label, Target:
	default:
		return nil, &Fault{File: r.Name(), Column: goal, Problem: fmt.Sprintf("it is to be found, and the schema calls it %s: want label or target", schema[goal])}
	}
	all, err := newSurveys(r, goal, schema)
	if err != nil {
		return nil, err
	}
	for again := all; again != nil; again = next(all) {
		all = again
		if err = take(r, all, heldOut, bad); err == nil && choice.Gather != nil {
			all, err = share(r.Name(), all, choice.Gather)
		}
		if err != nil {
			return nil, err
		}
		if all[0].Settled {
			break
		}
	}
	e := new(Encoder)
	for _, name := range r.Columns() {
		i := slices.IndexFunc(all, func(s *survey) bool { return s.Name == name })
		if i < 0 {
			c := Column{Name: name, Kind: Ignore}
			if _, named := choice.Schema[name]; !named {
				c.Reason = "an index"
			}
			e.Columns, e.surveys = append(e.Columns, c), append(e.surveys, nil)
			continue
		}
		c, err := all[i].column(r.Name())
		if err != nil {
			return nil, err
		}
		e.Columns, e.surveys = append(e.Columns, c), append(e.surveys, all[i])
	}
	e.keep(choice.Previous)
	return e, e.index(r.Name())
}

// indexOf is the name of the column in which pandas and R write the index of a table; "": there is
// none.
func indexOf(r Reader) string {
	if t, ok := r.(interface{ index() string }); ok {
		return t.index()
	}
	if name := "__index_level_0__"; slices.Contains(r.Columns(), name) { // of pandas, in Parquet
		return name
	}
	return ""
}

// column is how a surveyed column is encoded.
func (s *survey) column(file string) (c Column, err error) {
	c = Column{Name: s.Name}
	if s.Rows == 0 {
		return c, &Fault{File: file, Problem: "no rows to train on"}
	}
	if c.Kind, c.Reason, err = s.settle(); err != nil {
		return c, err
	}
	if err := s.check(file, c.Kind); err != nil {
		return c, err
	}
	switch c.Kind {
	case Number, Target:
		c.Mean, c.Deviation = s.Mean, s.deviation()
	case Category, Label:
		c.Words = s.allWords(c.Kind == Label)
	}
	if c.Kind == Label {
		err = s.checkClasses(file, c.Words)
	}
	return c, err
}

// index makes what encoding needs of Columns.
func (e *Encoder) index(file string) error {
	e.numbers, e.categories, e.rows, e.goal = 0, 0, 0, -1
	for i := range e.Columns {
		c := &e.Columns[i]
		switch c.Kind {
		case Number:
			e.numbers++
		case Category:
			c.first = int32(e.rows)
			e.categories++
			if e.rows += 1 + len(c.Words); e.rows > MaxRows {
				return &Fault{File: file, Problem: "more different categories than an embedding table has rows"}
			}
		case Label, Target:
			e.goal = i
		}
		c.codes = make(map[string]int32, len(c.Words))
		for k, w := range c.Words {
			c.codes[w] = int32(k)
		}
	}
	if e.numbers+e.categories == 0 {
		return &Fault{File: file, Problem: "no column is left that a model could learn from: " + e.String()}
	}
	return nil
}

// UnmarshalJSON reads what json.Marshal made of an encoder.
func (e *Encoder) UnmarshalJSON(text []byte) error {
	type plain Encoder
	var read plain
	if err := json.Unmarshal(text, &read); err != nil {
		return fmt.Errorf("the encoding of a table: %w", err)
	}
	*e = Encoder(read)
	goals := 0
	for _, c := range e.Columns {
		if c.Name == "" || !slices.Contains(kinds(), c.Kind) || (c.Kind == Number || c.Kind == Target) && !(c.Deviation > 0) {
			return fmt.Errorf("the encoding of a table: column %q of kind %q and deviation %s", c.Name, c.Kind, quantity.Exact(c.Deviation))
		}
		if c.Kind == Label || c.Kind == Target {
			goals++
		}
	}
	if goals > 1 {
		return fmt.Errorf("the encoding of a table: %d columns are to be found: want one at most", goals)
	}
	return e.index("the encoding of a table")
}

// Numbers is how many a sample has.
func (e *Encoder) Numbers() int { return e.numbers }

// Categories is how many a sample has.
func (e *Encoder) Categories() int { return e.categories }

// Rows is how many the embedding table has that all categories share.
func (e *Encoder) Rows() int { return e.rows }

// Goal is the label or target; ok is false where there is none.
func (e *Encoder) Goal() (c Column, ok bool) {
	if e.goal < 0 {
		return Column{}, false
	}
	return e.Columns[e.goal], true
}

// Schema is what the columns are for, to be given to a run that is to guess nothing.
func (e *Encoder) Schema() Schema {
	s := Schema{}
	for _, c := range e.Columns {
		s[c.Name] = c.Kind
	}
	return s
}

// String tells of all columns in one line.
func (e *Encoder) String() string {
	by := map[Kind][]string{}
	for _, c := range e.Columns {
		text := c.Name
		switch {
		case c.Kind == Category:
			text += fmt.Sprintf(" (%d)", len(c.Words))
		case c.Reason != "":
			text += " (" + c.Reason + ")"
		}
		by[c.Kind] = append(by[c.Kind], text)
	}
	var parts []string
	if c, ok := e.Goal(); ok && c.Kind == Label {
		parts = append(parts, fmt.Sprintf("finds %q, one of %d classes (%s)", c.Name, len(c.Words), some(c.Words, 5)))
	} else if ok {
		parts = append(parts, fmt.Sprintf("finds the number %q (mean %s, deviation %s, which is 1 in all figures)", c.Name, quantity.FloatDigits(c.Mean, 4), quantity.FloatDigits(c.Deviation, 4)))
	}
	for _, k := range []struct {
		kind Kind
		text string
	}{{Number, "from numbers: "}, {Category, "from categories: "}, {Ignore, "ignores "}} {
		if names := by[k.kind]; len(names) > 0 {
			parts = append(parts, k.text+some(names, 12))
		}
	}
	return strings.Join(parts, "; ")
}

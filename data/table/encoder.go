package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Column is the encoding of one column.
type Column struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Mean and Deviation are computed over the training rows of a number or target. A model
	// receives (x-Mean)/Deviation, and 0 for a missing number.
	Mean      float64 `json:"mean,omitempty"`
	Deviation float64 `json:"deviation,omitempty"`
	// Format is the notation of a number, target or date in text; empty: numbers with a decimal
	// point. Its values are those that follow a Kind.
	Format string `json:"format,omitempty"`
	// Parts lists the inputs of a date.
	Parts []Part `json:"parts,omitempty"`
	// Words lists the values of a category or the classes of a label by number: classes from 0,
	// categories from 1. Category 0 is a missing value or a value unseen in training.
	Words []string `json:"words,omitempty"`
	// MinCount is the smallest number of training rows in which a word must occur; 0: no limit.
	// Rarer words are category 0, too.
	MinCount int64 `json:"min_count,omitempty"`
	// Reason is why a column is ignored, if the schema does not ignore it.
	Reason string `json:"why,omitempty"`

	first int32 // row of the embedding table for a missing value
	codes map[string]int32
}

// Part is an input number of a date: days since 1970, year, month, weekday (1 is Monday) or hour.
type Part struct {
	Name string `json:"name"`
	// Mean and Deviation are computed over the training rows, as in Column.
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
}

// Encoder converts rows of tables with the same columns to a model's inputs.
type Encoder struct {
	// Columns lists all columns, also ignored ones: first the columns of Options.Previous in
	// Previous' order, then the other columns in table order.
	Columns []Column `json:"columns"`

	surveys                   []*survey // results of InferEncoder by column; nil: ignored
	numbers, categories, rows int
	goal                      int // index in Columns; -1: none
}

// Options holds the user's choices for a table.
type Options struct {
	// Target is the name of the column to predict. Empty: the label or target of the schema, else a
	// column named target, label, class or y, else the last column.
	Target string
	Schema Schema
	// MinCount is the smallest number of training rows in which a category's word must occur. Rarer
	// words are treated as values unseen in training. 0 means no limit.
	MinCount int
	// Gather, if not nil, sends bytes to all processes that share the encoding, each with a
	// separate table, and returns the bytes of all, in equal order on all. The encoding then covers
	// all tables. The tables need the same columns in the same order, and every process must call
	// InferEncoder.
	Gather func(own []byte) ([][]byte, error)
	// Previous is the encoder of the checkpoint with which a run starts. Its columns keep their
	// order, means and deviations; its column to predict and its kinds apply if Target and Schema
	// have none. nil: no such checkpoint. Processes that share an encoding need the same Previous.
	Previous *Encoder
	// Resumed reports that Previous is of the same run. Columns that Previous ignores by a guess
	// are then still ignored, even if this version of ringo would guess otherwise.
	Resumed bool
}

// goalOf returns the name of the goal's column.
func (c Options) goalOf(names []string) (string, error) {
	goal := c.Target
	for _, name := range slices.Sorted(maps.Keys(c.Schema)) {
		if k, _ := c.Schema[name].split(); k == Label || k == Target {
			if goal != "" && goal != name {
				return "", fmt.Errorf("columns %q and %q are both labels or targets: want one", goal, name)
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
	return "", errors.New("no column can be the label or target: name one")
}

// InferEncoder reads a table and returns its encoder. The schema decides the columns' kinds; for
// columns that it does not have, their values do. Numbers mixed with words and other ambiguities
// are errors. The row index of pandas or R, such as a first column without a name, is ignored
// unless the options name it. heldOut reports, by number, whether a row is excluded from training:
// the encoder then includes its class, but not its numbers and categories. bad is as in
// Reader.Scan; a row is bad without label or target, or with a word where the schema has a number.
// A second pass can report a row again.
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
	schema[goal] = choice.Schema[goal] // newSurveys checks that the table has this column
	switch base, _ := schema[goal].split(); base {
	case guess, Label, Target:
	default:
		return nil, &Fault{File: r.Name(), Column: goal, Problem: fmt.Sprintf("this column is the target, but its kind in the schema is %s: want label or target", schema[goal])}
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
				c.Reason = anIndex
			}
			e.Columns, e.surveys = append(e.Columns, c), append(e.surveys, nil)
			continue
		}
		c, err := all[i].column(r.Name(), int64(choice.MinCount))
		if err != nil {
			return nil, err
		}
		e.Columns, e.surveys = append(e.Columns, c), append(e.surveys, all[i])
	}
	if err := e.useIdentifiers(r.Name()); err != nil {
		return nil, err
	}
	e.keep(choice.Previous, choice.Resumed)
	return e, e.index(r.Name())
}

// useIdentifiers turns columns that identify rows into number inputs if the table has no other
// input, such as a table of two columns sorted by one.
func (e *Encoder) useIdentifiers(file string) (err error) {
	isInput := func(c Column) bool { return c.Kind == Number || c.Kind == Category || c.Kind == Date }
	if slices.ContainsFunc(e.Columns, isInput) {
		return nil
	}
	for i := range e.Columns {
		if e.Columns[i].Reason == anIdentifier {
			e.surveys[i].Kind = Number
			if e.Columns[i], err = e.surveys[i].column(file, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// anIndex is the reason to ignore a column without a name.
const anIndex = "an index"

// indexOf returns the column of the row index by pandas or R; "": none.
func indexOf(r Reader) string {
	if t, ok := r.(interface{ index() string }); ok {
		return t.index()
	}
	if name := "__index_level_0__"; slices.Contains(r.Columns(), name) { // pandas' index in Parquet
		return name
	}
	return ""
}

// column returns the encoding of a surveyed column. minCount is Options.MinCount.
func (s *survey) column(file string, minCount int64) (c Column, err error) {
	c = Column{Name: s.Name}
	if s.Rows == 0 {
		return c, &Fault{File: file, Problem: "no rows to train on"}
	}
	if c.Kind, c.Reason, err = s.settle(); err != nil {
		return c, err
	}
	c.Format = s.Format
	if err := s.check(file, c.Kind); err != nil {
		return c, err
	}
	switch c.Kind {
	case Number, Target:
		c.Mean, c.Deviation = s.Mean, s.deviation()
	case Date:
		c.Parts = s.Dates[s.Format].parts()
	case Category:
		c.Words, c.MinCount = s.words(false, minCount), minCount
	case Label:
		c.Words = s.words(true, 0)
	}
	if c.Kind == Label {
		err = s.checkClasses(file, c.Words)
	}
	return c, err
}

// index computes the fields derived from Columns.
func (e *Encoder) index(file string) error {
	e.numbers, e.categories, e.rows, e.goal = 0, 0, 0, -1
	for i := range e.Columns {
		c := &e.Columns[i]
		switch c.Kind {
		case Number:
			e.numbers++
		case Date:
			e.numbers += len(c.Parts)
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
		return &Fault{File: file, Problem: "no column remains as input of a model: " + e.String()}
	}
	return nil
}

// UnmarshalJSON reads the JSON of an encoder.
func (e *Encoder) UnmarshalJSON(text []byte) error {
	type plain Encoder
	var read plain
	if err := json.Unmarshal(text, &read); err != nil {
		return fmt.Errorf("the encoding of a table: %w", err)
	}
	*e = Encoder(read)
	goals := 0
	for _, c := range e.Columns {
		if c.Name == "" || !slices.Contains(kinds(), c.Kind) || (c.Kind == Number || c.Kind == Target) && !(c.Deviation > 0) || c.Kind.with(c.Format).check() != nil {
			return fmt.Errorf("the encoding of a table: column %q of kind %q and deviation %s", c.Name, c.Kind, quantity.Exact(c.Deviation))
		}
		if c.Kind == Label || c.Kind == Target {
			goals++
		}
		if err := c.checkParts(); err != nil {
			return err
		}
	}
	if goals > 1 {
		return fmt.Errorf("the encoding of a table: %d labels or targets: want at most one", goals)
	}
	return e.index("the encoding of a table")
}

// checkParts returns an error if a date column has invalid parts, as in a damaged file.
func (c *Column) checkParts() error {
	ok := (len(c.Parts) > 0) == (c.Kind == Date) && (c.Kind != Date || c.Format != "")
	for _, p := range c.Parts {
		ok = ok && slices.Contains(dateParts[:], p.Name) && p.Deviation > 1e-20 && p.Deviation < 1e20 && math.Abs(p.Mean) < 1e20
	}
	if !ok {
		return fmt.Errorf("the encoding of a table: column %q of kind %s has the format %q and the parts %v", c.Name, c.Kind, c.Format, c.Parts)
	}
	return nil
}

// Numbers returns the number of numbers per sample.
func (e *Encoder) Numbers() int { return e.numbers }

// Categories returns the number of categories per sample.
func (e *Encoder) Categories() int { return e.categories }

// Rows returns the number of rows of the embedding table shared by all categories.
func (e *Encoder) Rows() int { return e.rows }

// Goal returns the label or target; ok is false without one.
func (e *Encoder) Goal() (c Column, ok bool) {
	if e.goal < 0 {
		return Column{}, false
	}
	return e.Columns[e.goal], true
}

// Schema returns the kinds of all columns, for a run without guesses.
func (e *Encoder) Schema() Schema {
	s := Schema{}
	for _, c := range e.Columns {
		s[c.Name] = c.Kind.with(c.Format)
	}
	return s
}

// String describes all columns in one line.
func (e *Encoder) String() string {
	by := map[Kind][]string{}
	for _, c := range e.Columns {
		text := c.Name
		switch {
		case c.Kind == Category:
			text += fmt.Sprintf(" (%d)", len(c.Words))
		case c.Kind == Date:
			text += fmt.Sprintf(" (%s: %s)", c.Format, strings.Join(partNames(c), ", "))
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
	}{{Number, "from numbers: "}, {Date, "from dates: "}, {Category, "from categories: "}, {Ignore, "ignores "}} {
		if names := by[k.kind]; len(names) > 0 {
			parts = append(parts, k.text+some(names, 12))
		}
	}
	return strings.Join(parts, "; ")
}

// partNames returns the names of a date's inputs.
func partNames(c Column) (names []string) {
	for _, p := range c.Parts {
		names = append(names, p.Name)
	}
	return names
}

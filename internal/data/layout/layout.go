// Package layout says how the samples of click models lie in files: which columns of a line are a
// label, numbers, categories, bags of several values and sequences, and how each becomes a key or a
// number. A layout is YAML:
//
//	separator: tab          # tab, comma (quoted as RFC 4180 has it), semicolon, or one character; default: tab
//	header: true            # the first line names the columns, in any order; those that it has besides are ignored
//	columns:
//	  - {name: clicked, kind: label}
//	  - {name: price, kind: number, transform: log}
//	  - {name: item, kind: category, table: item}
//	  - {name: tags, kind: bag, separator: "|"}
//	  - {name: history, kind: sequence, separator: "|", table: item}
//
// Without a header all columns stand in their order, those that are not wanted with kind ignore.
// Ready ones are known by their names: see Names.
package layout

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Kind is what a column is for.
type Kind string

const (
	// Label is what a model is to find: 1 or 0, or with From 1 for numbers of at least that.
	Label Kind = "label"
	// Number is a value that a model sees as it is, or transformed; a missing one is 0.
	Number Kind = "number"
	// Category is one value, which becomes one key; a missing one is an empty bag.
	Category Kind = "category"
	// Bag is any number of values.
	Bag Kind = "bag"
	// Sequence is values whose order counts.
	Sequence Kind = "sequence"
	// Ignore leaves the column out.
	Ignore Kind = "ignore"
)

// Values of categories, bags and sequences are any text, of which the key is a hash; a
// hexadecimal number of at most 64 bits; or the key itself as a decimal number, whatever table it
// is of.
const (
	Text = "text"
	Hex  = "hex"
	Key  = "key"
)

// Column is one of a file's, or several that follow one another and are alike.
type Column struct {
	// Name is what the header calls it. Columns of Times have a number behind it, from 1.
	Name string `yaml:"name" json:"name,omitempty"`
	Kind Kind   `yaml:"kind" json:"kind,omitempty"`
	// Times is how many columns it stands for; 0: 1.
	Times int `yaml:"times" json:"times,omitempty"`
	// Transform of a number is "log", which is log(1+x), and 0 for x below 0, or "": none.
	Transform string `yaml:"transform" json:"transform,omitempty"`
	// From is the least number that is a label of 1; nil: labels are 0 and 1.
	From *float64 `yaml:"from" json:"from,omitempty"`
	// Separator stands between the values of a bag or sequence: one character; "": "|".
	Separator string `yaml:"separator" json:"separator,omitempty"`
	// Values are Text, for which "" stands, Hex or Key.
	Values string `yaml:"values" json:"values,omitempty"`
	// Table is whose rows the keys are of: columns with the same one have the same key for the same
	// value; "": one of its own, by its name.
	Table string `yaml:"table" json:"table,omitempty"`
	// Make says what a slot is like in rows that are made; files are read without it.
	Make Generate `yaml:"make" json:"make,omitzero"`
}

// Generate is what values of a category, bag or sequence are made like, for measurements and tests
// of tables that are as large and as hot as one's own. Zeros leave it to who makes them. It has no
// part in what samples mean.
type Generate struct {
	// Values are how many distinct ones the column's table has; of columns with one table the first
	// one says it.
	Values uint64 `yaml:"values" json:"values,omitempty"`
	// Zipf is the exponent of the law of how often each comes.
	Zipf float64 `yaml:"zipf" json:"zipf,omitempty"`
	// Least and Most are how many a bag or sequence has, each number as likely. Both are 0: that is
	// not said.
	Least int `yaml:"least" json:"least,omitempty"`
	Most  int `yaml:"most" json:"most,omitempty"`
}

// Slotted reports whether the column's values become keys.
func (c Column) Slotted() bool { return c.Kind == Category || c.Kind == Bag || c.Kind == Sequence }

// Layout is how samples lie in files.
type Layout struct {
	Separator string   `yaml:"separator" json:"separator"`
	Header    bool     `yaml:"header" json:"header,omitempty"`
	Columns   []Column `yaml:"columns" json:"columns"` // each standing for one
	name      string
}

// Limits of what a layout may ask for.
const (
	maxBytes   = 1 << 20
	maxColumns = 1 << 12
	MaxFields  = 1 << 14 // of a line, named or not
	maxMade    = 1 << 20 // values of a bag
	maxTables  = 254     // of hexadecimal values, whose keys have 8 bits for the table
)

//go:embed ready/*.yaml
var ready embed.FS

// Names are the ready layouts.
func Names() (names []string) {
	files, err := ready.ReadDir("ready")
	if err != nil {
		panic(err) // it is in the binary
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// Open reads the layout that a file has, or a ready one by its name.
func Open(name string) (*Layout, error) {
	if slices.Contains(Names(), name) {
		f, err := ready.Open(path.Join("ready", name+".yaml"))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return Read(name, f)
	}
	f, err := pathname.Open(name)
	if err != nil {
		if !strings.ContainsAny(name, "./") {
			return nil, fmt.Errorf("%w%s; ready layouts are %s", err, spelling.Hint(name, Names()...), strings.Join(Names(), ", "))
		}
		return nil, err
	}
	defer f.Close()
	return Read(name, f)
}

// Read reads a layout. Errors name the file, all faults together.
func Read(name string, r io.Reader) (*Layout, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("%s: it is longer than %d bytes: is it a layout of columns?", name, maxBytes)
	}
	l := Layout{name: name}
	lines, err := l.decode(text)
	if err == nil {
		err = l.settle(lines)
	}
	if err != nil {
		return nil, err
	}
	return &l, nil
}

// decode reads YAML and returns the line of each column.
func (l *Layout) decode(text []byte) (lines []int, err error) {
	plain := func(err error) error {
		return fmt.Errorf("%s: %s", l.name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil // an empty file
	} else if err != nil {
		return nil, plain(err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: a second document: want one, without a line of ---", l.name)
	}
	c := checker{file: l.name}
	c.value(doc.Content[0], reflect.TypeFor[Layout](), "the layout")
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	if err := doc.Decode(l); err != nil {
		return nil, plain(err)
	}
	for i, n := range doc.Content[0].Content {
		if i > 0 && doc.Content[0].Content[i-1].Value == "columns" {
			for _, column := range n.Content {
				lines = append(lines, column.Line)
			}
		}
	}
	return lines, nil
}

// settle gives every column its own place, fills in what zero values stand for, and reports all
// faults. lines are those of the columns in the file, if it is one.
func (l *Layout) settle(lines []int) error {
	var errs []error
	where := l.name
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{where}, args...)...))
	}
	switch l.Separator {
	case "", "tab":
		l.Separator = "\t"
	case "comma":
		l.Separator = ","
	case "semicolon":
		l.Separator = ";"
	}
	if len(l.Separator) != 1 || strings.ContainsAny(l.Separator, "\"\r\n") {
		fault("separator %q: want tab, comma, semicolon or one character", l.Separator)
	}
	var all []Column
	for i, c := range l.Columns {
		if i < len(lines) {
			where = fmt.Sprintf("%s: line %d", l.name, lines[i])
		}
		if c.Name == "" && c.Kind != Ignore {
			fault("column %d has no name", i+1)
		}
		if c.Times < 0 || max(1, c.Times) > maxColumns-len(all) {
			fault("column %q: %d times: want at least 1, and %d columns at most", c.Name, c.Times, maxColumns)
			continue
		}
		times := c.Times
		c.Times = 0
		for k := range max(1, times) {
			own := c
			if times > 0 && c.Name != "" {
				own.Name = fmt.Sprintf("%s%d", c.Name, k+1)
			}
			own.settle(l.Separator, fault)
			all = append(all, own)
		}
	}
	l.Columns, where = all, l.name
	l.check(fault)
	return errors.Join(errs...)
}

// settle fills in what zero values stand for.
func (c *Column) settle(between string, fault func(string, ...any)) {
	kinds := []Kind{Label, Number, Category, Bag, Sequence, Ignore}
	if !slices.Contains(kinds, c.Kind) {
		fault("column %q is to be %q: want label, number, category, bag, sequence or ignore", c.Name, c.Kind)
	}
	several := c.Kind == Bag || c.Kind == Sequence
	if several && c.Separator == "" {
		c.Separator = "|"
	}
	if several && (len(c.Separator) != 1 || strings.ContainsAny(c.Separator, "\"\r\n"+between)) || !several && c.Separator != "" {
		fault("column %q, separator %q: bags and sequences have one character that is not what separates columns", c.Name, c.Separator)
	}
	if c.Transform != "" && (c.Kind != Number || c.Transform != "log") {
		fault("column %q, transform %q: numbers have log, or none", c.Name, c.Transform)
	}
	if c.From != nil && c.Kind != Label {
		fault("column %q: from is for a label", c.Name)
	}
	if m := c.Make; m != (Generate{}) && !c.Slotted() || !several && m.Most > 0 || m.Least < 0 || m.Most < m.Least || m.Most > maxMade || !(m.Zipf >= 0) {
		fault("column %q, make: values %d, zipf %s, least %d, most %d: categories, bags and sequences have values and zipf; bags and sequences from least to most of them, at most %d", c.Name, m.Values, quantity.Exact(m.Zipf), m.Least, m.Most, maxMade)
	}
	if c.Slotted() {
		if c.Values == "" {
			c.Values = Text
		}
		if c.Table == "" {
			c.Table = c.Name
		}
	}
	if c.Slotted() != (c.Table != "") || c.Slotted() != slices.Contains([]string{Text, Hex, Key}, c.Values) {
		fault("column %q, values %q of table %q: categories, bags and sequences have text, hex or key", c.Name, c.Values, c.Table)
	}
}

// check reports what is wrong with the columns together.
func (l *Layout) check(fault func(string, ...any)) {
	names, labels, tables, values := map[string]bool{}, 0, map[string]bool{}, map[string]string{}
	for _, c := range l.Columns {
		if names[c.Name] && c.Name != "" {
			fault("column %q is there twice", c.Name)
		}
		if names[c.Name] = true; c.Kind == Label {
			labels++
		}
		if c.Values == Hex {
			tables[c.Table] = true
		}
		if v, ok := values[c.Table]; c.Slotted() && ok && v != c.Values {
			fault("column %q has %s values of table %q, and a column before it has %s: keys of one table are made alike", c.Name, c.Values, c.Table, v)
		} else if c.Slotted() {
			values[c.Table] = c.Values
		}
	}
	if labels != 1 {
		fault("%d columns are labels: want one", labels)
	}
	if len(tables) > maxTables {
		fault("%d tables of hexadecimal values: want at most %d", len(tables), maxTables)
	}
	if !slices.ContainsFunc(l.Columns, func(c Column) bool { return c.Slotted() }) {
		fault("no column is a category, bag or sequence: a table such as my.csv needs no layout")
	}
}

// Name is the file's, or that of a ready one.
func (l *Layout) Name() string { return l.name }

// Of are the columns of a kind of use: slots or not, in their order.
func (l *Layout) Of(is func(Column) bool) (out []Column) {
	for _, c := range l.Columns {
		if is(c) {
			out = append(out, c)
		}
	}
	return out
}

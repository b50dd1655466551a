// Package layout describes files with samples of click models: the columns of a line (label,
// numbers, categories, bags of values, sequences) and their conversion to keys or numbers. A layout
// is YAML:
//
//	separator: tab          # tab, comma (quoted by RFC 4180), semicolon, or one character; default: tab
//	header: true            # the first line names the columns, in any order; other columns are ignored
//	columns:
//	  - {name: clicked, kind: label}
//	  - {name: price, kind: number, transform: log}
//	  - {name: item, kind: category, table: item}
//	  - {name: tags, kind: bag, separator: "|"}
//	  - {name: history, kind: sequence, separator: "|", table: item}
//
// Without a header the layout lists all columns in file order; kind ignore skips a column. Names
// lists the built-in layouts.
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

// Kind is the use of a column.
type Kind string

const (
	// Label is the target, 1 or 0. With From, numbers of at least From are 1.
	Label Kind = "label"
	// Number is an input value, optionally transformed. A missing value is 0.
	Number Kind = "number"
	// Category is one value with one key. A missing value is an empty bag.
	Category Kind = "category"
	// Bag is any number of values.
	Bag Kind = "bag"
	// Sequence is any number of values in a significant order.
	Sequence Kind = "sequence"
	// Ignore skips the column.
	Ignore Kind = "ignore"
)

// Column.Values is the format of categories, bags and sequences: Text is hashed to a key; Hex is a
// hexadecimal number of at most 64 bits; Key is the key in decimal, independent of the table.
const (
	Text = "text"
	Hex  = "hex"
	Key  = "key"
)

// Column is one column of a file, or several successive columns of the same kind.
type Column struct {
	// Name is the column's name in the header. With Times, a number from 1 is appended.
	Name string `yaml:"name" json:"name,omitempty"`
	Kind Kind   `yaml:"kind" json:"kind,omitempty"`
	// Times is the number of columns. 0 means 1.
	Times int `yaml:"times" json:"times,omitempty"`
	// Transform of a number is "log", log(1+x) with 0 for x below 0, or "" for no transform.
	Transform string `yaml:"transform" json:"transform,omitempty"`
	// From is the smallest number with label 1. nil: labels are 0 and 1.
	From *float64 `yaml:"from" json:"from,omitempty"`
	// Separator is the character between the values of a bag or sequence. "" means "|".
	Separator string `yaml:"separator" json:"separator,omitempty"`
	// Values is Text, Hex or Key. "" means Text.
	Values string `yaml:"values" json:"values,omitempty"`
	// Table names the embedding table. Columns of one table have equal keys for equal values. ""
	// means a separate table with the column's name.
	Table string `yaml:"table" json:"table,omitempty"`
	// Make configures generated values. Readers of files ignore the field.
	Make Generate `yaml:"make" json:"make,omitzero"`
}

// Generate describes generated values of a category, bag or sequence, so that measurements and
// tests can imitate the size and skew of a real table. Zero fields mean the generator's defaults.
// The meaning of samples does not depend on Generate.
type Generate struct {
	// Values is the number of distinct values of the column's table. The first column of a table
	// sets the number.
	Values uint64 `yaml:"values" json:"values,omitempty"`
	// Zipf is the exponent of the values' frequencies.
	Zipf float64 `yaml:"zipf" json:"zipf,omitempty"`
	// Least and Most limit the values of a bag or sequence; all lengths are equally probable. Both
	// 0 means unset.
	Least int `yaml:"least" json:"least,omitempty"`
	Most  int `yaml:"most" json:"most,omitempty"`
}

// Slotted reports whether the column's values become keys.
func (c Column) Slotted() bool { return c.Kind == Category || c.Kind == Bag || c.Kind == Sequence }

// Layout describes the samples of a file.
type Layout struct {
	Separator string   `yaml:"separator" json:"separator"`
	Header    bool     `yaml:"header" json:"header,omitempty"`
	Columns   []Column `yaml:"columns" json:"columns"` // Times is expanded: one entry per column
	name      string
	// Kept names a column: parsed rows retain its text. "" means none. Files do not set Kept.
	Kept string `json:"-"`
}

// Limits of a layout.
const (
	maxBytes   = 1 << 20
	maxColumns = 1 << 12
	MaxFields  = 1 << 14 // fields of a line, with or without a name
	maxMade    = 1 << 20 // largest Generate.Most
	maxTables  = 254     // tables of hexadecimal values: a table's number has 8 bits of a key
)

//go:embed ready/*.yaml
var ready embed.FS

// Names returns the names of the built-in layouts.
func Names() (names []string) {
	files, err := ready.ReadDir("ready")
	if err != nil {
		panic(err) // impossible: the folder is embedded
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// Open reads a layout from a file, or a built-in layout by name.
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

// Read reads a layout. The error lists all errors, with name as the file.
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
		return nil, nil // empty file
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

// settle expands Times, fills in defaults and reports all errors. lines are the columns' lines in
// the file; nil without a file.
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

// settle fills in a column's defaults and reports invalid values. between separates columns.
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

// check reports conflicts between columns.
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

// Name returns the file's name or the name of a built-in layout.
func (l *Layout) Name() string { return l.name }

// Of returns the columns accepted by is, in order.
func (l *Layout) Of(is func(Column) bool) (out []Column) {
	for _, c := range l.Columns {
		if is(c) {
			out = append(out, c)
		}
	}
	return out
}

// Package jobfile reads and writes the settings of a job as YAML: a group is a mapping, a setting a
// key.
//
//	model: mnist
//	training:
//	  batch: 32
//	servers:
//	  durability: wal
//
// A key may also be a path, such as "ps.durability". The setting table checks names and values;
// errors have file and line as their origin.
package jobfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ringo-ml/ringo/internal/setting"
)

// MaxBytes is the maximum size of a job file, maxDepth the maximum nesting of its groups.
const (
	MaxBytes = 1 << 20
	maxDepth = 8
)

// Error is an error at a line of a file.
type Error struct {
	File string
	Line int // 1 is the first; 0 means the whole file
	Err  error
}

// Error puts file and line first, as compilers do.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Read returns the assignments of a file in order, with file and line as origins. name is the
// file's name in origins and errors. Read reports every error of the file: duplicate keys, values
// other than scalars and lists of scalars, anchors, several documents, more than MaxBytes.
func Read(name string, from io.Reader) ([]setting.Assignment, error) {
	text, err := io.ReadAll(io.LimitReader(from, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("it is longer than %d bytes: is it a job file?", MaxBytes)
	}
	if err != nil {
		return nil, &Error{File: name, Err: err}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil // an empty file
	case err != nil:
		return nil, &Error{File: name, Err: plain(err)}
	}
	r := reader{file: name, lines: map[setting.Path]int{}}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		r.fault(more.Line, "a second document: want one, without a line of ---")
	}
	r.group(doc.Content[0], "", 0)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return r.out, nil
}

// plain removes the prefix of an error of the YAML library.
func plain(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "yaml: ")) }

// reader walks a document.
type reader struct {
	file  string
	out   []setting.Assignment
	lines map[setting.Path]int // line of the first assignment
	errs  []error
}

func (r *reader) fault(line int, format string, args ...any) {
	r.errs = append(r.errs, &Error{File: r.file, Line: line, Err: fmt.Errorf(format, args...)})
}

// group reads a mapping of settings and groups below a path.
func (r *reader) group(n *yaml.Node, path setting.Path, depth int) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null": // only comments
		return
	case n.Kind != yaml.MappingNode:
		r.fault(n.Line, "%s: want settings as NAME: VALUE", at(path))
		return
	case depth == maxDepth:
		r.fault(n.Line, "%s: groups lie more than %d deep", at(path), maxDepth)
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Value == "" || key.Tag == "!!merge" {
			r.fault(key.Line, "%s: want the name of a setting or a group", at(path))
			continue
		}
		name := setting.Path(key.Value)
		if path != "" {
			name = path + "." + name
		}
		r.value(key.Line, name, value, depth)
	}
}

// at returns a group's name for an error.
func at(path setting.Path) string {
	if path == "" {
		return "the file"
	}
	return string(path)
}

// value reads the value of a key.
func (r *reader) value(line int, name setting.Path, n *yaml.Node, depth int) {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		r.fault(line, "%s: anchors and aliases are not read: write the value out", name)
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		r.group(n, name, depth+1)
	case yaml.SequenceNode:
		r.list(line, name, n)
	case yaml.ScalarNode:
		if text, ok := r.scalar(line, name, n); ok {
			r.assign(line, name, text)
		}
	}
}

// scalar returns the text of a value. The setting decides the type, not YAML.
func (r *reader) scalar(line int, name setting.Path, n *yaml.Node) (string, bool) {
	if n.Tag == "!!null" {
		r.fault(line, "%s: the value is missing; an empty one is written \"\"", name)
		return "", false
	}
	if n.Style&yaml.TaggedStyle != 0 {
		r.fault(line, "%s: %s: want a plain value without a tag", name, n.Tag)
		return "", false
	}
	return n.Value, true
}

// list assigns a sequence of scalars, joined with commas.
func (r *reader) list(line int, name setting.Path, n *yaml.Node) {
	var parts []string
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode || c.Anchor != "" || strings.Contains(c.Value, ",") {
			r.fault(c.Line, "%s: want a list of values without commas", name)
			return
		}
		text, ok := r.scalar(c.Line, name, c)
		if !ok {
			return
		}
		parts = append(parts, text)
	}
	r.assign(line, name, strings.Join(parts, ","))
}

func (r *reader) assign(line int, name setting.Path, text string) {
	if first, twice := r.lines[name]; twice {
		r.fault(line, "%s is given twice: first on line %d", name, first)
		return
	}
	r.lines[name] = line
	r.out = append(r.out, setting.Assignment{Path: name, Text: text, Origin: setting.Origin(fmt.Sprintf("%s:%d", r.file, line))})
}

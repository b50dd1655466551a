package layout

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// checker collects the errors of YAML values that do not match a Go type, with lines of the file.
type checker struct {
	file string
	errs []error
}

func (c *checker) fault(n *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: line %d: %s", c.file, n.Line, fmt.Sprintf(format, args...)))
}

// value checks a value against type t; at names the value in errors.
func (c *checker) value(n *yaml.Node, t reflect.Type, at string) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		c.fault(n, "%s: anchors and aliases are not read: write the value out", at)
		return
	}
	if n.Tag == "!!null" {
		return
	}
	want := ""
	var err error
	switch t.Kind() {
	case reflect.Pointer:
		c.value(n, t.Elem(), at)
		return
	case reflect.Struct:
		if n.Kind == yaml.MappingNode {
			c.fields(n, t, at)
			return
		}
		want = "fields " + strings.Join(fieldsOf(t), ", ")
	case reflect.Slice:
		for _, e := range n.Content {
			if n.Kind == yaml.SequenceNode {
				c.value(e, t.Elem(), "an entry of "+at)
			}
		}
		if n.Kind == yaml.SequenceNode {
			return
		}
		want = "a list"
	case reflect.Bool:
		if want = "true or false"; n.Tag != "!!bool" {
			err = strconv.ErrSyntax
		}
	case reflect.Float64:
		want = "a number"
		_, err = strconv.ParseFloat(n.Value, 64)
	case reflect.Int:
		want = "a whole number"
		_, err = strconv.ParseInt(n.Value, 0, 0)
	case reflect.Uint64:
		want = "a whole number of at least 0"
		_, err = strconv.ParseUint(n.Value, 0, 64)
	default:
		want = "a text"
	}
	switch {
	case n.Kind != yaml.ScalarNode:
		c.fault(n, "%s: want %s", at, want)
	case err != nil || t.Kind() == reflect.Struct || t.Kind() == reflect.Slice:
		c.fault(n, "%s: %.40q: want %s", at, n.Value, want)
	}
}

// fields checks a mapping against the fields of a struct.
func (c *checker) fields(n *yaml.Node, t reflect.Type, at string) {
	known := fieldsOf(t)
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := slices.Index(known, key.Value)
		switch {
		case field < 0:
			c.fault(key, "%s has no field %.40q%s; the fields are %s", at, key.Value, spelling.Hint(key.Value, known...), strings.Join(known, ", "))
		case seen[key.Value]:
			c.fault(key, "field %q is given twice", key.Value)
		default:
			seen[key.Value] = true
			c.value(value, t.Field(field).Type, fmt.Sprintf("field %q", key.Value))
		}
	}
}

// fieldsOf returns the YAML names of a struct's fields. Fields with a name precede the fields
// without.
func fieldsOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

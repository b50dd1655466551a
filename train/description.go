package train

import (
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// maxDescription is how many bytes of names (classes, words, categories) a checkpoint's header has
// room for, with others' need.
const maxDescription = 7 << 20

// describe takes down what the data are, for checkpoints.
func (d *runData) describe() error {
	about := d.set.Description()
	if name, ok := unsafeText(reflect.ValueOf(about)); !ok && d.cfg.Checkpoint.Dir != "" {
		return fmt.Errorf("checkpoint: data set %s: the name %q is not UTF-8, and a checkpoint could not restore it: rename it", d.set.Name, name)
	}
	text, err := json.Marshal(about)
	if err != nil {
		return fmt.Errorf("what the data are cannot be saved: %w", err)
	}
	if len(text) > maxDescription && d.cfg.Checkpoint.Dir != "" {
		return fmt.Errorf("the names of classes, words and categories are %d bytes, and checkpoints have room for %d: leave out columns with data.schema, such as id=ignore", len(text), maxDescription)
	}
	d.description = string(text)
	d.cfg.about = &about
	return nil
}

// unsafeText returns the first text of a value that JSON would change, because it is not UTF-8; ok:
// there is none.
func unsafeText(v reflect.Value) (text string, ok bool) {
	switch v.Kind() {
	case reflect.String:
		return v.String(), utf8.ValidString(v.String())
	case reflect.Pointer:
		if !v.IsNil() {
			return unsafeText(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if text, ok := unsafeText(v.Index(i)); !ok {
				return text, false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if text, ok := unsafeText(v.Field(i)); !ok && v.Type().Field(i).IsExported() {
				return text, false
			}
		}
	}
	return "", true
}

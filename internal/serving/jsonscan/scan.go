// Package jsonscan reads the parts of a JSON text in place: no value is copied, names are unique,
// and the depth is bounded. It serves decoders of requests, whose size clients choose.
//
//	if err := jsonscan.Check(text); err != nil { … }
//	err := jsonscan.Object(text, func(name string, value []byte) error { … })
//
// All functions but Check need a text that Check has accepted.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth is the largest number of nested arrays and objects: a batch of images in channels is 6.
const maxDepth = 32

// Check returns an error for a text that is no JSON value, is not UTF-8 or is nested too deeply.
func Check(text []byte) error {
	if !json.Valid(text) {
		var value json.RawMessage
		err := json.Unmarshal(text, &value)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			return fmt.Errorf("byte %d of the body: no JSON: %w", syntax.Offset, err)
		}
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	if !utf8.Valid(text) {
		return errors.New("the body is not UTF-8")
	}
	depth := 0
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = stringEnd(text, at) - 1
		case '[', '{':
			if depth++; depth > maxDepth {
				return fmt.Errorf("byte %d of the body: more than %d nested arrays and objects", at+1, maxDepth)
			}
		case ']', '}':
			depth--
		}
	}
	return nil
}

// Kind returns the name of a value's type: object, array, string, number, boolean or null.
func Kind(value []byte) string {
	switch value[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// Trim returns the value without white space around it.
func Trim(text []byte) []byte { return bytes.Trim(text, " \t\r\n") }

// Object calls visit with the names and values of an object, in order. A repeated name is an error,
// because it has two meanings.
func Object(value []byte, visit func(name string, value []byte) error) error {
	seen := map[string]bool{}
	for at := skip(value, 1); value[at] != '}'; {
		end := stringEnd(value, at)
		name := String(value[at:end])
		if seen[name] {
			return fmt.Errorf("%q occurs twice", name)
		}
		seen[name] = true
		at = skip(value, skip(value, end)+1) // after the colon
		end = valueEnd(value, at)
		if err := visit(name, value[at:end]); err != nil {
			return err
		}
		at = next(value, end)
	}
	return nil
}

// Array calls visit with the values of an array, in order.
func Array(value []byte, visit func(value []byte) error) error {
	for at := skip(value, 1); value[at] != ']'; {
		end := valueEnd(value, at)
		if err := visit(value[at:end]); err != nil {
			return err
		}
		at = next(value, end)
	}
	return nil
}

// String returns the text of a string value.
func String(value []byte) string {
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	var text string
	_ = json.Unmarshal(value, &text) // checked before
	return text
}

// Show returns the beginning of a value, for errors.
func Show(value []byte) string {
	const most = 40
	if len(value) <= most {
		return string(value)
	}
	return string(bytes.ToValidUTF8(value[:most], nil)) + "…"
}

// skip returns the position of the next byte that is no white space.
func skip(text []byte, at int) int {
	for text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n' {
		at++
	}
	return at
}

// next returns the position of the next value, or of the closing bracket, from the end of a value.
func next(text []byte, at int) int {
	if at = skip(text, at); text[at] == ',' {
		at = skip(text, at+1)
	}
	return at
}

// stringEnd returns the position after the string at a position.
func stringEnd(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// valueEnd returns the position after the value at a position.
func valueEnd(text []byte, at int) int {
	for depth := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			if at = stringEnd(text, at); depth == 0 {
				return at
			}
			at--
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return at + 1
			} else if depth < 0 {
				return at
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return at
			}
		}
	}
	return at
}

// Only returns the only value of an array, or nil for an array of another length.
func Only(value []byte) (only []byte) {
	n := 0
	_ = Array(value, func(v []byte) error { only = v; n++; return nil })
	if n != 1 {
		return nil
	}
	return only
}

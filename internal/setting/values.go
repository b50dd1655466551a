package setting

import (
	"encoding"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/spelling"
)

// Value reads and writes a field as text. Set accepts the output of String, and leaves the field
// unchanged on error.
type Value interface {
	Set(text string) error
	String() string
}

// Integer is the constraint of whole numbers.
type Integer interface {
	~int | ~int32 | ~int64 | ~uint | ~uint32 | ~uint64
}

// Int is a whole number, in decimal.
func Int[T Integer](field *T) Value {
	var zero T
	parse := parseSigned[T]
	if zero-1 > 0 {
		parse = parseUnsigned[T]
	}
	return bound[T]{field, parse, func(v T) string { return fmt.Sprint(v) }}
}

func parseSigned[T Integer](text string) (T, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || int64(T(n)) != n {
		return 0, fmt.Errorf("want a whole number")
	}
	return T(n), nil
}

func parseUnsigned[T Integer](text string) (T, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || uint64(T(n)) != n {
		return 0, fmt.Errorf("want a whole number, 0 or more")
	}
	return T(n), nil
}

// Float is a number other than NaN.
func Float(field *float64) Value {
	return bound[float64]{field, func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || v != v {
			return 0, fmt.Errorf("want a number")
		}
		return v, nil
	}, func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }}
}

// Bool is true or false.
func Bool(field *bool) Value {
	return choice[bool]{bound[bool]{field, func(text string) (bool, error) {
		switch text {
		case "true", "false":
			return text == "true", nil
		}
		return false, fmt.Errorf("want true or false")
	}, strconv.FormatBool}, []string{"true", "false"}}
}

// Text is any text.
func Text[T ~string](field *T) Value {
	return bound[T]{field, func(text string) (T, error) { return T(text), nil }, func(v T) string { return string(v) }}
}

// Choice is a word of known. An error suggests the nearest word. "" in known leaves the choice to
// the program.
func Choice[T ~string](field *T, known ...T) Value {
	var words []string
	for _, k := range known {
		if k != "" {
			words = append(words, string(k))
		}
	}
	return choice[T]{bound[T]{field, func(text string) (T, error) {
		if slices.Contains(known, T(text)) {
			return T(text), nil
		}
		return "", fmt.Errorf("want one of %s%s", strings.Join(words, ", "), spelling.Hint(text, words...))
	}, func(v T) string { return string(v) }}, words}
}

// Known returns the words of a Choice, true and false of a Bool, and nil of other values.
func Known(v Value) []string {
	if c, ok := v.(interface{ known() []string }); ok {
		return c.known()
	}
	return nil
}

// choice is a field with a fixed set of words.
type choice[T any] struct {
	bound[T]
	words []string
}

func (c choice[T]) known() []string { return c.words }

// Duration is a time with a unit, such as 1m30s.
func Duration(field *time.Duration) Value {
	return bound[time.Duration]{field, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("want a time with its unit, such as 30s, 10m or 500ms")
		}
		return d, nil
	}, time.Duration.String}
}

// List is a list of texts, separated by commas. Empty text is an empty list.
func List(field *[]string) Value {
	return bound[[]string]{field, func(text string) ([]string, error) {
		if text == "" {
			return nil, nil
		}
		parts := strings.Split(text, ",")
		for i, p := range parts {
			if parts[i] = strings.TrimSpace(p); parts[i] == "" {
				return nil, fmt.Errorf("want values separated by commas, none of them empty")
			}
		}
		return parts, nil
	}, func(v []string) string { return strings.Join(v, ",") }}
}

// Parsed is a field of any type with the given conversions. An error of parse describes valid
// texts; the caller adds the text.
func Parsed[T any](field *T, parse func(text string) (T, error), write func(T) string) Value {
	return bound[T]{field, parse, write}
}

// Textual is a field with a text encoding of its type.
func Textual(field interface {
	encoding.TextMarshaler
	encoding.TextUnmarshaler
}) Value {
	return textual{field}
}

// bound is a field and the conversions of its type.
type bound[T any] struct {
	field *T
	parse func(string) (T, error)
	write func(T) string
}

// Set leaves the field unchanged on error.
func (b bound[T]) Set(text string) error {
	v, err := b.parse(text)
	if err == nil {
		*b.field = v
	}
	return err
}

// String returns text that Set accepts.
func (b bound[T]) String() string { return b.write(*b.field) }

type textual struct {
	field interface {
		encoding.TextMarshaler
		encoding.TextUnmarshaler
	}
}

// Set leaves the field unchanged on error.
func (t textual) Set(text string) error {
	before := t.String()
	err := t.field.UnmarshalText([]byte(text))
	if err != nil {
		_ = t.field.UnmarshalText([]byte(before)) // valid: output of MarshalText
	}
	return err
}

// String returns the output of MarshalText, or the text of its error.
func (t textual) String() string {
	b, err := t.field.MarshalText()
	if err != nil {
		return err.Error()
	}
	return string(b)
}

package setting

import (
	"errors"
	"fmt"
	"strings"
)

// Error is what is wrong with one setting. Its text names settings by their paths; Text names them
// otherwise.
type Error struct {
	Path   Path
	Origin Origin // where the value was given, if that is known

	format string
	args   []any
}

// Errorf returns a fault of a setting: its name, a space, and what the format says. Arguments that
// are Paths are names of settings, too. Without a path it is what the format says alone, such as
// advice that names settings.
func Errorf(p Path, format string, args ...any) *Error {
	return &Error{Path: p, format: format, args: args}
}

// Error names settings by their paths.
func (f *Error) Error() string { return f.Text(func(p Path) string { return string(p) }) }

// Text names settings as name says.
func (f *Error) Text(name func(Path) string) string {
	args := make([]any, len(f.args))
	for i, a := range f.args {
		if p, ok := a.(Path); ok {
			a = name(p)
		}
		args[i] = a
	}
	text := fmt.Errorf(f.format, args...).Error()
	if f.Path == "" {
		return text
	}
	return name(f.Path) + " " + text
}

// Unwrap returns the error among the arguments, if there is one.
func (f *Error) Unwrap() error {
	for _, a := range f.args {
		if err, ok := a.(error); ok {
			return err
		}
	}
	return nil
}

// ErrorList are several.
type ErrorList []*Error

// Err joins them; nil without any.
func (l ErrorList) Err() error {
	errs := make([]error, len(l))
	for i, f := range l {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// Lines are the faults that err joins, a line each, with settings named as name says. What is no
// Error keeps its text.
func Lines(err error, name func(Path) string) []string {
	return Format(err, func(f *Error) string { return f.Text(name) })
}

// Format is Lines with the whole text of an Error as tell says.
func Format(err error, tell func(*Error) string) (lines []string) {
	if err == nil {
		return nil
	}
	text := err.Error()
	if all, ok := err.(interface{ Unwrap() []error }); ok && text == errors.Join(all.Unwrap()...).Error() {
		for _, e := range all.Unwrap() {
			lines = append(lines, Format(e, tell)...)
		}
		return lines
	}
	for _, f := range wrapped(err) {
		text = strings.Replace(text, f.Error(), tell(f), 1)
	}
	return []string{text}
}

// wrapped are the faults that an error wraps, but for what these wrap.
func wrapped(err error) (all []*Error) {
	switch e := err.(type) {
	case *Error:
		return []*Error{e}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, wrapped(one)...)
		}
	case interface{ Unwrap() error }:
		return wrapped(e.Unwrap())
	}
	return all
}

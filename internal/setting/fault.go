package setting

import (
	"errors"
	"fmt"
	"strings"
)

// Error is an error of a setting. The method Error names settings by path; Text takes other names.
type Error struct {
	Path   Path
	Origin Origin // source of the value, if known

	format string
	args   []any
}

// Errorf returns an error: the name of p, a space and the formatted text. Paths among the arguments
// are printed as names, too. An empty p gives the text alone, such as advice on several settings.
func Errorf(p Path, format string, args ...any) *Error {
	return &Error{Path: p, format: format, args: args}
}

// Error returns the text with paths as names.
func (f *Error) Error() string { return f.Text(func(p Path) string { return string(p) }) }

// Text returns the text with the names that name returns.
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

// Unwrap returns the first error among the arguments, or nil.
func (f *Error) Unwrap() error {
	for _, a := range f.args {
		if err, ok := a.(error); ok {
			return err
		}
	}
	return nil
}

// ErrorList is a list of errors.
type ErrorList []*Error

// Err joins the errors. An empty list gives nil.
func (l ErrorList) Err() error {
	errs := make([]error, len(l))
	for i, f := range l {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// Faults collects the errors of a configuration, to report all together.
type Faults []error

// Add adds an error of p, as of Errorf, if wrong.
func (f *Faults) Add(wrong bool, p Path, format string, args ...any) {
	if wrong {
		*f = append(*f, Errorf(p, format, args...))
	}
}

// Join adds errors; nil ones do not count.
func (f *Faults) Join(errs ...error) { *f = append(*f, errs...) }

// Err joins the errors. It is nil without any.
func (f Faults) Err() error { return errors.Join(f...) }

// Lines returns the errors joined in err, a line each, with the names that name returns. Other
// errors keep their text.
func Lines(err error, name func(Path) string) []string {
	return Format(err, func(f *Error) string { return f.Text(name) })
}

// Format is Lines with a function that returns the text of an Error.
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

// wrapped returns the outermost Errors that err wraps.
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

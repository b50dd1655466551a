// Package faults collects the errors of a check, to report all of them together:
//
//	bad := faults.In("load: ")
//	bad.If(c.Keys < 1, "%d keys: want at least 1", c.Keys)
//	bad.Wrap(c.Table.Validate())
//	return bad.Err()
package faults

import (
	"errors"
	"fmt"
)

// List is a list of errors. The zero value is empty and has no prefix.
type List struct {
	prefix string
	errs   []error
}

// In returns an empty list with a prefix for the texts of If and Wrap.
func In(prefix string) *List { return &List{prefix: prefix} }

// If adds an error, formatted by fmt.Errorf, if wrong.
func (l *List) If(wrong bool, format string, args ...any) {
	if wrong {
		l.Wrap(fmt.Errorf(format, args...))
	}
}

// Wrap adds err with the prefix; nil does not count.
func (l *List) Wrap(err error) {
	if err != nil && l.prefix != "" {
		err = fmt.Errorf("%s%w", l.prefix, err)
	}
	l.Add(err)
}

// Add adds errors without the prefix; nil ones do not count.
func (l *List) Add(errs ...error) {
	for _, err := range errs {
		if err != nil {
			l.errs = append(l.errs, err)
		}
	}
}

// Empty reports whether no error was added.
func (l *List) Empty() bool { return len(l.errs) == 0 }

// Err joins the errors. It is nil without any.
func (l *List) Err() error { return errors.Join(l.errs...) }

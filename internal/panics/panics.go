// Package panics turns a panic of a user's function into an error, for a normal end of the job with
// the rank's name.
package panics

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// Error is a panic with its function and line.
type Error struct {
	Value any
	Place string // "main.forward, model.go:41"; "": unknown
}

// Error returns the value and the place.
func (e *Error) Error() string {
	text := fmt.Sprintf("panic: %v", e.Value)
	if e.Place != "" {
		text += " (in " + e.Place + ")"
	}
	return text
}

// Unwrap returns an error value, or nil.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Do calls fn, and returns its panic as an *Error. Panics of goroutines of fn are not caught.
func Do(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Error{r, place()}
		}
	}()
	return fn()
}

// place returns the innermost function outside the runtime, during a deferred handler of a panic.
func place() string {
	calls := make([]uintptr, 32)
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls)])
	raised := false
	for {
		f, more := frames.Next()
		switch inRuntime := strings.HasPrefix(f.Function, "runtime."); {
		case inRuntime:
			raised = true
		case raised:
			return fmt.Sprintf("%s, %s:%d", f.Function, filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// Package panics turns a panic of a user's function into an error, so that a job names its rank and
// ends in order.
package panics

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// Error is a panic with the function and line that raised it.
type Error struct {
	Value any
	Place string // "main.forward, model.go:41"; "": unknown
}

// Error returns the value, and the place unless the value is an error that names its operation.
func (e *Error) Error() string {
	text := fmt.Sprintf("panic: %v", e.Value)
	if e.Place != "" {
		text += " (in " + e.Place + ")"
	}
	return text
}

// Unwrap returns the value if it is an error.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Do calls fn, and returns its panic as an *Error. Panics of goroutines that fn starts are not
// caught.
func Do(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Error{r, place()}
		}
	}()
	return fn()
}

// place is the innermost function that is not the runtime's, while a deferred function handles a
// panic.
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

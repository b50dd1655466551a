//go:build !linux

package placement

import "errors"

// Allowed are the processors that this process may run on: only Linux says.
func Allowed() []int { return nil }

// BindThread binds the calling thread, on Linux alone.
func BindThread([]int) (undo func(), err error) { return nil, errElsewhere }

// BindProcess binds a process to processors, on Linux alone.
func BindProcess([]int) error { return errElsewhere }

// Prefer asks for memory of a NUMA node, on Linux alone.
func Prefer([]byte, int) error { return nil }

var errElsewhere = errors.New("only Linux binds processes to processors")

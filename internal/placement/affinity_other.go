//go:build !linux

package placement

import "errors"

// Allowed are this process's allowed processors, known only on Linux.
func Allowed() []int { return nil }

// BindThread binds the calling thread, on Linux only.
func BindThread([]int) (undo func(), err error) { return nil, errElsewhere }

// BindProcess binds a process to processors, on Linux only.
func BindProcess(int, []int) error { return errElsewhere }

// Prefer asks for memory of a NUMA node, on Linux only.
func Prefer([]byte, int) error { return nil }

var errElsewhere = errors.New("only Linux binds processes to processors")

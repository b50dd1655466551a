//go:build !linux

package record

import (
	"errors"
	"fmt"
	"os"
)

var errLinux = fmt.Errorf("record: memory that outlives a process: %w on this system", errors.ErrUnsupported)

// Create fails on this system.
func Create(Config) (*os.File, error) { return nil, errLinux }

// ErrHeld is the error of all functions on this system.
var ErrHeld = errLinux

// InFile fails on this system.
func InFile(string, Config) (*Recorder, error) { return nil, errLinux }

// Map fails on this system.
func Map(*os.File) (*Recorder, error) { return nil, errLinux }

// Read fails on this system.
func Read(*os.File) (*Snapshot, error) { return nil, errLinux }

//go:build !linux

package record

import (
	"errors"
	"fmt"
	"os"
)

var errLinux = fmt.Errorf("record: memory that outlives a process: %w on this system", errors.ErrUnsupported)

// Create is not there on this system.
func Create(Config) (*os.File, error) { return nil, errLinux }

// ErrHeld is not there on this system.
var ErrHeld = errLinux

// InFile is not there on this system.
func InFile(string, Config) (*Recorder, error) { return nil, errLinux }

// Map is not there on this system.
func Map(*os.File) (*Recorder, error) { return nil, errLinux }

// Read is not there on this system.
func Read(*os.File) (*Snapshot, error) { return nil, errLinux }

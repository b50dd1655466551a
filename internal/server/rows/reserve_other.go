//go:build !linux || race

package rows

import (
	"errors"
	"unsafe"
)

// defaultShift selects slabs of 4096 items.
const defaultShift = 12

// reservation is unsupported on this system.
type reservation struct{}

func reserve(int) (*reservation, error) {
	return nil, errors.New("no addresses can be reserved on this system")
}

func (*reservation) start() unsafe.Pointer { return nil }
func (*reservation) size() int             { return 0 }
func (*reservation) grow(int) error        { return nil }
func (*reservation) opened() int           { return 0 }
func (*reservation) prefault(int, int)     {}
func (*reservation) release() error        { return nil }

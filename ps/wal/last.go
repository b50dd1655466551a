package wal

import (
	"errors"
	"fmt"
	"io/fs"
)

// Last is the number of the last record of a log that nobody has open, 0 where there is no log or
// no record. It reads the last segment, takes no lock and changes nothing. Damage gives a *[DamageError].
func Last(dir string) (uint64, error) {
	all, err := list(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0 {
		return 0, nil
	}
	next := uint64(0)
	if err == nil {
		last := all[len(all)-1]
		var b []byte
		if b, err = readWhole(last.path, nil); err == nil && len(b) <= segmentHeader {
			return last.first - 1, nil // it was just begun
		}
		if err == nil {
			_, next, err = scan(last.path, b, last.first, true, func(record) error { return nil })
		}
	}
	if err != nil {
		return 0, fmt.Errorf("wal: reading %s: %w", dir, err)
	}
	return next - 1, nil
}

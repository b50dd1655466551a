package dirlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempSuffix ends the name of a directory that is not whole yet.
const TempSuffix = ".tmp"

// Publish makes a directory. invariant[whole-or-absent]: it appears whole or not at all,
// and then survives a loss of power: fill works on one with another name, dir.tmp, which replaces what an
// earlier attempt left. Files that fill writes it syncs itself. A dir that exists
// gives fs.ErrExist.
func Publish(dir string, fill func(tmp string) error) error {
	dir = filepath.Clean(dir)
	if _, err := os.Lstat(dir); err == nil {
		return fs.ErrExist
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp := dir + TempSuffix
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o777)); err != nil {
		return err
	}
	err := fill(tmp)
	if err == nil {
		err = Sync(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return Sync(filepath.Dir(dir))
}

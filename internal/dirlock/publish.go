package dirlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempSuffix is the suffix of incomplete files and directories.
const TempSuffix = ".tmp"

// Publish creates a directory. invariant[whole-or-absent]: dir is always complete or absent, even
// after a loss of power, because fill works in dir.tmp, which replaces the remains of earlier
// attempts. fill must sync its files. For an existing dir Publish returns fs.ErrExist.
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

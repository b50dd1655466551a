package folder

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteFile makes a file of what write writes, in place of one of that name. It
// appears whole or not at all, and then survives a loss of power. Until then it has
// another name, path.tmp, of which nothing is left where that fails.
func WriteFile(path string, write func(w io.Writer) error) error {
	temp := path + TempSuffix
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return Sync(filepath.Dir(path))
}

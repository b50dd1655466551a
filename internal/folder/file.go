package folder

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// WriteFile makes a file of what write writes, in place of one of that name; what a link
// points to is replaced, not the link. It appears whole or not at all, and then survives a
// loss of power. Until then it has another name, path.tmp, of which nothing is left where
// that fails. What is there and no file, such as a device, is written to as it is.
func WriteFile(path string, write func(w io.Writer) error) error {
	if there, err := filepath.EvalSymlinks(path); err == nil {
		path = there
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return writeInPlace(path, write)
	}
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

func writeInPlace(path string, write func(w io.Writer) error) error {
	f, err := pathname.Write(path, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/internal/folder"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Restore makes a store's directory, which must not exist, of a checkpoint, which
// stays as it is. On the same file system it links files and copies little.
func Restore(checkpoint, dir string) error {
	format := filepath.Join(checkpoint, formatFile)
	text, err := pathname.Read(format, maxText)
	if err == nil {
		err = checkFormatText(format, string(text))
	}
	if err == nil {
		err = checkList(checkpoint)
	}
	if err != nil {
		return fmt.Errorf("store: restoring %s: %w", checkpoint, err)
	}
	return publish(dir, func(tmp string) error {
		from, to := filepath.Join(checkpoint, rowsFolder), filepath.Join(tmp, rowsFolder)
		files, err := os.ReadDir(from)
		if err == nil {
			err = os.Mkdir(to, 0o777)
		}
		for _, f := range files {
			if err == nil && f.Name() != lockFile {
				err = linkOrCopy(filepath.Join(from, f.Name()), filepath.Join(to, f.Name()))
			}
		}
		return errors.Join(err, folder.Sync(to), writeFile(filepath.Join(tmp, formatFile), formatText), writeList(tmp))
	})
}

// linkOrCopy links a file that is never written again, and copies others.
func linkOrCopy(from, to string) error {
	if strings.HasSuffix(from, ".sst") && os.Link(from, to) == nil {
		return nil
	}
	in, err := pathname.Open(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close(), in.Close())
}

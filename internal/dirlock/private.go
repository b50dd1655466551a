package dirlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Private creates a folder for this user only, unless it exists. Any other file, link or accessible
// folder of that name is an error.
func Private(dir string) error {
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !OwnedByUser(dir) {
		return fmt.Errorf("%s: want a folder of this user with mode 0700: remove it: %w", dir, fs.ErrPermission)
	}
	return nil
}

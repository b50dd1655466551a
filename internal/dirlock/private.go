package dirlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Private makes a folder that only this user can read, unless it exists. A folder or another file
// of that name that is not the user's alone is an error, and so is a link.
func Private(dir string) error {
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !OwnedByUser(dir) {
		return fmt.Errorf("%s: want a folder of this user with mode 0700: remove it: %w", dir, fs.ErrPermission)
	}
	return nil
}

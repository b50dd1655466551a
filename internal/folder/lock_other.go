//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package folder

import (
	"errors"
	"os"
	"runtime"
)

func lock(*os.File) error {
	return errors.New("a directory cannot be locked on " + runtime.GOOS)
}

func unlock(*os.File) error { return nil }

package dirlock

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// WriteFile writes a file atomically and durably, replacing an old one; for a link its target is
// replaced. Until the end the data are in a temporary file from Create, to avoid conflicts of
// writers; after an error the file is removed. Other targets than regular files, such as devices,
// are written in place.
func WriteFile(path string, write func(w io.Writer) error) error {
	if there, err := filepath.EvalSymlinks(path); err == nil {
		path = there
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return writeInPlace(path, write)
	}
	f, err := Create(path)
	if err != nil {
		return err
	}
	temp := f.Name()
	if err = write(f); err == nil {
		err = SyncFile(f)
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

// Create creates a temporary file, later to be renamed to path. Its name is unique across hosts:
// path, a number of the host, a random number, and TempSuffix. The mode is that of os.Create.
func Create(path string) (*os.File, error) { return create(path, 0o666) }

// CreateSecret is Create for a file that only this user can open.
func CreateSecret(path string) (*os.File, error) { return create(path, 0o600) }

func create(path string, mode fs.FileMode) (*os.File, error) {
	for {
		f, err := os.OpenFile(fmt.Sprintf("%s.%08x%08x%s", path, hostNumber(), rand.Uint32(), TempSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// Unfinished reports whether name is from Create, the final name, and whether this host made the
// file.
func Unfinished(name string) (of string, here, ok bool) {
	rest, temp := strings.CutSuffix(name, TempSuffix)
	dot := strings.LastIndexByte(rest, '.')
	if !temp || dot < 0 || len(rest)-dot != 17 {
		return "", false, false
	}
	n, err := strconv.ParseUint(rest[dot+1:], 16, 64)
	return rest[:dot], uint32(n>>32) == hostNumber(), err == nil
}

// hostNumber returns a number that differs between host names.
func hostNumber() uint32 {
	host, _ := os.Hostname() // "" if unknown
	return crc32.ChecksumIEEE([]byte(host))
}

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

// WriteFile makes a file of what write writes, in place of one of that name; what a link
// points to is replaced, not the link. It appears whole or not at all, and then survives a
// loss of power. Until then it has a name that Create makes, so that two writers are not in each
// other's way, and nothing of it is left where that fails. What is there and no file, such as a
// device, is written to as it is.
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

// Create makes a file that is to be given the name path when it is whole. Until then it has one that no
// other writer uses, on any host: path, a number of the host and a random one, and TempSuffix. Its mode is that of
// os.Create.
func Create(path string) (*os.File, error) { return create(path, 0o666) }

// CreateSecret is Create of a file that nobody but this user can ever open.
func CreateSecret(path string) (*os.File, error) { return create(path, 0o600) }

func create(path string, mode fs.FileMode) (*os.File, error) {
	for {
		f, err := os.OpenFile(fmt.Sprintf("%s.%08x%08x%s", path, hostNumber(), rand.Uint32(), TempSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// Unfinished tells whether a name is one of Create's, for which file, and whether a process of this host made it.
func Unfinished(name string) (of string, here, ok bool) {
	rest, temp := strings.CutSuffix(name, TempSuffix)
	dot := strings.LastIndexByte(rest, '.')
	if !temp || dot < 0 || len(rest)-dot != 17 {
		return "", false, false
	}
	n, err := strconv.ParseUint(rest[dot+1:], 16, 64)
	return rest[:dot], uint32(n>>32) == hostNumber(), err == nil
}

// hostNumber tells hosts apart by their names.
func hostNumber() uint32 {
	host, _ := os.Hostname() // "" where it is not known
	return crc32.ChecksumIEEE([]byte(host))
}

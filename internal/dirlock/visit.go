package dirlock

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Visit is a process's use of a folder that several processes of a user share, in memory or in the
// system's temporary directory, where killed processes cannot clean up. The last process to leave
// removes the folder, or a later process does.
//
// invariant[visited-folder]: a folder with a living process is never removed, because each process
// within holds a shared lock of the folder, and a remover an exclusive lock; after a shared lock
// the process checks that the folder still has its name.
type Visit struct {
	f    *os.File
	path string
}

// removing is the maximum wait for the removal of a folder by another process.
const removing = 5 * time.Second

// Enter creates a folder for this user only, or joins its other processes, after the remains of
// ended processes are removed. A folder that cannot be created or is not private to this user is an
// error, and so is ErrNoLocks.
func Enter(path string) (*Visit, error) {
	Clear(path)
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		v, err := visit(path, share)
		gone := errors.Is(err, ErrHeld) || errors.Is(err, os.ErrNotExist)
		switch {
		case err == nil:
			return v, nil
		case !gone:
			return nil, err
		case time.Since(begun) > removing:
			return nil, fmt.Errorf("%s: a process that removes it does not come to an end", path)
		}
	}
}

// visit locks a folder; a concurrent removal is an os.ErrNotExist.
func visit(path string, by func(*os.File) error) (*Visit, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !ownedByUser(info) {
		return nil, fmt.Errorf("%s is not a folder that only this user can read: remove it", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := by(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	locked, err := f.Stat()
	if err == nil {
		info, err = os.Lstat(path)
	}
	if err == nil && !os.SameFile(info, locked) {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Visit{f, path}, nil
}

func ownedByUser(info os.FileInfo) bool {
	return info.IsDir() && info.Mode().Perm() == 0o700 && ours(info)
}

// OwnedByUser reports whether path is a folder private to this user.
func OwnedByUser(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && ownedByUser(info)
}

// Path returns the folder's path.
func (v *Visit) Path() string { return v.path }

// Leave ends the visit, and removes the folder with its contents after the last process.
func (v *Visit) Leave() error {
	err := v.end()
	Clear(v.path)
	return err
}

// Clear removes a folder of this user with its contents, unless in use, and reports a removal.
func Clear(path string) bool {
	v, err := visit(path, lock)
	if err != nil {
		return false
	}
	return errors.Join(os.RemoveAll(path), v.end()) == nil
}

// end unlocks the folder, even if a starting child process still has the file open.
func (v *Visit) end() error { return errors.Join(unlock(v.f), v.f.Close()) }

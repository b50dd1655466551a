package dirlock

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Visit is a folder that several processes of one user have, each for as long as it lives: in memory or in the system's place for temporary
// files, where whoever was killed cannot clean up. The last one to leave removes it, or else whoever comes upon it later.
//
// invariant[visited-folder]: a folder in which a living process is, is not removed. Who is within holds a shared lock of the folder itself,
// and who removes it an exclusive one; who has got his shared lock looks whether the folder is still there under its name.
type Visit struct {
	f    *os.File
	path string
}

// removing is how long another process may take to remove the folder that is entered.
const removing = 5 * time.Second

// Enter makes a folder that only this user can read, or finds one where others are; what those left behind who are no more is removed. Errors: nobody can make it; it is another one's, or others may read it;
// ErrNoLocks.
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

// visit locks a folder, one that is removed meanwhile is an os.ErrNotExist.
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

// ownedByUser says that a folder is this user's alone.
func ownedByUser(info os.FileInfo) bool {
	return info.IsDir() && info.Mode().Perm() == 0o700 && ours(info)
}

// OwnedByUser says that a path is a folder of this user's which nobody else can read or write.
func OwnedByUser(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && ownedByUser(info)
}

// Path is where the folder is.
func (v *Visit) Path() string { return v.path }

// Leave ends the visit, and removes the folder with all that is in it if nobody else is there.
func (v *Visit) Leave() error {
	err := v.end()
	Clear(v.path)
	return err
}

// Clear removes a folder of this user's with all that is in it, unless a process is there, and tells whether it did.
func Clear(path string) bool {
	v, err := visit(path, lock)
	if err != nil {
		return false
	}
	return errors.Join(os.RemoveAll(path), v.end()) == nil
}

// end gives the lock back, also where a program that is just being started has the file open for a moment.
func (v *Visit) end() error { return errors.Join(unlock(v.f), v.f.Close()) }

package dirlock

import "os"

// RemoveUnheld removes this user's regular files, unless any is locked by a process (flock): then
// it removes none and returns false. All files are locked before the first removal. A name with a
// new file stays.
func RemoveUnheld(paths []string) bool {
	var free []*os.File
	defer func() {
		for _, f := range free {
			_ = f.Close() // also unlocks
		}
	}()
	for _, path := range paths {
		info, err := os.Lstat(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil || !info.Mode().IsRegular() || !ours(info) {
			return false
		}
		f, err := os.Open(path)
		if err != nil {
			return false
		}
		free = append(free, f)
		if lock(f) != nil {
			return false
		}
	}
	for _, f := range free {
		held, err := f.Stat()
		named, gone := os.Lstat(f.Name())
		if err == nil && gone == nil && os.SameFile(held, named) {
			_ = os.Remove(f.Name())
		}
	}
	return true
}

// Package snapshot manages a server's checkpoints in a directory: a checkpoint is a folder of
// opaque files with a manifest, and appears atomically.
//
// A checkpoint is full, or a delta to the base in its manifest: a chain of deltas ends in a full
// checkpoint. Folders are named checkpoint-NUMBER; numbers are consecutive. During the write the
// folder has a temporary name; Commit syncs the files, writes the manifest, and renames the folder.
//
// The file MANIFEST is a line of JSON (see [Manifest]), with the length and CRC-32C of each file,
// and a line with its CRC-32C in hexadecimal.
package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Version is the version of the format. Version 1 had no owner, and no checksum of a delta's base.
const Version = 2

const (
	prefix       = "checkpoint-"
	digits       = 12
	tempSuffix   = ".tmp"
	manifestName = "MANIFEST"
	maxManifest  = 64 << 20
)

var (
	// ErrNone is the error of a missing checkpoint.
	ErrNone = errors.New("no checkpoint")
	// ErrVersion is the error of a checkpoint in another version of the format.
	ErrVersion = errors.New("another version of the format")
)

// DamageError reports damage of a checkpoint's file.
type DamageError struct {
	Path  string
	Fault string
}

// Error names the file.
func (e *DamageError) Error() string { return fmt.Sprintf("%s is damaged: %s", e.Path, e.Fault) }

// Manifest describes a checkpoint.
type Manifest struct {
	Version int    `json:"version"`
	Owner   string `json:"owner"`
	Number  uint64 `json:"number"` // counts from 1
	// Base is the number of a delta's base, 0 for a full checkpoint.
	Base uint64 `json:"base,omitempty"`
	// BaseCRC is the CRC-32C of the base's manifest, to detect another checkpoint with the same
	// number.
	BaseCRC uint32 `json:"base_crc,omitempty"`
	// Meta is the owner's data.
	Meta  json.RawMessage `json:"meta"`
	Files []File          `json:"files"`
	// Folders are the folders of [Draft.Folder].
	Folders []string `json:"folders,omitempty"`
}

// File describes a file of a checkpoint.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	CRC   uint32 `json:"crc"` // CRC-32C
}

// Snapshot is a complete checkpoint.
type Snapshot struct {
	Manifest
	Dir string    // folder
	At  time.Time // completion time, by the host's clock
	crc uint32    // CRC-32C of the manifest
}

// Bytes returns the size of all its files, including its folders.
func (s *Snapshot) Bytes() (n int64, err error) {
	err = filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	return n, nil
}

// Folder returns the path of a folder of the checkpoint.
func (s *Snapshot) Folder(name string) (string, error) {
	if !slices.Contains(s.Folders, name) {
		return "", fmt.Errorf("snapshot: checkpoint %d in %s has no folder %q", s.Number, s.Dir, name)
	}
	return filepath.Join(s.Dir, name), nil
}

func folderName(number uint64) string { return fmt.Sprintf("%s%0*d", prefix, digits, number) }

func numberOf(name string) (number uint64, ok bool) {
	tail, is := strings.CutPrefix(name, prefix)
	number, err := strconv.ParseUint(tail, 10, 64)
	return number, is && err == nil && number > 0 && name == folderName(number)
}

// Numbers returns the numbers of the checkpoints in a directory, ascending; none for a missing
// directory.
func Numbers(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	var out []uint64
	for _, e := range entries {
		if n, ok := numberOf(e.Name()); ok && e.IsDir() {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Read reads the manifest of a checkpoint and checks the existence and length of its files. Open
// checks their contents. owner must match, unless "".
func Read(dir, owner string, number uint64) (*Snapshot, error) {
	s := &Snapshot{Dir: filepath.Join(dir, folderName(number))}
	path := filepath.Join(s.Dir, manifestName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("snapshot: %s: %w", path, ErrNone)
	}
	if err == nil {
		s.At = info.ModTime()
	}
	if err == nil && info.Size() > maxManifest {
		return nil, fmt.Errorf("snapshot: %w", &DamageError{path, fmt.Sprintf("%d bytes, at most %d are a manifest", info.Size(), maxManifest)})
	}
	var b []byte
	if err == nil {
		b, err = pathname.Read(path, maxManifest)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if s.Manifest, err = decode(path, b); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	s.crc = crc32c.Checksum(b)
	if s.Number != number {
		return nil, fmt.Errorf("snapshot: %w", &DamageError{path, fmt.Sprintf("it is the manifest of checkpoint %d", s.Number)})
	}
	if owner != "" && s.Owner != owner {
		return nil, fmt.Errorf("snapshot: %s is of %s, not of %s: it was copied or renamed; bring the file that was here back from a copy", path, s.Owner, owner)
	}
	for _, f := range s.Files {
		info, err := os.Stat(filepath.Join(s.Dir, f.Name))
		if err != nil {
			return nil, fmt.Errorf("snapshot: checkpoint %d lacks a file: %w", number, err)
		}
		if info.Size() != f.Bytes {
			return nil, fmt.Errorf("snapshot: %w", &DamageError{filepath.Join(s.Dir, f.Name), fmt.Sprintf("%d bytes, the manifest says %d", info.Size(), f.Bytes)})
		}
	}
	for _, name := range s.Folders {
		if info, err := os.Stat(filepath.Join(s.Dir, name)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("snapshot: checkpoint %d lacks its folder %s", number, filepath.Join(s.Dir, name))
		}
	}
	return s, nil
}

// Chain returns the checkpoint of a number, or the newest for 0, with its bases, the full
// checkpoint first. Chain returns ErrNone without a checkpoint. owner is as in Read.
func Chain(dir, owner string, number uint64) ([]*Snapshot, error) {
	if number == 0 {
		all, err := Numbers(dir)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("snapshot: %s: %w", dir, ErrNone)
		}
		number = all[len(all)-1]
	}
	var out []*Snapshot
	for number != 0 {
		s, err := Read(dir, owner, number)
		if err != nil {
			if len(out) > 0 {
				err = fmt.Errorf("checkpoint %d is a delta to checkpoint %d: %w", out[len(out)-1].Number, number, err)
			}
			return nil, err
		}
		if n := len(out); n > 0 && out[n-1].BaseCRC != s.crc {
			return nil, fmt.Errorf("snapshot: %s is a delta to a checkpoint %d with the manifest %08x, that in %s is %08x: one of them is of another folder or time; bring back what was here, or load an older checkpoint",
				out[n-1].Dir, number, out[n-1].BaseCRC, s.Dir, s.crc)
		}
		out = append(out, s)
		number = s.Base // below s.Number, as decode checks
	}
	slices.Reverse(out)
	return out, nil
}

// Prune removes uncommitted drafts, and all checkpoints except the newest (keep of them, 0 for
// all), others, and their bases. No Draft may be open.
func Prune(dir string, keep int, others ...uint64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if name, temp := strings.CutSuffix(e.Name(), tempSuffix); temp {
			if _, ours := numberOf(name); ours {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	all, err := Numbers(dir)
	if err != nil {
		return err
	}
	if keep > 0 && len(all) > keep {
		needed := all[len(all)-keep:]
		for _, n := range others {
			if slices.Contains(all, n) {
				needed = append(needed[:len(needed):len(needed)], n)
			}
		}
		errs = append(errs, drop(dir, all, needed))
	}
	return errors.Join(errs...)
}

// drop removes unneeded checkpoints, the newest first, so that an interrupted Prune leaves no delta
// without its base.
func drop(dir string, all, stay []uint64) error {
	needed := map[uint64]bool{}
	for _, n := range stay {
		if needed[n] {
			continue
		}
		chain, err := Chain(dir, "", n)
		if err != nil {
			return err // a damaged manifest does not name its base
		}
		for _, s := range chain {
			needed[s.Number] = true
		}
	}
	for _, n := range slices.Backward(all) {
		if needed[n] {
			continue
		}
		// The rename hides the manifest: a half-removed folder is not found.
		path := filepath.Join(dir, folderName(n))
		if err := os.Rename(path, path+tempSuffix); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		if err := os.RemoveAll(path + tempSuffix); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	return dirlock.Sync(dir)
}

func encode(m Manifest) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(b, "\n%08x\n", crc32c.Checksum(b)), nil
}

func decode(path string, b []byte) (m Manifest, err error) {
	damage := func(format string, a ...any) (Manifest, error) {
		return Manifest{}, &DamageError{path, fmt.Sprintf(format, a...)}
	}
	if len(b) < 10 || b[len(b)-1] != '\n' || b[len(b)-10] != '\n' {
		return damage("it does not end with a line of a checksum")
	}
	line, has := b[:len(b)-10], string(b[len(b)-9:len(b)-1])
	if sum := fmt.Sprintf("%08x", crc32c.Checksum(line)); sum != has {
		return damage("its checksum is %s, it says %q", sum, has)
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return damage("%v", err)
	}
	if m.Version != Version {
		return Manifest{}, fmt.Errorf("%s: format version %d, this program reads version %d: %w: use the program that wrote it", path, m.Version, Version, ErrVersion)
	}
	if m.Number == 0 || m.Base >= m.Number {
		return damage("checkpoint %d with the base %d", m.Number, m.Base)
	}
	for i, f := range m.Files {
		if !goodName(f.Name) || f.Bytes < 0 || slices.ContainsFunc(m.Files[:i], func(g File) bool { return g.Name == f.Name }) {
			return damage("file %d is named %q and has %d bytes", i, f.Name, f.Bytes)
		}
	}
	for i, name := range m.Folders {
		if !goodName(name) || slices.Contains(m.Folders[:i], name) {
			return damage("folder %d is named %q", i, name)
		}
	}
	return m, nil
}

// goodName reports whether a file name is valid and local to the folder.
func goodName(name string) bool {
	return name != "" && len(name) <= 128 && name == filepath.Base(name) && filepath.IsLocal(name) && name != manifestName && !strings.ContainsAny(name, "/\\\x00")
}

package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/folder"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// formatFile says which version of the format a directory has: how keys and sizes
// lie in Pebble, whose own version is in its files.
const (
	formatFile = "FORMAT"
	formatText = "ringo store 1\n"
	lockFile   = "LOCK"   // package folder's, and Pebble's
	maxText    = 64 << 20 // bytes of a format or a list, with room for a million files
)

// checkFormat reads a directory's format, and writes it where the directory is new.
func checkFormat(dir string) error {
	path := filepath.Join(dir, formatFile)
	b, err := pathname.Read(path, maxText)
	if err == nil {
		return checkFormatText(path, string(b))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if of, _, begun := folder.Unfinished(f.Name()); f.Name() != lockFile && !(begun && of == formatFile) && f.Name() != formatFile+folder.TempSuffix {
			return fmt.Errorf("it has %s and no %s: it is no store", f.Name(), formatFile)
		}
	}
	return writeFile(path, formatText)
}

func checkFormatText(path, text string) error {
	if text == formatText {
		return nil
	}
	if strings.HasPrefix(text, "ringo store ") {
		return fmt.Errorf("%s says %q, this program reads %q: %w: use the program that wrote it", path, text, formatText, ErrVersion)
	}
	return &DamageError{path, fmt.Errorf("it says %.40q, want %q", text, formatText)}
}

func writeFile(path, text string) error {
	return folder.WriteFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// listFile says which files a directory had when it was last at rest, and how long
// they were: Pebble takes a list of its files that was cut short for an older one,
// and would remove the files that it does not name. Its last line is a checksum.
const listFile = "FILES"

// writeList writes the list of a directory at rest.
func writeList(dir string) error {
	files, err := os.ReadDir(filepath.Join(dir, rowsFolder))
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return err
		}
		if f.Name() != lockFile {
			fmt.Fprintf(&b, "%d %s\n", info.Size(), f.Name())
		}
	}
	fmt.Fprintf(&b, "%08x\n", crc32c.Checksum([]byte(b.String())))
	return writeFile(filepath.Join(dir, listFile), b.String())
}

// checkList compares a directory with its list. One without a list was in use when
// its process ended.
func checkList(dir string) error {
	path := filepath.Join(dir, listFile)
	text, err := pathname.Read(path, maxText)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	files, err := parseList(string(text))
	if err != nil {
		return &DamageError{path, err}
	}
	for name, size := range files {
		file := filepath.Join(dir, rowsFolder, name)
		info, err := os.Stat(file)
		if err != nil {
			return &DamageError{file, err}
		}
		if info.Size() != size {
			return &DamageError{file, fmt.Errorf("it has %d bytes, it had %d", info.Size(), size)}
		}
	}
	return nil
}

// parseList reads a list: sizes by name.
func parseList(text string) (map[string]int64, error) {
	body, sum := text, ""
	if at := strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n') + 1; strings.HasSuffix(text, "\n") {
		body, sum = text[:at], text[at:]
	}
	if sum != fmt.Sprintf("%08x\n", crc32c.Checksum([]byte(body))) {
		return nil, errors.New("its checksum is wrong")
	}
	out := map[string]int64{}
	for line := range strings.Lines(body) {
		digits, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		size, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || size < 0 || name == "" || name != filepath.Base(name) {
			return nil, fmt.Errorf("it says %q, want a size and a name", line)
		}
		out[name] = size
	}
	return out, nil
}

// publish makes a directory that appears whole or not at all.
func publish(dir string, fill func(tmp string) error) error {
	if err := folder.Publish(dir, fill); err != nil {
		return fmt.Errorf("store: writing %s: %w", filepath.Clean(dir), err)
	}
	return nil
}

// Checkpoint is Store's. On the same file system it links files and copies little,
// whatever the store's size; rows put before it are in it. The links hold on to
// files that the store lets go of later.
func (d *Disk) Checkpoint(dir string) error {
	if err := d.writable(); err != nil {
		return err
	}
	return publish(dir, func(tmp string) error {
		if !d.c.Log {
			if err := d.flush(); err != nil {
				return err
			}
		}
		if err := d.db.Checkpoint(filepath.Join(tmp, rowsFolder), pebble.WithFlushedWAL()); err != nil {
			return d.known(err)
		}
		return errors.Join(writeFile(filepath.Join(tmp, formatFile), formatText), writeList(tmp))
	})
}

package snapshot

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/crc32c"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Draft is a checkpoint being written. Commit or Abandon ends it.
type Draft struct {
	dir      string
	manifest Manifest
	temp     string
	open     int // unclosed files
}

// Begin starts a checkpoint of owner in a directory, which it creates if missing. base is the
// number of an existing checkpoint for a delta, 0 for a full checkpoint. Only a single Draft at a
// time is allowed.
func Begin(dir, owner string, base uint64) (*Draft, error) {
	fail := func(err error) (*Draft, error) { return nil, fmt.Errorf("snapshot: beginning one in %s: %w", dir, err) }
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fail(err)
	}
	all, err := Numbers(dir)
	if err != nil {
		return fail(err)
	}
	if base != 0 && !slices.Contains(all, base) {
		return fail(fmt.Errorf("a delta to checkpoint %d: %w", base, ErrNone))
	}
	d := &Draft{dir: dir, manifest: Manifest{Version: Version, Owner: owner, Number: 1, Base: base}}
	if base != 0 {
		s, err := Read(dir, owner, base)
		if err != nil {
			return fail(err)
		}
		d.manifest.BaseCRC = s.crc
	}
	if len(all) > 0 {
		d.manifest.Number = all[len(all)-1] + 1
	}
	d.temp = filepath.Join(dir, folderName(d.manifest.Number)+tempSuffix)
	if err := os.RemoveAll(d.temp); err != nil {
		return fail(err)
	}
	if err := os.Mkdir(d.temp, 0o777); err != nil {
		return fail(err)
	}
	return d, nil
}

// Number returns the checkpoint's number.
func (d *Draft) Number() uint64 { return d.manifest.Number }

// Create creates a buffered file. Close syncs it and records its length and checksum.
func (d *Draft) Create(name string) (io.WriteCloser, error) {
	if !goodName(name) || slices.ContainsFunc(d.manifest.Files, func(f File) bool { return f.Name == name }) {
		return nil, fmt.Errorf("snapshot: a file named %q: want a new name without a path", name)
	}
	f, err := os.OpenFile(filepath.Join(d.temp, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	d.open++
	w := &writer{draft: d, file: f, entry: File{Name: name}}
	w.buffer = bufio.NewWriterSize(f, 256<<10)
	return w, nil
}

// Folder returns the path of a new folder of the checkpoint. The caller creates it before Commit,
// and verifies its contents when reading.
func (d *Draft) Folder(name string) (string, error) {
	if !goodName(name) || slices.Contains(d.manifest.Folders, name) {
		return "", fmt.Errorf("snapshot: a folder named %q: want a new name without a path", name)
	}
	d.manifest.Folders = append(d.manifest.Folders, name)
	return filepath.Join(d.temp, name), nil
}

type writer struct {
	draft  *Draft
	file   *os.File
	buffer *bufio.Writer
	entry  File
	closed bool
}

func (w *writer) Write(b []byte) (int, error) {
	n, err := w.buffer.Write(b)
	w.entry.CRC = crc32c.Update(w.entry.CRC, b[:n])
	w.entry.Bytes += int64(n)
	return n, err
}

func (w *writer) Close() error {
	if w.closed {
		return os.ErrClosed
	}
	w.closed = true
	err := w.buffer.Flush()
	if err == nil {
		err = dirlock.SyncFile(w.file)
	}
	err = errors.Join(err, w.file.Close())
	if err != nil {
		return fmt.Errorf("snapshot: %w", err) // the draft stays open and cannot be committed
	}
	w.draft.open--
	w.draft.manifest.Files = append(w.draft.manifest.Files, w.entry)
	return nil
}

// Commit makes the checkpoint visible. The manifest stores meta as JSON. All files must be closed.
func (d *Draft) Commit(meta any) (*Snapshot, error) {
	s, err := d.commit(meta)
	if err != nil {
		d.Abandon()
		return nil, fmt.Errorf("snapshot: committing checkpoint %d: %w", d.Number(), err)
	}
	return s, nil
}

func (d *Draft) commit(meta any) (_ *Snapshot, err error) {
	if d.open != 0 {
		return nil, fmt.Errorf("%d of its files are not complete", d.open)
	}
	for _, name := range d.manifest.Folders {
		if info, err := os.Stat(filepath.Join(d.temp, name)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("its folder %q was not made", name)
		}
	}
	if d.manifest.Meta, err = json.Marshal(meta); err != nil {
		return nil, err
	}
	b, err := encode(d.manifest)
	if err != nil {
		return nil, err
	}
	if err := writeSynced(filepath.Join(d.temp, manifestName), b); err != nil {
		return nil, err
	}
	if err := dirlock.Sync(d.temp); err != nil {
		return nil, err
	}
	s := &Snapshot{Manifest: d.manifest, Dir: filepath.Join(d.dir, folderName(d.Number())), At: time.Now(), crc: crc32c.Checksum(b)}
	if err := os.Rename(d.temp, s.Dir); err != nil {
		return nil, err
	}
	return s, dirlock.Sync(d.dir)
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = dirlock.SyncFile(f)
	}
	return errors.Join(err, f.Close())
}

// Abandon removes the draft. Open files may still be written and closed, without effect.
func (d *Draft) Abandon() {
	_ = os.RemoveAll(d.temp) // the next Begin or Prune removes the rest
}

// Open opens a file of the checkpoint for sequential reading. For changed bytes the read at the end
// returns a *DamageError instead of io.EOF: data read before may be wrong.
func (s *Snapshot) Open(name string) (io.ReadCloser, error) {
	i := slices.IndexFunc(s.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("snapshot: checkpoint %d in %s has no file %q", s.Number, s.Dir, name)
	}
	f, err := pathname.Open(filepath.Join(s.Dir, name))
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return &reader{file: f, in: bufio.NewReaderSize(f, 256<<10), expected: s.Files[i]}, nil
}

type reader struct {
	file     *os.File
	in       *bufio.Reader
	expected File
	bytes    int64
	sum      uint32
}

func (r *reader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	r.bytes += int64(n)
	r.sum = crc32c.Update(r.sum, b[:n])
	if err == io.EOF && (r.bytes != r.expected.Bytes || r.sum != r.expected.CRC) {
		err = &DamageError{r.file.Name(), fmt.Sprintf("%d bytes with the checksum %08x, the manifest says %d and %08x", r.bytes, r.sum, r.expected.Bytes, r.expected.CRC)}
	}
	return n, err
}

func (r *reader) Close() error { return r.file.Close() }

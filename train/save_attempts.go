package train

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

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/server/engine"
)

// A checkpoint of a run with parameters on servers is the file that rank 0 writes and a part of
// each server, which the file names. The parts are next to the file, in a folder for each attempt
// of the job: start-1, start-2 and so on. An attempt reads parts of earlier attempts, and writes
// only to its own folder. The file is written last: only then are the parts a checkpoint, and parts
// that no file names are unused.

// ServersPart identifies the servers' parts of a checkpoint.
type ServersPart struct {
	// Start is the number, from 1, of the attempt in which servers saved the parts.
	Start int `json:"start"`
	// Numbers are the numbers of the servers' checkpoints, by server.
	Numbers []uint64 `json:"numbers"`
	// Folders are random names that are stored in the servers' folders, by server; "" if rank 0
	// cannot read the folder.
	Folders []string `json:"folders,omitempty"`
}

func foldersOf(dir string, start, servers int) []string {
	out := make([]string, servers)
	for i := range out {
		if id, err := engine.IdentityOf(serverDir(dir, start, i)); err == nil {
			out[i] = id.Folder
		}
	}
	return out
}

// check returns an error if the servers' folders next to a checkpoint's file have other names than
// the file: one may be a copy from another run. A missing folder is no error of check.
func (p ServersPart) check(file string) error {
	dir := filepath.Dir(file)
	for i, have := range foldersOf(dir, p.Start, len(p.Folders)) {
		if want := p.Folders[i]; want != "" && have != "" && have != want {
			return fmt.Errorf("%s is of another run: server %d's folder was %s when this checkpoint was saved, and %s is %s: bring back the file or the folder that was here",
				filepath.Base(file), i, want, serverDir(dir, p.Start, i), have)
		}
	}
	return nil
}

const startPrefix = "start-"

// AttemptDir returns the folder of an attempt's servers.
func AttemptDir(dir string, start int) string {
	return filepath.Join(dir, startPrefix+strconv.Itoa(start))
}

func serverDir(dir string, start, server int) string {
	return filepath.Join(AttemptDir(dir, start), "server-"+strconv.Itoa(server))
}

// Attempts returns the attempts with a folder, in ascending order.
func Attempts(dir string) (out []int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the servers' folders: %w", err)
	}
	for _, e := range entries {
		digits, is := strings.CutPrefix(e.Name(), startPrefix)
		if n, err := strconv.Atoi(digits); is && err == nil && n > 0 && e.IsDir() && e.Name() == startPrefix+strconv.Itoa(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// LastServerParts returns the file, step and servers' parts of a checkpoint, or of a folder's last
// one. Errors: checkpoint.ErrNone; damage; a run without parameter servers.
func LastServerParts(path string) (file string, step int64, part ServersPart, err error) {
	if file, err = checkpoint.Locate(path); err != nil {
		return "", 0, part, err
	}
	f, err := checkpoint.Load(file)
	if err != nil {
		return "", 0, part, err
	}
	p, err := ServerParts(f.Header, file)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", 0, part, fmt.Errorf("%s: %w", file, err)
	}
	if p == nil {
		return "", 0, part, fmt.Errorf("%s is of a run without parameter servers: resume it without servers, too", file)
	}
	return file, f.Header.Step, *p, nil
}

// ServerParts returns the servers' parts in a checkpoint's header; nil for a run without parameter
// servers, whose file has all values. It compares the servers' folders next to the file with the
// header, unless file is "".
func ServerParts(h checkpoint.Header, file string) (*ServersPart, error) {
	text, ok := h.More[moreServers]
	if !ok {
		return nil, nil
	}
	var p ServersPart
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf("the list of the servers' checkpoints cannot be read: %w", err)
	}
	if p.Start < 1 || len(p.Numbers) == 0 || slices.Contains(p.Numbers, 0) {
		return nil, fmt.Errorf("checkpoints %v of the servers of start %d: out of range", p.Numbers, p.Start)
	}
	if file == "" {
		return &p, nil
	}
	return &p, p.check(file)
}

// dropAttempts removes the folders of earlier attempts that no checkpoint needs.
func dropAttempts(dir string, current int) error {
	if current == 0 {
		return nil // no parameter servers
	}
	starts, err := Attempts(dir)
	if err != nil || len(starts) == 0 || starts[0] >= current {
		return err
	}
	steps, err := checkpoint.Steps(dir)
	if err != nil {
		return err
	}
	needed := map[int]bool{}
	for _, step := range steps {
		f, err := checkpoint.Load(checkpoint.PathOf(dir, step))
		if err != nil {
			return nil // a damaged file does not name its parts
		}
		p, err := ServerParts(f.Header, "")
		_ = f.Close()
		if err != nil {
			return nil
		}
		if p != nil {
			needed[p.Start] = true
		}
	}
	for _, n := range starts {
		if n < current && !needed[n] {
			if err := os.RemoveAll(AttemptDir(dir, n)); err != nil {
				return fmt.Errorf("removing unused checkpoints of servers: %w", err)
			}
		}
	}
	return nil
}

// canSave returns an error for a run with checkpoints that would lack values.
func (c Config) canSave() error {
	if s := c.Servers; c.Checkpoint.Dir != "" && s.Consistency != "" && s.Start == 0 {
		return fmt.Errorf("checkpoint folder %s: the servers were started without it: start them with `ringo run --checkpoint %[1]s`, or let `ringo train` start them", c.Checkpoint.Dir)
	}
	return nil
}

// in reports whether Dir is dir or empty.
func (c Checkpoint) in(dir string) bool {
	whole, err := filepath.Abs(c.Dir)
	return c.Dir == "" || err == nil && whole == dir
}

// JobName returns the job's name for ranks and servers of an attempt. It includes step, the
// checkpoint's, or 0 without one, so that processes with different checkpoints reject each other.
func JobName(start int, step int64) string {
	return fmt.Sprintf("start %d from step %d", start, step)
}

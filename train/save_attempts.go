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

// A checkpoint of a run whose parameters lie on servers is the file that rank 0 writes and a part of each server, which the file
// names. The parts lie beside it, in a folder for each time that the job was started: start-1, start-2 and so on. A
// start reads what an earlier one's servers have saved, and writes to its own folder alone. What no file names is
// of no use: the file that appears last makes all parts a checkpoint.

// ServersPart says which parts of servers belong to a checkpoint.
type ServersPart struct {
	// Start is the number of the start whose servers have saved them, from 1.
	Start int `json:"start"`
	// Numbers are those of the servers' checkpoints, by server.
	Numbers []uint64 `json:"numbers"`
	// Folders are the random names that the servers' folders have of themselves, by server; ""
	// where rank 0 did not see the folder.
	Folders []string `json:"folders,omitempty"`
}

// foldersOf reads the names of the folders of a start's servers.
func foldersOf(dir string, start, servers int) []string {
	out := make([]string, servers)
	for i := range out {
		if id, err := engine.IdentityOf(serverDir(dir, start, i)); err == nil {
			out[i] = id.Folder
		}
	}
	return out
}

// check compares the names of the servers' folders beside a checkpoint's file with those that it
// states: either may have been copied from another run with the same steps. A folder that is
// missing is the error of its reader.
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

// AttemptDir is the folder of the servers of a start.
func AttemptDir(dir string, start int) string {
	return filepath.Join(dir, startPrefix+strconv.Itoa(start))
}

// serverDir is the folder of one server of a start.
func serverDir(dir string, start, server int) string {
	return filepath.Join(AttemptDir(dir, start), "server-"+strconv.Itoa(server))
}

// Attempts are the numbers of the starts that have left a folder, the lowest first.
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

// LastServerParts tells of a checkpoint, or a folder's last one, after which step of the run it was
// saved, and which parts of servers belong to it. Errors: checkpoint.ErrNone; damage; a run that
// had no such servers.
func LastServerParts(path string) (file string, step int64, part ServersPart, err error) {
	if file, err = checkpoint.Of(path); err != nil {
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
		return "", 0, part, fmt.Errorf("%s is of a run whose parameters lay with its ranks, not on servers: resume it as it was begun", file)
	}
	return file, f.Header.Step, *p, nil
}

// ServerParts is what a checkpoint's header says of servers; nil: its run had none that keep
// parameters, and the file has all. The servers' folders beside the file must be those that it was
// saved with; file "" compares nothing.
func ServerParts(h checkpoint.Header, file string) (*ServersPart, error) {
	text, ok := h.More[moreServers]
	if !ok {
		return nil, nil
	}
	var p ServersPart
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf("what the servers have saved cannot be read: %w", err)
	}
	if p.Start < 1 || len(p.Numbers) == 0 || slices.Contains(p.Numbers, 0) {
		return nil, fmt.Errorf("checkpoints %v of the servers of start %d, which cannot be", p.Numbers, p.Start)
	}
	if file == "" {
		return &p, nil
	}
	return &p, p.check(file)
}

// dropAttempts removes the folders of starts before the current one of which no checkpoint needs a
// part any more.
func dropAttempts(dir string, current int) error {
	if current == 0 {
		return nil // it was not started with servers
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
			return nil // what is damaged does not say what it needs
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
				return fmt.Errorf("removing what servers have saved that no checkpoint needs: %w", err)
			}
		}
	}
	return nil
}

// canSave reports a run whose checkpoints would not be whole.
func (c Config) canSave() error {
	if s := c.Servers; c.Checkpoint.Dir != "" && s.Consistency != "" && s.Start == 0 {
		return fmt.Errorf("the run is to be saved in %s, but its servers were not told so: say it where they are started, `ringo run --checkpoint %[1]s`, or let `ringo train` start them", c.Checkpoint.Dir)
	}
	return nil
}

// in says that checkpoints are to be in a folder, or that nothing is said of them.
func (c Checkpoint) in(dir string) bool {
	whole, err := filepath.Abs(c.Dir)
	return c.Dir == "" || err == nil && whole == dir
}

// JobName is what ranks and servers of a start call their job, so that those that go on from different checkpoints
// refuse each other. step is that of the checkpoint, 0: they begin.
func JobName(start int, step int64) string {
	return fmt.Sprintf("start %d from step %d", start, step)
}

package launch

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/watch/blackbox"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// RecordedError is why a job failed, and what its processes had recorded until then.
type RecordedError struct {
	Err error
	// Finding is what that shows; nil: nothing.
	Finding *blackbox.Finding
	// File is where all of it is; "": nowhere, and Unwritten says why, unless none was asked for.
	File      string
	Unwritten error
}

// Error is Err, and behind it, indented, a line each for what the black box shows and where it is.
func (e *RecordedError) Error() string {
	text := e.Err.Error()
	if e.Finding != nil {
		text += fmt.Sprintf("\n  black box: %v", e.Finding)
	}
	switch {
	case e.File != "":
		text += "\n  black box: what each was doing: ringo blackbox " + e.File
	case e.Unwritten != nil:
		text += fmt.Sprintf("\n  black box: %v", e.Unwritten)
	}
	return text
}

// Unwrap returns Err.
func (e *RecordedError) Unwrap() error { return e.Err }

// boxed merges what all processes have recorded if one of them has ended unexpectedly, and adds to err what that shows. There is no
// black box where it would show nothing: of programs that record nothing, of ranks that have all ended with nothing in flight, and of a
// process that ended with an error of its own, such as bad data or a wrong setting, while its exchanges were well.
func (j *job) boxed(err error) error {
	if stopped := (*cluster.StoppedError)(nil); err == nil || j.interrupted || errors.As(err, &stopped) {
		return err
	}
	box, recorded, killed := &blackbox.File{Written: time.Now(), Why: err.Error()}, false, false
	var death *LostProcessError
	_ = errors.As(err, &death)
	for _, p := range j.procs {
		is := blackbox.Process{Name: p.name(), Rank: -1, Serves: !p.role.isMain, ExitStatus: p.how}
		if is.Lost = death != nil && death.Failed == "" && death.Name == p.name(); is.Lost {
			is.ExitStatus = cmp.Or(death.ExitStatus, is.ExitStatus)
		} else if p.signalled() {
			is.ExitStatus = "ended by its launcher"
		}
		if p.role.Mesh || p.role.isMain {
			is.Rank = p.role.before + p.number
		}
		s, fault := p.recorded()
		is.Silent = errorText(fault)
		recorded, killed = recorded || s != nil, killed || p.killed() && !p.signalled()
		box.Add(is, s)
	}
	out := &RecordedError{Err: err, Finding: box.Find()}
	if !recorded || out.Finding == nil && !killed || !killed && death != nil && death.ownError(box) {
		return err
	}
	if j.cfg.BlackBox == "" {
		return out
	}
	out.File, out.Unwritten = writeBox(j.cfg.BlackBox, box)
	return out
}

// ownError reports whether the process reported an error that did not come from an exchange with others: by its own record no
// operation or request of it failed.
func (e *LostProcessError) ownError(box *blackbox.File) bool {
	i := slices.IndexFunc(box.Processes, func(p blackbox.Process) bool { return p.Name == e.Name })
	if e.Failed == "" || i < 0 || box.Processes[i].Silent != "" {
		return false
	}
	return !slices.ContainsFunc(box.Processes[i].Ended, func(entry blackbox.Entry) bool {
		return entry.Failed || entry.Kind == record.Fault.String()
	})
}

// recorded is what the process has recorded, nil where it has recorded nothing: the memory of one on another host is fetched.
func (p *process) recorded() (*record.Snapshot, error) {
	memory := p.memory // which others may be looking at
	if p.remote != nil && memory == nil {
		if memory = p.remote.fetchRecord(p.number); memory != nil {
			defer memory.Close()
		}
	}
	if memory == nil {
		return nil, nil
	}
	return record.Read(memory)
}

// maxBoxes is the number of black boxes that a folder keeps.
const maxBoxes = 20

// writeBox writes a file of its own name into a folder, for its owner alone to read, and returns its path. The newest maxBoxes stay. Of
// one that cannot be written nothing is left.
func writeBox(folder string, box *blackbox.File) (path string, err error) {
	f, err := os.CreateTemp(folder, "ringo-blackbox-"+box.Written.UTC().Format("20060102-150405")+"-*.json")
	if err == nil {
		if err = errors.Join(box.Write(f), f.Close()); err == nil {
			prune(folder, f.Name())
			return f.Name(), nil
		}
		_ = os.Remove(f.Name())
	}
	return "", fmt.Errorf("it cannot be written: %w", err)
}

// prune removes the oldest black boxes of a folder but maxBoxes, and never the one just written.
func prune(folder, written string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	var times []time.Time
	var paths []string
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		ours, _ := filepath.Match("ringo-blackbox-*.json", e.Name())
		info, err := e.Info()
		if !ours || path == written || err != nil || !info.Mode().IsRegular() {
			continue
		}
		i, _ := slices.BinarySearchFunc(times, info.ModTime(), time.Time.Compare)
		times, paths = slices.Insert(times, i, info.ModTime()), slices.Insert(paths, i, path)
	}
	for _, path := range paths[:max(0, len(paths)+1-maxBoxes)] {
		_ = os.Remove(path) // another launcher may have done it
	}
}

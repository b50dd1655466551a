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

// RecordedError is the error of a failed job, with the records of its processes.
type RecordedError struct {
	Err error
	// Finding is the conclusion from the records; nil means none.
	Finding *blackbox.Finding
	// File is the black box's path. If "", Unwritten is the reason, or nil if none was requested.
	File      string
	Unwritten error
}

// Error returns Err's text, followed by indented lines for the finding and the black box's path.
func (e *RecordedError) Error() string {
	text := e.Err.Error()
	if e.Finding != nil {
		text += fmt.Sprintf("\n  black box: %v", e.Finding)
	}
	switch {
	case e.File != "":
		text += "\n  black box: last operations of each process: ringo blackbox " + e.File
	case e.Unwritten != nil:
		text += fmt.Sprintf("\n  black box: %v", e.Unwritten)
	}
	return text
}

// Unwrap returns Err.
func (e *RecordedError) Unwrap() error { return e.Err }

// boxed merges the records of all processes if a process has ended unexpectedly, and adds the
// finding to err. boxed writes no black box that would be uninformative: for programs without
// records, for ranks that all ended with no operation in flight, and for a process with an error
// unrelated to exchanges, such as bad data or a wrong setting.
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

// ownError reports whether the process failed without a failed operation or request in its record.
func (e *LostProcessError) ownError(box *blackbox.File) bool {
	i := slices.IndexFunc(box.Processes, func(p blackbox.Process) bool { return p.Name == e.Name })
	if e.Failed == "" || i < 0 || box.Processes[i].Silent != "" {
		return false
	}
	return !slices.ContainsFunc(box.Processes[i].Ended, func(entry blackbox.Entry) bool {
		return entry.Failed || entry.Kind == record.Fault.String()
	})
}

// recorded returns the process's record, fetched from a remote host, or nil without one.
func (p *process) recorded() (*record.Snapshot, error) {
	memory := p.memory // readers of the memory may run concurrently
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

// maxBoxes is the maximum number of black boxes in a folder.
const maxBoxes = 20

// writeBox writes a file with a unique name into a folder, readable by the owner only, and returns
// its path. The newest maxBoxes files stay. A failed write leaves no file.
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

// prune removes the oldest black boxes of a folder above maxBoxes, but never the new one.
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
		_ = os.Remove(path) // another launcher may have removed the file
	}
}

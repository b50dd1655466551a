package blackbox

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// Memory reports whether f is a process's record, for Gather, or a file of Write. f is not moved.
func Memory(f io.ReaderAt) (bool, error) {
	var mark [len(record.Magic)]byte
	n, err := f.ReadAt(mark[:], 0)
	if err == io.EOF { // too short for both; the reader of f has the better error
		err = nil
	}
	return string(mark[:n]) == record.Magic, err
}

// Gather merges the files of processes without a launcher (record.InFile), which may still record.
func Gather(paths []string) (*File, error) {
	b := &File{Format: Format, Version: Version, Written: time.Now(), Why: "what processes have left that no launcher had started"}
	type left struct {
		p Process
		s *record.Snapshot
	}
	var all []left
	for _, path := range paths {
		f, err := pathname.Open(path)
		if err != nil {
			return nil, fmt.Errorf("blackbox: %w", err)
		}
		s, err := record.Read(f)
		_ = f.Close() // opened for reading only
		if err != nil {
			return nil, fmt.Errorf("blackbox: %s: %w", path, err)
		}
		if s == nil {
			all = append(all, left{Process{Name: path, Rank: -1, Serves: true}, nil})
			continue
		}
		all = append(all, left{processOf(s, path), s})
	}
	slices.SortStableFunc(all, func(a, b left) int { // ranks first: servers look up operations of ranks
		serves := func(p Process) int {
			switch {
			case p.tables():
				return 2
			case p.Serves:
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(serves(a.p), serves(b.p)), cmp.Compare(a.p.Rank, b.p.Rank), cmp.Compare(a.p.Name, b.p.Name))
	})
	for _, l := range all {
		b.Add(l.p, l.s)
	}
	return b, nil
}

// processOf describes the process of snapshot s, and whether the process still runs here.
func processOf(s *record.Snapshot, path string) Process {
	p := Process{Rank: -1}
	switch n := s.Identity.Number; s.Identity.Role {
	case record.Rank:
		p.Name, p.Rank = fmt.Sprintf("rank %d", n), n
	case record.AggregationServer:
		p.Name, p.Rank, p.Serves = fmt.Sprintf("rank %d", n), n, true
	case record.ParameterServer:
		p.Name, p.Serves = fmt.Sprintf("parameter server %d", n), true
	default:
		p.Name, p.Serves = path, true
	}
	switch {
	case !s.Active: // the process has ended recording
	case syscall.Kill(s.Process, 0) == syscall.ESRCH:
		p.ExitStatus = "killed, or it ended without a word, or it is on another host"
	case stopped(s.Process):
		p.ExitStatus = "stopped"
	}
	return p
}

func stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // format "12 (name) T 1 …"
	end := bytes.LastIndexByte(text, ')')
	return err == nil && end >= 0 && bytes.HasPrefix(text[end+1:], []byte(" T"))
}

package launch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// ProcessInfo describes a process of a job from its launcher's view.
type ProcessInfo struct {
	// Name is such as "rank 3" or "rank 4 (server 0)". Role and Index identify the process.
	Name, Role string
	Index      int
	// Serves reports whether the process is outside the first role.
	Serves bool
	PID    int
	// Ended reports whether the process has ended, and ExitStatus is the status, "" for success.
	Ended      bool
	ExitStatus string
	// Restarts is the number of restarts before this process.
	Restarts int
	// Glance reads the process's record: operations in flight, and at most the given number of its
	// last phases. Glance fails after the job's end. nil means that the launcher has no record.
	Glance func(phases int) (*record.Snapshot, error)
}

// ProcessTable exposes a running job's processes: see Config.Sight. Safe for concurrent use.
type ProcessTable struct {
	mu    sync.Mutex
	procs []processEntry // entries by number
}

// processEntry is a process, nil before the start, and its exit status.
type processEntry struct {
	*process
	over bool
	how  string
}

// add records a started process, in the entry of the process before a restart.
func (s *ProcessTable) add(p *process) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.procs) <= p.number {
		s.procs = append(s.procs, processEntry{})
	}
	s.procs[p.number] = processEntry{process: p}
}

func (s *ProcessTable) end(p *process) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.number < len(s.procs) { // false if the job has ended already
		s.procs[p.number].over, s.procs[p.number].how = true, p.how
	}
}

// close removes all entries before their memory is released.
func (s *ProcessTable) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = nil
}

// List returns the current processes by number: none before the start and after the job's end.
func (s *ProcessTable) List() (out []ProcessInfo) {
	s.mu.Lock()
	procs := slices.Clone(s.procs)
	s.mu.Unlock()
	for _, p := range procs {
		if p.process != nil {
			out = append(out, p.info())
		}
	}
	return out
}

func (p processEntry) info() ProcessInfo {
	s := ProcessInfo{Name: p.name(), Role: p.role.Name, Index: p.index, Serves: !p.role.isMain, PID: p.pid(), Restarts: p.restarts, Ended: p.over, ExitStatus: p.how}
	if p.role.Mesh && s.Serves {
		s.Name += fmt.Sprintf(" (%s %d)", s.Role, s.Index)
	}
	if p.memory != nil {
		s.Glance = func(phases int) (*record.Snapshot, error) { return record.RecentSnapshot(p.memory, phases) }
	}
	return s
}

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
	// Glance reads the operations in flight and the last phases, at most the given number.
	// It fails after the job's end. A nil Glance means that the launcher has no record.
	Glance func(phases int) (*record.Snapshot, error)
}

// ProcessTable exposes a running job's processes: see Config.Sight. Safe for concurrent use.
type ProcessTable struct {
	mu     sync.Mutex
	procs  []ProcessInfo // by number; without a name before the start
	closed bool
}

// Set records the process of a number when it has started or ended, also after a restart.
func (s *ProcessTable) Set(number int, p ProcessInfo) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.procs = append(s.procs, make([]ProcessInfo, max(0, number+1-len(s.procs)))...)
		s.procs[number] = p
	}
}

// close removes all processes before their memory is released.
func (s *ProcessTable) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs, s.closed = nil, true
}

// List returns the current processes by number: none before the start and after the job's end.
func (s *ProcessTable) List() []ProcessInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.procs), func(p ProcessInfo) bool { return p.Name == "" })
}

// info describes a process that has started or, with its exit status, ended.
func (p *process) info(ended bool) ProcessInfo {
	s := ProcessInfo{Name: p.name(), Role: p.role.Name, Index: p.index, Serves: !p.role.isMain, PID: p.pid(), Restarts: p.restarts, Ended: ended}
	if ended {
		s.ExitStatus = p.how
	}
	if p.role.Mesh && s.Serves {
		s.Name += fmt.Sprintf(" (%s %d)", s.Role, s.Index)
	}
	if p.memory != nil {
		s.Glance = func(phases int) (*record.Snapshot, error) { return record.RecentSnapshot(p.memory, phases) }
	}
	return s
}

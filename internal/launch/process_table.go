package launch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// ProcessInfo is a process of a job as its launcher sees it.
type ProcessInfo struct {
	// Name is such as "rank 3", of a server that sums "rank 4 (server 0)", and Role and Index what it is made of.
	Name, Role string
	Index      int
	// Serves says that it is none of those that do the job's work.
	Serves bool
	PID    int
	// Ended says that it has ended, and ExitStatus how, "" well.
	Ended      bool
	ExitStatus string
	// Restarts is how many came before it in its place.
	Restarts int
	// Glance reads what it had recorded of what it does: what is under way, and at most so many of its last phases. It fails when the job
	// has ended. nil: it records nothing that its launcher sees.
	Glance func(phases int) (*record.Snapshot, error)
}

// ProcessTable lets others see the processes of a job that a launcher runs: Config.ProcessTable.
// Its methods may be called from any goroutine.
type ProcessTable struct {
	mu    sync.Mutex
	procs []processEntry // by number
}

// processEntry is a process, nil before it has started, and how it has ended.
type processEntry struct {
	*process
	over bool
	how  string
}

// add notes a process that has started, in the place of the one before it.
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

// end notes how a process has ended.
func (s *ProcessTable) end(p *process) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.number < len(s.procs) { // else the job has ended without it
		s.procs[p.number].over, s.procs[p.number].how = true, p.how
	}
}

// close forgets all, before their memory is given back.
func (s *ProcessTable) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = nil
}

// List is what there is of the processes now, by number: none before they are started and after the
// job has ended.
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

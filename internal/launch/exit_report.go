package launch

import (
	"encoding/json"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// A process outside the mesh cannot report its end to the coordinator. Each such process has a pipe
// to its launcher: a line of JSON reports the end, an empty line is a heartbeat. The launcher can
// therefore report a failure once, with all affected processes.

// maxWhy limits an error's text in bytes, so that a pipe writes the line atomically.
const maxWhy = 2 << 10

// Tell reports the end of this process, a rank without a mesh, to the launcher. Tell returns
// whether the report was written; the launcher then prints the failure.
func (e RankEnv) Tell(end failure.Exit) (told bool) { return writeReport(e.End, end) }

// ReportExit is RankEnv.Tell for processes that are not ranks; heartbeats continue.
func (e RoleEnv) ReportExit(end failure.Exit) (told bool) { return writeReport(e.End, end) }

// writeReport writes to descriptor if a pipe: a wrapper program may have closed the pipe.
func writeReport(descriptor int, end failure.Exit) bool {
	var is unix.Stat_t
	if descriptor == 0 || unix.Fstat(descriptor, &is) != nil || is.Mode&unix.S_IFMT != unix.S_IFIFO {
		return false
	}
	if len(end.Reason) > maxWhy {
		end.Reason = strings.ToValidUTF8(end.Reason[:maxWhy], "") + "..."
	}
	line, err := json.Marshal(end)
	if err != nil {
		return false
	}
	n, err := unix.Write(descriptor, append(line, '\n'))
	return err == nil && n == len(line)+1
}

func (p *process) readReport(line []byte) {
	if len(line) == 0 {
		p.mu.Lock()
		p.hasHeartbeat = true
		p.mu.Unlock()
		return
	}
	var end failure.Exit
	if json.Unmarshal(line, &end) != nil || end.Fault() == "" {
		return
	}
	end.Rank = p.number
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = &end
}

func (p *process) end() *failure.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told
}

func (p *process) loss() string {
	l := failure.LostProcess{Name: p.name(), Host: p.host, Status: p.how + lastLine(p.tail.last())}
	if end := p.end(); end != nil {
		l.Status, l.Failed = "", end.Fault()
	}
	return l.String()
}

// ends returns the reported ends of ranks and of servers in the mesh.
func (j *job) ends() []failure.Exit {
	var ends []failure.Exit
	if j.coordinator != nil {
		ends = j.coordinator.Ends()
	}
	for _, p := range j.procs {
		if end := p.end(); end != nil && !p.continuedWithout && !p.role.serves() {
			ends = append(ends, *end)
		}
	}
	return ends
}

// lossReason returns the reported error, or the exit status and last line.
func (p *process) lossReason() string {
	if end := p.end(); end != nil {
		return cluster.Failure(end.Fault())
	}
	return p.how + lastLine(p.tail.last())
}

// tellRest reports the errors of servers outside the mesh, except the server named by err.
func (j *job) tellRest(err error) {
	var death *LostProcessError
	errors.As(err, &death)
	for _, p := range j.procs {
		if end := p.end(); p.role.serves() && end != nil && !end.Stopped && (death == nil || death.Name != p.name()) {
			j.cfg.Report(p.loss())
		}
	}
}

package launch

import (
	"encoding/json"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// A process outside the mesh has no coordinator to tell of its end. Each has a pipe to its launcher: a line of JSON there is how it ended, an empty one a sign of life. So the launcher can tell of a fault once, with
// all who ended because of it.

// maxWhy bounds an error's text in bytes, so that the line is short enough for a pipe to keep it in one piece.
const maxWhy = 2 << 10

// Tell tells the launcher how this process, a rank without a mesh, has ended, and returns whether it could: the launcher
// then tells of it.
func (e RankEnv) Tell(end failure.Exit) (told bool) { return writeReport(e.End, end) }

// ReportExit is RankEnv.ReportExit of a process that is no rank, which must not have stopped to
// show life.
func (e RoleEnv) ReportExit(end failure.Exit) (told bool) { return writeReport(e.End, end) }

// writeReport writes to a descriptor, unless it is no pipe: a program between the launcher and this
// one may have closed it.
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

// readReport takes a line of what the process tells.
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

// end is how the process has ended as it told, nil where it did not.
func (p *process) end() *failure.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told
}

// loss says that the process is lost, or what it failed with if it told that.
func (p *process) loss() string {
	l := failure.LostProcess{Name: p.name(), Host: p.host, Status: p.how + lastLine(p.tail.last())}
	if end := p.end(); end != nil {
		l.Status, l.Failed = "", end.Fault()
	}
	return l.String()
}

// ends is what ranks, and servers in the mesh, have told of their end.
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

// lossReason is the reason of a process's loss: how it ended, with its last line, or what it failed
// with.
func (p *process) lossReason() string {
	if end := p.end(); end != nil {
		return cluster.Failure(end.Fault())
	}
	return p.how + lastLine(p.tail.last())
}

// tellRest tells what servers outside the mesh have failed with besides the one that err is about.
func (j *job) tellRest(err error) {
	var death *LostProcessError
	errors.As(err, &death)
	for _, p := range j.procs {
		if end := p.end(); p.role.serves() && end != nil && !end.Stopped && (death == nil || death.Name != p.name()) {
			j.cfg.Report(p.loss())
		}
	}
}

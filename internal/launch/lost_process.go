package launch

import (
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// LostProcessError describes the process that ended the job, and the processes that ended with it.
type LostProcessError struct {
	Name       string         // process's name: "rank 3", "parameter server 0"
	Host       string         // host, in a multi-host job; otherwise ""
	Role       string         // role's name
	Index      int            // number within the role
	Rank       int            // number among ranks and servers in the mesh; -1 outside the mesh
	ExitStatus string         // "killed by signal 9 (SIGKILL)", "exit status 3", "no sign of life for 10s"
	Failed     string         // error reported by the process before the end, or ""
	Leaves     string         // signal that asked the process to leave a job that goes on; "": a loss
	Tail       []string       // last lines of output
	Ranks      int            // number of training ranks; higher numbers are servers
	Affected   []failure.Exit // ends of the other members, as reported or as seen by the launcher
}

// Error reports the failure once, for all processes (failure.LostProcess).
func (e *LostProcessError) Error() string {
	l := failure.LostProcess{Name: e.Name, Host: e.Host, Status: e.ExitStatus, Failed: e.Failed, Tail: e.Tail, Quoted: true, Rank: e.Rank, Ranks: e.Ranks, Affected: e.Affected}
	if e.Failed == "" {
		l.Status = e.server() + e.ExitStatus
	}
	return l.String()
}

// server returns the prefix of a text about a server in the mesh, or "" for other processes.
func (e *LostProcessError) server() string {
	if e.Rank < e.Ranks {
		return cluster.ServerName(-1)
	}
	return cluster.ServerName(e.Rank - e.Ranks)
}

// lostProcess describes the end of p; why is the coordinator's reason.
func (j *job) lostProcess(p *process, why string) *LostProcessError {
	d := &LostProcessError{Name: p.name(), Host: p.host, Role: p.role.Name, Index: p.index, Rank: p.role.before + p.number, ExitStatus: p.how, Tail: p.tail.last(), Ranks: j.crews[0].Count}
	if j.cfg.Part != nil {
		d.Ranks = j.cfg.Part.WorldSize
	}
	ends := j.ends()
	if p.role.serves() {
		d.Rank = -1
		if end := p.end(); end != nil {
			d.Failed = end.Fault()
		}
	} else if i := slices.IndexFunc(ends, func(e failure.Exit) bool { return e.Rank == p.number }); i >= 0 {
		if d.Failed = ends[i].Reason; strings.Contains(d.Failed, p.name()+" is lost") { // the process still runs, and has received the verdict about itself
			d.Failed = ""
		}
		ends = slices.Delete(ends, i, i+1)
	}
	for i, e := range ends {
		if e.Stopped && j.procs[e.Rank].signalled() {
			ends[i].Cause = p.name()
		}
	}
	d.Affected = append(ends, j.unreportedExits(p, ends)...)
	why = strings.TrimPrefix(why, d.server()) // d includes the prefix already
	reason, failed := cluster.Failed(why)
	switch {
	case failed && d.Failed == "": // the verdict arrived while joining
		d.Failed = reason
		fallthrough
	case d.Failed != "":
		if d.ExitStatus = ""; p.killed() && !p.signalled() {
			d.ExitStatus = p.how
		}
	case why == "" || p.how != "" && strings.HasPrefix(why, p.how):
	case p.signalled() || p.how == "":
		d.ExitStatus = why
	default:
		d.ExitStatus = why + ", then " + p.how
	}
	return d
}

// unreportedExits returns the ends of ranks and mesh servers other than p that the processes did
// not report: the launcher ended some because of p, and others failed.
func (j *job) unreportedExits(p *process, told []failure.Exit) (out []failure.Exit) {
	for _, o := range j.procs {
		if o == p || o.role.serves() || o.how == "" || o.continuedWithout || slices.ContainsFunc(told, func(e failure.Exit) bool { return e.Rank == o.role.before+o.number }) {
			continue
		}
		e := failure.Exit{Rank: o.role.before + o.number, Reason: o.how}
		if o.signalled() {
			e.Cause = p.name()
		}
		out = append(out, e)
	}
	return out
}

// missedOne reports whether an operation of any process failed, as reported or recorded, even if
// all then ended with status 0: a job with an early end succeeds only without failed operations.
func (j *job) missedOne() bool {
	return slices.ContainsFunc(j.ends(), func(e failure.Exit) bool { return !e.Stopped }) ||
		slices.ContainsFunc(j.procs, (*process).hasFault)
}

// hasFault reports whether the process's record has a failed exchange.
func (p *process) hasFault() bool {
	s, _ := p.recorded() // without a record, the exit statuses decide
	return s != nil && slices.ContainsFunc(s.Operations, func(e record.Event) bool { return e.Kind == record.Fault })
}

func (p *process) name() string { return p.role.called(p.index) }

func (p *process) addr() string {
	if !p.role.Listens {
		return ""
	}
	return p.role.addrs[p.index]
}

package launch

import (
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// LostProcessError says which process ended the job, how, with which last words, and which others
// ended because of it.
type LostProcessError struct {
	Name       string         // what it is called: "rank 3", "parameter server 0"
	Host       string         // its host, in a job of several; "": there is one
	Role       string         // the name of its role
	Index      int            // its number in the role
	Rank       int            // its number among ranks and servers in the mesh, -1: it is none of them
	ExitStatus string         // "killed by signal 9 (SIGKILL)", "exit status 3", "no sign of life for 10s"
	Failed     string         // the error that it told before it ended, or ""
	Tail       []string       // its last lines of output
	Ranks      int            // how many ranks train; those with higher numbers are servers
	Affected   []failure.Exit // of the other members, as they told or the launcher saw
}

// Error tells of the fault once, for all: see failure.LostProcess. The last lines are indented, one
// per line.
func (e *LostProcessError) Error() string {
	l := failure.LostProcess{Name: e.Name, Host: e.Host, Status: e.ExitStatus, Failed: e.Failed, Tail: e.Tail, Quoted: true, Rank: e.Rank, Ranks: e.Ranks, Affected: e.Affected}
	if e.Failed == "" {
		l.Status = e.server() + e.ExitStatus
	}
	return l.String()
}

// server is the beginning of a text about a rank of the mesh that is a server, "" of others.
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
		if d.Failed = ends[i].Reason; strings.Contains(d.Failed, p.name()+" is lost") { // it still lives, and was told the verdict on itself
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
	why = strings.TrimPrefix(why, d.server()) // which d says itself
	reason, failed := cluster.Failed(why)
	switch {
	case failed && d.Failed == "": // it was told in joining
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

// unreportedExits are the ends of ranks, and of servers in the mesh, besides p that have not told
// of them: those that the launcher has made end, because of p, and those that ended badly by
// themselves.
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

// missedOne reports whether an operation of any process failed, as the process reported or
// recorded, even if all of them then ended with status 0: a job of which a process ended before the
// others has succeeded only without that.
func (j *job) missedOne() bool {
	return slices.ContainsFunc(j.ends(), func(e failure.Exit) bool { return !e.Stopped }) ||
		slices.ContainsFunc(j.procs, (*process).hasFault)
}

// hasFault reports whether an exchange of the process failed, by its record.
func (p *process) hasFault() bool {
	s, _ := p.recorded() // without a record, the exit statuses decide
	return s != nil && slices.ContainsFunc(s.Operations, func(e record.Event) bool { return e.Kind == record.Fault })
}

// name is what the process is called.
func (p *process) name() string { return p.role.called(p.index) }

// addr is where the process listens, "" if it does not.
func (p *process) addr() string {
	if !p.role.Listens {
		return ""
	}
	return p.role.addrs[p.index]
}

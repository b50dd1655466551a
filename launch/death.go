package launch

import (
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/outcome"
)

// DeathError says which rank ended the job, how, with which last words, and which others
// ended because of it.
type DeathError struct {
	Rank   int
	Server int           // which server it was, from 0; -1: none
	Table  int           // which server of tables it was, from 0; -1: none
	How    string        // "killed by signal 9 (SIGKILL)", "exit status 3", "no sign of life for 10s"
	Failed string        // the error that it told before it ended, or ""
	Tail   []string      // its last lines of output
	Ranks  int           // how many ranks train; those with higher numbers are servers
	Others []outcome.End // of the other members, as they told or the launcher saw
}

// Error tells of the fault once, for all: see outcome.Loss. The last lines are indented, one per line.
func (e *DeathError) Error() string {
	l := outcome.Loss{Who: outcome.Rank(e.Rank), How: e.How, Failed: e.Failed, Tail: e.Tail, Quoted: true, Rank: e.Rank, Ranks: e.Ranks, Others: e.Others}
	if e.Table >= 0 {
		l.Who, l.Rank = outcome.Table(e.Table), -1
	}
	if e.Failed == "" {
		l.How = cluster.ServerName(e.Server) + e.How
	}
	return l.String()
}

// death describes the end of p's rank; why is the coordinator's reason.
func (j *job) death(p *process, why string) *DeathError {
	d := &DeathError{Rank: p.rank, Server: p.server, Table: p.table, How: p.how, Tail: p.tail.last(), Ranks: j.cfg.N}
	ends := j.ends()
	if i := slices.IndexFunc(ends, func(e outcome.End) bool { return e.Rank == p.rank }); i >= 0 && p.table < 0 {
		d.Failed = ends[i].Why
		ends = slices.Delete(ends, i, i+1)
	} else if end := p.end(); end != nil && p.table >= 0 {
		d.Failed = end.Fault()
	}
	for i, e := range ends {
		if e.Stopped && j.procs[e.Rank].signalled() {
			ends[i].Cause = p.name()
		}
	}
	d.Others = append(ends, j.silent(p, ends)...)
	why = strings.TrimPrefix(why, cluster.ServerName(p.server)) // which d says itself
	reason, failed := cluster.Failed(why)
	switch {
	case failed && d.Failed == "": // it was told in joining
		d.Failed = reason
		fallthrough
	case d.Failed != "":
		if d.How = ""; p.killed() && !p.signalled() {
			d.How = p.how
		}
	case why == "" || p.how != "" && strings.HasPrefix(why, p.how):
	case p.signalled() || p.how == "":
		d.How = why
	default:
		d.How = why + ", then " + p.how
	}
	return d
}

// silent are the ends of the members besides p that have not told of them: those that the
// launcher has made end, because of p, and those that ended badly by themselves.
func (j *job) silent(p *process, told []outcome.End) (out []outcome.End) {
	for _, o := range j.procs[:min(len(j.procs), j.members())] {
		if o == p || o.how == "" || o.spared || slices.ContainsFunc(told, func(e outcome.End) bool { return e.Rank == o.rank }) {
			continue
		}
		e := outcome.End{Rank: o.rank, Why: o.how}
		if o.signalled() {
			e.Cause = p.name()
		}
		out = append(out, e)
	}
	return out
}

// name is what the process is called.
func (p *process) name() string {
	if p.table >= 0 {
		return outcome.Table(p.table)
	}
	return outcome.Rank(p.rank)
}

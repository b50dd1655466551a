package launch

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/cluster"
	"github.com/ringo-ml/ringo/outcome"
)

// spare lets the others go on without a rank that was lost, and says so; false: it is one
// that they need, or the job ends already.
func (j *job) spare(p *process, ending bool) bool {
	if !j.cfg.Apart || p.rank == 0 {
		return false
	}
	how := p.how + lastLine(p.tail.last())
	switch {
	case !p.signalled() && !ending:
		how += "; the others go on"
	case p.signalled() && j.served == j.cfg.Tables:
		how = "it had not ended when all others had, and was killed"
	default:
		return false
	}
	p.spared = true
	j.cfg.Report(fmt.Sprintf("rank %d is lost: %s", p.rank, how))
	return true
}

// judgeApart is judge of ranks that nobody else hears of.
func (j *job) judgeApart(p *process) {
	if p.how != "" && !p.signalled() && p.rank == 0 {
		j.lose(p)
	}
}

// tableLeft notes a server of tables that has ended well. When all have, every rank
// has left them or was lost: what still runs of these does not end by itself.
func (j *job) tableLeft(next *escalation) {
	if j.served++; j.cfg.Apart && j.served == j.cfg.Tables {
		next.begin(j.cfg.Grace)
	}
}

// serversGrace is how long servers may take to end when no rank is there any more. Those
// of tables wait for ranks that are lost: their connections are silent, and then away.
func (j *job) serversGrace() time.Duration {
	grace := j.cfg.Grace
	if slices.ContainsFunc(j.procs, func(p *process) bool { return p.spared }) {
		grace += 2*cmp.Or(j.cfg.DeadAfter, cluster.DefaultDeadAfter) + 2*cmp.Or(j.cfg.Heartbeat, cluster.DefaultHeartbeat)
	}
	return grace
}

// coordinator is what hears of the ranks of a mesh.
type coordinator interface {
	Addr() net.Addr
	Lost() <-chan error
	Err() error
	Silent(rank int) bool
	Left(rank int) bool
	MarkLost(rank int, why string)
	MarkEnded(rank int)
	MarkServerLost(server int, addr, why string)
	Ends() []outcome.End
	Stop(why string) bool
	Stopping() <-chan cluster.StoppedError
	Stopped(rank int) bool
	Close() error
}

// nobody hears of no rank.
type nobody struct{}

func (nobody) Addr() net.Addr                     { return nil }
func (nobody) Lost() <-chan error                 { return nil }
func (nobody) Err() error                         { return nil }
func (nobody) Silent(int) bool                    { return false }
func (nobody) Left(int) bool                      { return false }
func (nobody) MarkLost(int, string)               {}
func (nobody) MarkEnded(int)                      {}
func (nobody) MarkServerLost(int, string, string) {}
func (nobody) Ends() []outcome.End                { return nil }
func (nobody) Close() error                       { return nil }
func (nobody) Stop(string) bool                   { return false }
func (nobody) Stopped(int) bool                   { return false }

func (nobody) Stopping() <-chan cluster.StoppedError { return nil }

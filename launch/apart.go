package launch

import (
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
	if !j.cfg.Apart {
		return false
	}
	switch {
	case p.signalled() && j.leftBehind():
		p.how = "it had not ended when all others had, and was killed"
		if p.rank == 0 {
			j.lose(p)
			return false
		}
		j.cfg.Report(fmt.Sprintf("%s is lost: %s", p.name(), p.how))
	case p.rank == 0 || p.signalled() || ending:
		return false
	default:
		j.cfg.Report(p.loss() + "; the others go on")
	}
	p.spared = true
	return true
}

// leftBehind says that all servers of tables have ended well, and with them all ranks that they still knew of. Who had
// to be killed then has hung.
func (j *job) leftBehind() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.served == j.cfg.Tables && j.first == nil && !j.interrupted
}

// deprived reports whether a rank has ended because of the loss of rank 0, without which there are no results. If
// that one still runs it hangs: the servers have long waited for it.
func (j *job) deprived(p *process) bool {
	end := p.end()
	if !j.cfg.Apart || p.rank == 0 || end == nil || end.Cause != outcome.Rank(0) {
		return false
	}
	j.procs[0].hang("the parameter servers hear nothing from it")
	return true
}

// judgeApart is judge of ranks that nobody else hears of.
func (j *job) judgeApart(p *process) {
	if p.how != "" && p.rank == 0 && (!p.signalled() || p.whyHung() != "") {
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
		grace += 2*j.cfg.Times.DeadAfter + 2*j.cfg.Times.Heartbeat
	}
	return grace
}

// coordinator is what hears of the ranks of a mesh.
type coordinator interface {
	Addr() net.Addr
	Lost() <-chan error
	Err() error
	Process(rank int, used func() time.Duration)
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
func (nobody) Process(int, func() time.Duration)  {}
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

package launch

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// What the loss of a process means follows from its role. In the mesh the coordinator tells all others, who end by
// themselves. Outside it the launcher alone sees to it: it starts the process again, lets the others go on without it, or
// makes them end.

// lastWait is how long the others have to end with words of their own when one outside the mesh is lost: ranks that were
// told of it, and servers that a rank's end may have been the fault of.
const lastWait = 2 * time.Second

// exited acts on the end of a process; told says that all are to end.
func (j *job) exited(p *process, told bool) {
	ending := told || j.next.begun()
	switch {
	case p.stopped:
	case p.how == "":
		j.processDone(p)
	case p.role.Stateless && j.leaving(told):
		j.cfg.Report(p.loss() + "; the job was done, and needs nothing from it")
		p.continuedWithout = true
		j.processDone(p)
	case (!ending || j.leaving(told)) && p.restarts < p.role.Restarts && !(p.role.Interchangeable && p.isRequired()) && j.startAgain(p): // one that stands in for others learns from them
		return
	case p.role.serves():
		j.serverLost(p, ending)
	case j.endedByFirst(p):
		j.next.begin(min(j.cfg.Grace, time.Second))
	case j.continueWithout(p, ending):
	case j.cfg.Part != nil:
		j.next.begin(j.cfg.Grace) // rank 0 tells the others
	case !p.role.Mesh:
		j.next.begin(min(j.cfg.Grace, time.Second)) // nobody tells the others, but servers may say why
	case !j.coordinator.HasLeft(p.number):
		j.next.begin(j.cfg.Grace)
	}
	if j.running--; p.role.isMain {
		if j.leading--; j.leading == 0 {
			j.workDone()
		}
	}
}

// leaving reports whether the processes of the first role have all ended well, and the others still have their time to
// end by themselves.
func (j *job) leaving(told bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !told && j.leading == 0 && j.first == nil && !j.interrupted && j.next.step <= 1
}

// startAgain starts a process that was lost again, and says whether it could.
func (j *job) startAgain(p *process) bool {
	j.cfg.Report(fmt.Sprintf("%s; it is started again (%d of %d)", p.loss(), p.restarts+1, p.role.Restarts))
	err := j.onOneThread(func() error {
		again, err := j.start(p.role, p.index, p.restarts+1)
		if err == nil {
			_ = p.memory.Close() // what it did until it was lost is told by no black box: the job goes on
			j.procs[p.number] = again
		}
		return err
	})
	if err == nil && j.leading == 0 {
		j.next.shorten(j.serversGrace()) // it has its own time to end
	}
	if err != nil {
		p.noRestart = fmt.Sprintf("; it cannot be started again: %v", err)
		j.cfg.Report(p.name() + " cannot be started again: " + err.Error())
	}
	return err == nil
}

// serverLost begins the end of those who need the process, unless the others go on without it. Who is in the mesh is told
// why.
func (j *job) serverLost(p *process, ending bool) {
	if j.continueWithout(p, ending) || !p.isRequired() {
		j.processDone(p)
		return
	}
	if !ending {
		j.processLost(p)
		if j.coordinator != nil {
			j.coordinator.MarkServerLost(p.name(), p.addr(), p.lossReason()+p.noRestart)
		}
	}
	if j.coordinator == nil || j.next.begun() {
		j.next.hurry()
		return
	}
	j.next.shorten(min(lastWait, j.cfg.Grace))
}

// processDone notes a process that has ended well, or that the others go on without. When all
// servers have whose ranks have no mesh, every rank has left them or was lost: what still runs of
// these does not end by itself.
func (j *job) processDone(p *process) {
	if !p.role.serves() {
		return
	}
	if j.serversDone++; j.coordinator == nil && j.allServed() {
		j.next.begin(j.cfg.Grace)
	}
}

// servers is how many processes are there for the first role's, outside the mesh.
func (j *job) servers() (n int) {
	for _, c := range j.crews {
		if c.serves() {
			n += c.Count
		}
	}
	return n
}

// allServed says that all servers outside the mesh have ended well.
func (j *job) allServed() bool { return j.serversDone == j.servers() }

// workDone begins the end of the others, now that those who do the job's work have all ended. When these have left in
// good order the others end by themselves; after one has failed, servers would wait for it.
func (j *job) workDone() {
	j.late.Stop() // the others have their own time
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.first == nil || j.servers() == 0:
		j.next.begin(j.serversGrace())
	case j.first.killed() || j.first.role.serves():
		j.next.hurry() // no server has more to say
	default:
		j.next.shorten(min(lastWait, j.cfg.Grace))
	}
}

// serversGrace is how long the others may take to end when those who do the job's work have. Servers wait
// for those of them that are lost: their connections are silent, and then away.
func (j *job) serversGrace() time.Duration {
	grace := j.cfg.Grace
	if slices.ContainsFunc(j.procs, func(p *process) bool { return p.continuedWithout && p.role.isMain }) {
		grace += 2*j.cfg.Times.DeadAfter + 2*j.cfg.Times.Heartbeat
	}
	for _, c := range j.crews[1:] {
		grace = max(grace, c.Grace)
	}
	return grace
}

// continueWithout lets the others go on without a process that was lost, and says so; false: it is
// one that they need, or the job ends already.
func (j *job) continueWithout(p *process, ending bool) bool {
	if !p.role.ContinueWithout && !p.role.Interchangeable {
		return false
	}
	switch {
	case p.signalled() && j.outlivedServers():
		p.how = "it had not ended when all others had, and was killed"
		if p.isRequired() {
			j.processLost(p)
			return false
		}
		j.cfg.Report(fmt.Sprintf("%s is lost: %s", p.name(), p.how))
	case p.isRequired() || p.signalled() || ending:
		return false
	default:
		j.cfg.Report(p.loss() + "; the others go on")
		p.role.lostCount++
	}
	p.continuedWithout = true
	return true
}

// isRequired says that the others cannot go on without the process.
func (p *process) isRequired() bool {
	if p.role.Interchangeable {
		return !p.continuedWithout && p.role.lostCount == p.role.Count-1
	}
	return !p.role.ContinueWithout || p.index == 0
}

// outlivedServers says that all servers outside the mesh have ended well, and with them all ranks
// that they still knew of. Who had to be killed then has hung.
func (j *job) outlivedServers() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.allServed() && j.first == nil && !j.interrupted
}

// endedByFirst reports whether a rank without a mesh has ended because of the loss of the first
// one, without which there are no results. If that one still runs it hangs: the servers have long
// waited for it.
func (j *job) endedByFirst(p *process) bool {
	end := p.end()
	if p.role.Mesh || !p.role.isMain || p.index == 0 || end == nil || end.Cause != failure.Rank(0) {
		return false
	}
	j.procs[0].hang("the parameter servers hear nothing from it")
	return true
}

// processLost notes a process whose end is that of the job.
func (j *job) processLost(p *process) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == nil {
		j.first = p
	}
}

// failedServer is a process outside the mesh that has ended the job by failing, nil where none has, or a rank that was
// killed has. Ranks fail when such a server does, and some of them before it has ended. j.mu is held.
func (j *job) failedServer() *process {
	if j.first != nil && !j.first.role.serves() && j.first.killed() {
		return nil
	}
	for _, p := range j.procs {
		if p.role.serves() && p.isRequired() && p.how != "" && !p.signalled() {
			return p
		}
	}
	return nil
}

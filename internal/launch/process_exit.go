package launch

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/failure"
)

// The loss of a process has consequences by role. In the mesh the coordinator informs all ranks,
// and they end. Outside, the launcher restarts the process, continues without, or ends the job.

// lastWait is the time for other processes to end with their own errors when a process outside the
// mesh is lost: for informed ranks, and for servers that may have caused a rank's end.
const lastWait = 2 * time.Second

// exited handles the end of a process, with told set if all processes were asked to end.
func (j *job) exited(p *process, told bool) {
	ending := told || j.next.begun()
	if !told && j.replaced(p) {
		return
	}
	switch {
	case !slices.Contains(j.procs, p) || !told && j.continues(): // of an earlier epoch
	case p.stopped:
	case p.how == "":
		j.processDone(p)
	case p.role.Stateless && j.leaving(told):
		j.cfg.Report(p.loss() + "; the job was complete and does not need it")
		p.continuedWithout = true
		j.processDone(p)
	case (!ending || j.leaving(told)) && p.restarts < p.role.Restarts && !(p.role.Interchangeable && p.isRequired()) && j.startAgain(p): // an interchangeable process is restarted unless it is the last
		return
	case p.role.continues && !ending && j.verdict() == nil: // the verdict follows
	case p.role.serves():
		j.serverLost(p, ending)
	case j.endedByFirst(p):
		j.next.begin(min(j.cfg.Grace, time.Second))
	case j.continueWithout(p, ending):
	case j.cfg.Part != nil:
		j.next.begin(j.cfg.Grace) // rank 0 informs the other ranks
	case !p.role.Mesh:
		j.next.begin(min(j.cfg.Grace, time.Second)) // no coordinator informs the other ranks, but servers may report a reason
	case !j.coordinator.HasLeft(p.number):
		j.next.begin(j.cfg.Grace)
	}
	if j.running--; p.role.isMain {
		if j.leading--; j.leading == 0 {
			j.workDone()
		}
	}
}

// leaving reports whether the first role has ended well and other roles still have time to end.
func (j *job) leaving(told bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !told && j.leading == 0 && j.first == nil && !j.interrupted && j.next.step <= 1
}

func (j *job) startAgain(p *process) bool {
	j.cfg.Report(fmt.Sprintf("%s; it is started again (%d of %d)", p.loss(), p.restarts+1, p.role.Restarts))
	err := j.onOneThread(func() error {
		again, err := j.start(p.role, p.index, p.restarts+1)
		if err == nil {
			_ = p.memory.Close() // the job continues, so no black box needs the record of the lost process
			j.procs[p.number] = again
		}
		return err
	})
	if err == nil && j.leading == 0 {
		j.next.shorten(j.serversGrace()) // the restarted process gets the full grace period
	}
	if err != nil {
		p.noRestart = fmt.Sprintf("; it cannot be started again: %v", err)
		j.cfg.Report(p.name() + " cannot be started again: " + err.Error())
	}
	return err == nil
}

// serverLost begins to end the dependents of p, with the reason, unless the job continues without
// p.
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

// processDone counts a process that ended well or is continued without. When all servers of ranks
// without a mesh are done, every rank has left or was lost: the rest do not end alone.
func (j *job) processDone(p *process) {
	if !p.role.serves() {
		return
	}
	if j.serversDone++; j.coordinator == nil && j.allServed() {
		j.next.begin(j.cfg.Grace)
	}
}

func (j *job) servers() (n int) {
	for _, c := range j.crews {
		if c.serves() {
			n += c.Count
		}
	}
	return n
}

func (j *job) allServed() bool { return j.serversDone == j.servers() }

// workDone begins to end the other roles when the first role has ended. After a good end, the other
// roles end alone. After a failure, servers would wait for the failed process.
func (j *job) workDone() {
	j.late.Stop() // the other roles have their own limit
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.first == nil || j.servers() == 0:
		j.next.begin(j.serversGrace())
	case j.first.killed() || j.first.role.serves():
		j.next.hurry() // no server has a reason to report
	default:
		j.next.shorten(min(lastWait, j.cfg.Grace))
	}
}

// serversGrace returns the time for the other roles to end after the first role. Servers wait for
// lost ranks: first the heartbeats stop, and later the connections break.
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

// continueWithout marks a lost process as continued without, and reports the loss. continueWithout
// returns false if the job needs the process or is already ending.
func (j *job) continueWithout(p *process, ending bool) bool {
	if !p.role.ContinueWithout && !p.role.Interchangeable {
		return false
	}
	switch {
	case p.signalled() && j.outlivedServers():
		p.how = "it still ran after all other processes had ended, and was killed"
		if p.isRequired() {
			j.processLost(p)
			return false
		}
		j.cfg.Report(fmt.Sprintf("%s is lost: %s", p.name(), p.how))
	case p.isRequired() || p.signalled() || ending:
		return false
	default:
		j.cfg.Report(p.loss() + "; the other processes continue")
		p.role.lostCount++
	}
	p.continuedWithout = true
	return true
}

// isRequired reports whether the job cannot continue without the process.
func (p *process) isRequired() bool {
	if p.role.Interchangeable {
		return !p.continuedWithout && p.role.lostCount == p.role.Count-1
	}
	return !p.role.ContinueWithout || p.index == 0
}

// outlivedServers reports whether all servers outside the mesh are done and no process has failed.
// A process that had to be killed afterwards was hung.
func (j *job) outlivedServers() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.allServed() && j.first == nil && !j.interrupted
}

// endedByFirst reports whether a rank without a mesh has ended because of the loss of rank 0, the
// only one with results. If rank 0 still runs, rank 0 is hung: the servers have waited already.
func (j *job) endedByFirst(p *process) bool {
	end := p.end()
	if p.role.Mesh || !p.role.isMain || p.index == 0 || end == nil || end.Cause != failure.Rank(0) {
		return false
	}
	j.procs[0].hang("the parameter servers receive no heartbeat from it")
	return true
}

func (j *job) processLost(p *process) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == nil {
		j.first = p
	}
}

// failedServer returns the process outside the mesh that failed and ended the job. failedServer
// returns nil without such a process, or if a rank was killed. Ranks fail with such a server, and
// some end before the server. j.mu is held.
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

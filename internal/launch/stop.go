package launch

import (
	"fmt"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
)

// How a job ends, or pauses, because the launcher is told to. Ranks that can all stop after the same step are asked to, and have
// Config.StopWithin to save the run and end. If they cannot, or do not in time, they are made to end.

// StopLine tells of ranks that have agreed where to stop, and have so much time.
func StopLine(at cluster.StoppedError, within time.Duration) string {
	return fmt.Sprintf("%s: all ranks stop after step %d, save the run in %s and end, within %v; another signal ends them at once", at.Reason, at.Step, at.Saved, within)
}

// told acts on a signal that tells the launcher to end.
func (j *job) told(name string) {
	j.stopRequest = &cluster.StoppedError{Reason: name, Step: -1}
	if j.coordinator != nil && j.coordinator.Stop(name) {
		j.late.Reset(j.cfg.StopWithin)
		return
	}
	j.interrupted = true
	j.next.hurry()
}

// cancelled acts on the end of the context, which ends all at once; after a signal that told them to end, by force.
func (j *job) cancelled() {
	if j.interrupted {
		j.next.force()
		return
	}
	j.interrupted = true
	j.next.hurry()
}

// agreed notes that all ranks stop after the same step, whoever was told to end.
func (j *job) agreed(at cluster.StoppedError) {
	j.stopRequest = &at
	j.cfg.Report(StopLine(at, j.cfg.StopWithin))
	j.late.Reset(j.cfg.StopWithin)
}

// tooLate ends ranks that were to end by themselves.
func (j *job) tooLate() {
	j.cfg.Report(fmt.Sprintf("%s: not all ranks have saved the run and ended within %v: they are made to end", j.stopRequest.Reason, j.cfg.StopWithin))
	j.stopRequest, j.interrupted = &cluster.StoppedError{Reason: j.stopRequest.Reason, Step: -1}, true
	j.next.hurry()
}

// stopped says that p has ended because all ranks have agreed to.
func (j *job) stopped(p *process) bool {
	return p.role.isMain && !p.killed() && p.whyHung() == "" && j.coordinator.Stopped(p.number)
}

// suspend stops all processes and then the launcher, and has them go on with it. None of
// them counts that time as silence of another.
func (j *job) suspend() {
	j.pause(syscall.SIGSTOP)
	j.cfg.Suspend()
	j.pause(syscall.SIGCONT)
}

// pause sends SIGSTOP or SIGCONT to all processes.
func (j *job) pause(sig syscall.Signal) {
	for _, p := range j.procs {
		p.pause(sig)
	}
}

package launch

import (
	"fmt"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
)

// A job ends or pauses on a signal to the launcher. Ranks that can all stop after the same step are
// asked to stop, and have Config.StopWithin to save the run and end. Otherwise, or after
// StopWithin, the launcher ends the ranks.

// StopLine describes the agreed step of a stop and the time left.
func StopLine(at cluster.StoppedError, within time.Duration) string {
	return fmt.Sprintf("%s: all ranks stop after step %d, save the run in %s and end, within %v; another signal kills them immediately", at.Reason, at.Step, at.Saved, within)
}

func (j *job) told(name string) {
	if j.stopRequest == nil { // else the ranks have agreed, after a signal to one of them
		j.stopRequest = &cluster.StoppedError{Reason: name, Step: -1}
	}
	if j.epoch.ending || len(j.epoch.losses) > 0 && !j.cfg.Stateful {
		j.late.Reset(j.cfg.StopWithin) // changeMembers stops the ranks of the next epoch
		j.change.Reset(changePause)
		return
	}
	if j.coordinator != nil && j.coordinator.Stop(name) {
		if j.leading > 0 { // else all ranks have ended, and servers have a limit of their own
			j.late.Reset(j.cfg.StopWithin)
		}
		return
	}
	j.interrupted = true
	j.next.hurry()
}

// cancelled handles the context's end: all processes end now, by SIGKILL after an earlier signal.
func (j *job) cancelled() {
	if j.interrupted {
		j.next.force()
		return
	}
	j.interrupted = true
	j.next.hurry()
}

func (j *job) agreed(at cluster.StoppedError) {
	j.stopRequest = &at
	j.cfg.Report(StopLine(at, j.cfg.StopWithin))
	j.late.Reset(j.cfg.StopWithin)
}

func (j *job) tooLate() {
	j.cfg.Report(fmt.Sprintf("%s: not all ranks have saved the run and ended within %v: they are made to end", j.stopRequest.Reason, j.cfg.StopWithin))
	j.stopRequest, j.interrupted = &cluster.StoppedError{Reason: j.stopRequest.Reason, Step: -1}, true
	j.next.hurry()
}

// stopped reports whether p has ended because all ranks agreed to stop.
func (j *job) stopped(p *process) bool {
	return p.role.isMain && !p.killed() && p.whyHung() == "" && j.coordinator.Stopped(p.number)
}

// suspend stops all processes, then the launcher, and later continues all. Silence does not count.
func (j *job) suspend() {
	j.pause(syscall.SIGSTOP)
	j.cfg.Suspend()
	j.pause(syscall.SIGCONT)
}

func (j *job) pause(sig syscall.Signal) {
	for _, p := range j.procs {
		p.pause(sig)
	}
}

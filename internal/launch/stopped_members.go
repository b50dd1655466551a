package launch

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// A member that has left the job in good order sends no more heartbeats, and the coordinator
// ignores the rest of its run, however long. The launcher still waits for the process. If a signal
// stops the process in its last steps, only the parent is informed, by the operating system.

// endStopped kills members that have left the job and have been stopped for the maximum silence of
// a member. Such members are lost, as if killed at that point: the rest of their program's work is
// unknown. Other processes are not affected.
func (j *job) endStopped() {
	for _, p := range j.procs {
		if !p.role.Mesh {
			continue
		}
		p.stoppedFor.Limit = j.cfg.Times.DeadAfter
		if !p.stoppedNow() || !j.coordinator.HasLeft(p.number) {
			p.stoppedFor.Reset()
		} else if p.stoppedFor.Missed(false) {
			p.hang(fmt.Sprintf("stopped by a signal after it had left the job, and not continued within %v", j.cfg.Times.DeadAfter))
		}
	}
}

// looks returns the interval between calls of endStopped.
func (j *job) looks() time.Duration {
	s := liveness.Detector{Limit: j.cfg.Times.DeadAfter}
	return s.Wait()
}

func (p *process) stoppedNow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ended && p.remote == nil && isStopped(p.cmd.Process.Pid)
}

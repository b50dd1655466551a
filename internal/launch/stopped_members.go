package launch

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// A member that has left the job in good order shows no more signs of life: the coordinator does without it, and what its
// process still does, for however long, is its own affair. But the launcher waits for it, and if a signal has stopped it on
// these last steps, nobody would notice. The system tells its parent.

// endStopped kills members that have left the job and have been stopped for as long as one in the job may be silent. They
// are lost, as if they had been killed at that point: what their programs would have done yet is not known here. The
// others end as they do.
func (j *job) endStopped() {
	for _, p := range j.procs {
		if !p.role.Mesh {
			continue
		}
		if !p.stoppedNow() || !j.coordinator.HasLeft(p.number) {
			p.stoppedFor.Reset()
		} else if p.stoppedFor.Missed(false) {
			p.hang(fmt.Sprintf("stopped by a signal after it had left the job, and not continued within %v", j.cfg.Times.DeadAfter))
		}
	}
}

// looks is how often endStopped is to be called.
func (j *job) looks() time.Duration {
	s := liveness.Detector{Limit: j.cfg.Times.DeadAfter}
	return s.Wait()
}

// stoppedNow says that the process is stopped by a signal.
func (p *process) stoppedNow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ended && p.remote == nil && isStopped(p.cmd.Process.Pid)
}

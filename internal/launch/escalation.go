package launch

import (
	"syscall"
	"time"
)

// escalation is the order in which processes are made to end: a time of grace, SIGTERM, SIGKILL.
type escalation struct {
	timer  *time.Timer
	step   int           // 0: not begun, 1: grace, 2: SIGTERM sent, 3: SIGKILL sent
	waited time.Duration // since SIGTERM, when the timer fires
	forced bool          // nobody is left more time than others
}

func newEscalation() *escalation { return &escalation{timer: stoppedTimer()} }

// stoppedTimer fires when it is reset.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (e *escalation) stop() { e.timer.Stop() }

// begun says that the processes are to end.
func (e *escalation) begun() bool { return e.step > 0 }

// begin starts with a time of grace, once.
func (e *escalation) begin(grace time.Duration) {
	if e.step == 0 {
		e.step = 1
		e.timer.Reset(grace)
	}
}

// hurry skips what is left of the time of grace.
func (e *escalation) hurry() { e.shorten(0) }

// force has the next signal be SIGKILL, at once and for all.
func (e *escalation) force() {
	if e.step < 3 {
		e.step, e.forced = 2, true
		e.timer.Reset(0)
	}
}

// shorten gives another time of grace in place of what is left of it.
func (e *escalation) shorten(grace time.Duration) {
	if e.step <= 1 {
		e.step = 1
		e.timer.Reset(grace)
	}
}

// advance returns the signal to send now; ok is false when all were sent.
func (e *escalation) advance() (sig syscall.Signal, ok bool) {
	e.step++
	switch e.step {
	case 2:
		e.waited = termGrace
		e.timer.Reset(termGrace)
		return syscall.SIGTERM, true
	case 3:
		e.timer.Reset(giveUp)
		return syscall.SIGKILL, true
	}
	return 0, false
}

// repeatKill has SIGKILL be sent once more, to those who may take so much longer than others.
func (e *escalation) repeatKill(more time.Duration) {
	e.step, e.waited = 2, e.waited+more
	e.timer.Reset(more)
}

// late says that who may take so long after SIGTERM has had that time.
func (e *escalation) late(grace time.Duration) bool { return e.forced || grace <= e.waited }

// escalate sends the next signal.
func (j *job) escalate() error {
	switch sig, ok := j.next.advance(); {
	case !ok:
		return j.cannotKill()
	case sig == syscall.SIGKILL:
		j.killLate()
	default:
		j.signal(sig)
	}
	return nil
}

// killLate kills all that have had their time between SIGTERM and SIGKILL, and leaves the others the rest of theirs.
func (j *job) killLate() {
	var more time.Duration // until the next one has had its time
	for _, p := range j.procs {
		switch {
		case j.next.late(p.role.Grace):
			p.signal(syscall.SIGKILL)
		case p.alive() && (more == 0 || p.role.Grace-j.next.waited < more):
			more = p.role.Grace - j.next.waited
		}
	}
	if more > 0 {
		j.next.repeatKill(more)
	}
}

package launch

import (
	"syscall"
	"time"
)

// escalation ends processes in three stages: grace period, SIGTERM, SIGKILL.
type escalation struct {
	timer  *time.Timer
	step   int           // 0: idle, 1: grace, 2: SIGTERM sent, 3: SIGKILL sent
	waited time.Duration // time since SIGTERM when the timer fires
	forced bool          // every process is killed, also with a longer grace period
}

func newEscalation() *escalation { return &escalation{timer: stoppedTimer()} }

// stoppedTimer returns a timer that fires only after Reset.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (e *escalation) stop() { e.timer.Stop() }

func (e *escalation) begun() bool { return e.step > 0 }

// begin starts the grace period, once.
func (e *escalation) begin(grace time.Duration) {
	if e.step == 0 {
		e.step = 1
		e.timer.Reset(grace)
	}
}

func (e *escalation) hurry() { e.shorten(0) }

// force sends SIGKILL next, immediately, to all processes.
func (e *escalation) force() {
	if e.step < 3 {
		e.step, e.forced = 2, true
		e.timer.Reset(0)
	}
}

// shorten replaces the rest of the grace period by grace.
func (e *escalation) shorten(grace time.Duration) {
	if e.step <= 1 {
		e.step = 1
		e.timer.Reset(grace)
	}
}

// advance returns the next signal; ok is false after the last.
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

// repeatKill schedules another SIGKILL, for processes with a grace period longer by more.
func (e *escalation) repeatKill(more time.Duration) {
	e.step, e.waited = 2, e.waited+more
	e.timer.Reset(more)
}

// late reports whether the grace period after SIGTERM has passed.
func (e *escalation) late(grace time.Duration) bool { return e.forced || grace <= e.waited }

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

// killLate kills all processes past their grace period, and schedules a SIGKILL for the rest.
func (j *job) killLate() {
	var more time.Duration // time until the next grace period ends
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

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/launch"
)

// goOn is how long after it has asked to be suspended a launcher goes on in any case: the system does not suspend a
// process of whose group no shell takes care.
const goOn = time.Second

// heedSignals has a launcher act on the signals of its process: those that tell it to end, and SIGTSTP (Ctrl-Z), which
// suspends the whole job, until SIGCONT. end ends that.
func heedSignals(s *signals, cfg *launch.Config) (end func()) {
	if s == nil {
		return func() {}
	}
	stop := make(chan string, 1)
	s.onFirst(func(name string) bool { stop <- name; return true })
	cfg.Stop, cfg.StopWithin = stop, lastSave
	if signal.Ignored(syscall.SIGTSTP) {
		return func() {}
	}
	suspends, resumed := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(suspends, syscall.SIGTSTP)
	signal.Notify(resumed, syscall.SIGCONT)
	cfg.Suspends, cfg.Resumed = suspends, resumed
	cfg.Suspend = func() {
		restore := suspendSelf() // it is stopped now or in a moment, or not at all
		select {
		case <-resumed:
		case <-time.After(goOn):
		}
		restore()
	}
	return func() { signal.Stop(suspends); signal.Stop(resumed) }
}

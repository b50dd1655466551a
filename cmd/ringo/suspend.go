package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/launch"
)

// goOn is the time after which a launcher that has requested suspension continues: the system does
// not suspend a process of a group without a shell.
const goOn = time.Second

// heedSignals passes signals to a launcher: signals that end the job, and SIGTSTP (Ctrl-Z), which
// suspends the whole job until SIGCONT. end restores SIGTSTP and SIGCONT.
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
		restore := suspendSelf() // the system stops this process now, soon or never
		select {
		case <-resumed:
		case <-time.After(goOn):
		}
		restore()
	}
	return func() { signal.Stop(suspends); signal.Stop(resumed) }
}

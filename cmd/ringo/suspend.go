package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/launch"
)

// goOn limits the launcher's wait for its own suspension: the system never suspends a process
// without a shell that could resume the process.
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

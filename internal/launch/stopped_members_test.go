package launch

import (
	"context"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A member that is stopped when it has left the job, which nobody but its launcher watches any more, is lost; the others are left
// to end by themselves.
func TestStoppedWhenItHadLeft(t *testing.T) {
	t.Parallel()
	l := launch(t, context.Background(), 3, "member", []string{"leave", "1"}, func(c *Config) {
		c.Grace, c.Times.DeadAfter = grace, 3*time.Second
	})
	want := "rank 1 is lost: stopped by a signal after it had left the job, and not continued within 3s; its last lines:\n  about to end"
	if runtime.GOOS == "linux" && (l.err == nil || l.err.Error() != want) {
		t.Errorf("got %v, want %q", l.err, want)
	}
}

// A member that is continued within the maximum silence is not lost, nor one that takes longer
// without being stopped.
func TestContinuedWhenItHadLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("who is stopped is not known here")
	}
	t.Parallel()
	ended := make(chan struct{})
	defer close(ended)
	l := launch(t, context.Background(), 3, "member", []string{"leave", "1", "for", "4s"}, func(c *Config) {
		c.Times.DeadAfter = 3 * time.Second
		started := c.OnStart
		c.OnStart = func(rank, pid int) {
			if started(rank, pid); rank == 1 {
				go func() {
					for {
						select {
						case <-ended:
							return
						case <-time.After(time.Second): // the launcher sees the stop twice before
							syscall.Kill(pid, syscall.SIGCONT) // without effect on a process that runs
						}
					}
				}()
			}
		}
	})
	if l.err != nil {
		t.Error(l.err)
	}
}

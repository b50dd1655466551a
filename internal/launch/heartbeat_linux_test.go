package launch

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A process that computes is seen to run, whatever it says, and one that is stopped, or has ended, is not.
func TestProcessorTime(t *testing.T) {
	p := &process{cmd: exec.Command("/bin/sh", "-c", "while :; do :; done")}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = p.cmd.Process.Kill(), p.cmd.Wait() }()
	for range 2 {
		was := p.used()
		for limit := time.Now().Add(time.Minute); p.used() < was+20*time.Millisecond; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("it has used %v, and then %v", was, p.used())
			}
		}
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("it is not stopped: %v, %v", status, err)
		}
		for tries := 0; ; tries++ { // it is on its last microseconds when that is told
			was = p.used()
			if time.Sleep(50 * time.Millisecond); p.used() == was {
				break
			}
			if tries == 100 {
				t.Fatalf("it has used %v more since it was stopped", p.used()-was)
			}
		}
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	}
	if p.ended = true; p.used() != 0 {
		t.Error("it has ended, and its number may be another's")
	}
}

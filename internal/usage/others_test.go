package usage

import (
	"math"
	"os"
	"runtime"
	"testing"
	"time"
)

func TestParseOthers(t *testing.T) {
	if got := queued("9000000000 2500000000 17\n"); got != 2.5 {
		t.Errorf("%v s in a queue", got)
	}
	if got := storageBytes("rchar: 9\nwchar: 8\nread_bytes: 4096\nwrite_bytes: 1\n"); got != 4096 {
		t.Errorf("%d bytes of storage", got)
	}
	if got := busy("cpu  100 20 300 4000 50 6 7 80 0 0\ncpu0 1 2 3\n"); math.Abs(got-5) > 1e-9 {
		t.Errorf("busy for %v s", got)
	}
	if got := processorTime("12 (a) b (c) S 1 12 12 0 -1 4194304 100 0 0 0 250 150 7 8 20 0 9\n"); math.Abs(got-4) > 1e-9 {
		t.Errorf("%v s of a process", got)
	}
	for _, text := range []string{"", "cpu", "12 (", "1)", "x y", "12 (a) S 1 2"} {
		if queued(text) != 0 || storageBytes(text) != 0 || busy(text) != 0 || processorTime(text) != 0 {
			t.Errorf("%q is figures", text)
		}
	}
}

// What a thread that spins takes is seen by who looks at its process, and by who looks at the machine.
func TestOthersSee(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not say")
	}
	own, all := Of(os.Getpid()), Busy()
	for begun := time.Now(); time.Since(begun) < 200*time.Millisecond; {
	}
	if mine, machine := Of(os.Getpid())-own, Busy()-all; !(mine > 0.01) || machine < mine-0.05 {
		t.Errorf("%v s of the process, %v s of the machine", mine, machine)
	}
	if Of(-1) != 0 || !(Queued() >= 0) || StorageBytes() < 0 {
		t.Error("what is not there is not 0")
	}
}

package tcp

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/transport"
)

// processor is the time that this process has computed.
func processor(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Who waits long, and who does not wait at all, computes nothing meanwhile, also
// after busy times; what comes when nobody waits is read all the same.
func TestIdleCostsNothing(t *testing.T) {
	leakcheck.Check(t)
	for _, crowded := range []bool{false, true} {
		m := formed(t, 2, func(c *Config) {
			if c.LocalRanks = 1; crowded {
				c.LocalRanks = c.Size
			}
		})
		for i := range 200 {
			tag := transport.Tag{Seq: uint32(i)}
			if err := m[0].Send(1, tag, []byte{1}, patience); err != nil {
				t.Fatal(err)
			}
			if _, err := receive(m[1], 0, tag, 1); err != nil {
				t.Fatal(err)
			}
		}
		const idle = 400 * time.Millisecond
		least := time.Hour // a machine that others use may count their time as this process's, now and then
		for try := uint32(0); try < 10 && least > idle/4; try++ {
			before := processor(t)
			var r transport.Recv
			m[1].Post(&r, 0, transport.Tag{Seq: 1<<20 + try}, make([]byte, 1))
			_ = r.Wait(idle)
			least = min(least, processor(t)-before)
		}
		if least > idle/4 {
			t.Errorf("crowded %v: waiting for %v took %v of the processor at least", crowded, idle, least)
		}
		if err := m[0].Send(1, transport.Tag{Seq: 1 << 21}, make([]byte, 100), patience); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); m[1].Traffic().PayloadReceived != 300; time.Sleep(time.Millisecond) {
			if time.Since(start) > patience {
				t.Fatal("a message that nobody waits for is not read")
			}
		}
	}
}

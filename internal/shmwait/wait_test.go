package shmwait

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

const patience = 20 * time.Second

// healthy peers have no faults; a sick one gets one when told.
type healthy struct{}

func (healthy) Fault(int) error { return nil }

type sick struct {
	peer int
	err  atomic.Pointer[error]
}

func (s *sick) Fault(peer int) error {
	if err := s.err.Load(); err != nil && peer == s.peer {
		return *err
	}
	return nil
}

// flags returns n flags in one piece of memory.
func flags(n int) []*Flag {
	buf := make([]byte, (n+1)*FlagBytes)
	skip := int(-uintptr(unsafe.Pointer(&buf[0])) % FlagBytes)
	out := make([]*Flag, n)
	for i := range out {
		out[i] = FlagAt(buf, skip+i*FlagBytes)
	}
	return out
}

func TestFlagFillsALine(t *testing.T) {
	if n := unsafe.Sizeof(Flag{}); n != FlagBytes {
		t.Errorf("a flag has %d bytes", n)
	}
	f := flags(3)
	if d := uintptr(unsafe.Pointer(f[2])) - uintptr(unsafe.Pointer(f[1])); d != FlagBytes {
		t.Errorf("flags lie %d bytes apart", d)
	}
	defer func() {
		if recover() == nil {
			t.Error("a flag across two lines was not refused")
		}
	}()
	FlagAt(unsafe.Slice((*byte)(unsafe.Pointer(f[0])), 2*FlagBytes), 8)
}

func configs() map[string]Config {
	return map[string]Config{
		"a core each":       {Ranks: 2},
		"crowded":           {Ranks: 4, Cores: 2},
		"one process":       {Ranks: 2, OneProcess: true},
		"crowded goroutine": {Ranks: 64, OneProcess: true},
	}
}

// Spin is there at once, after a while or not at all, and a count of none or less does not look.
func TestSpin(t *testing.T) {
	f := flags(1)[0]
	for _, c := range []struct {
		n, want uint64
		count   int
		there   bool
	}{
		{0, 0, 1, true}, {0, 1, 1, false}, {0, 1, 1000, false}, {7, 7, 1, true}, {7, 8, 100, false}, {1 << 63, 5, 1, true},
		{5, 1 << 63, 100, false}, {1 << 63, 1<<63 + 1, 3, false}, {7, 7, 0, false}, {7, 7, -1, false},
	} {
		f.n.Store(c.n)
		if got := f.Spin(c.want, c.count); got != c.there {
			t.Errorf("counter %d, %d looks for %d: %v", c.n, c.count, c.want, got)
		}
	}
	f.n.Store(0)
	go f.Raise(3)
	for end := time.Now().Add(patience); !f.Spin(3, 100); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("never there")
		}
	}
}

// Every wait sees what was written before the raise, whichever phase it ends in,
// and with one scheduler thread too.
func TestWaitSeesWhatWasRaised(t *testing.T) {
	for name, cfg := range configs() {
		for _, threads := range []int{1, 4} {
			t.Run(name, func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
				w := New(cfg)
				f := flags(2)
				const rounds = 300
				var all sync.WaitGroup
				all.Go(func() {
					for i := uint64(1); i <= rounds; i++ {
						if err := w.AtLeast(f[0], i, healthy{}, 0, patience); err != nil {
							t.Error(err)
							return
						}
						if got := f[0].Inline[0]; got != byte(i) {
							t.Errorf("round %d: %d came with the flag", i, got)
						}
						f[1].Inline[5] = byte(i) + 1
						f[1].Raise(i)
					}
				})
				for i := uint64(1); i <= rounds; i++ {
					if i%100 == 0 {
						time.Sleep(4 * yielding) // the other one sleeps by now
					}
					f[0].Inline[0] = byte(i)
					f[0].Raise(i)
					if err := w.AtLeast(f[1], i, healthy{}, 1, patience); err != nil {
						t.Fatal(err)
					}
					if got := f[1].Inline[5]; got != byte(i)+1 {
						t.Errorf("round %d: %d came back with the flag", i, got)
					}
				}
				all.Wait()
				if f[0].sleepers.Load() != 0 || f[1].sleepers.Load() != 0 {
					t.Error("sleepers are left in the count")
				}
			})
		}
	}
}

// A raise beyond what is waited for ends the wait, and one below does not.
func TestWaitIsForAtLeast(t *testing.T) {
	f := flags(1)[0]
	w := New(Config{Ranks: 2})
	f.Raise(3)
	for n := range uint64(4) {
		if err := w.AtLeast(f, n, healthy{}, 0, 0); err != nil {
			t.Errorf("counter 3, waiting for %d: %v", n, err)
		}
	}
	if err := w.AtLeast(f, 4, healthy{}, 0, 0); !errors.Is(err, ErrTimeout) {
		t.Errorf("asking for 4: %v", err)
	}
	f.Raise(1 << 40) // the kernel compares the low half only
	go func() { time.Sleep(4 * yielding); f.Raise(2 << 40) }()
	if err := w.AtLeast(f, 1<<40+1, healthy{}, 0, patience); err != nil || f.Load() != 2<<40 {
		t.Error(err, f.Load())
	}
}

func TestWaitTimesOut(t *testing.T) {
	leakcheck.Check(t)
	for name, cfg := range configs() {
		w := New(cfg)
		for _, d := range []time.Duration{-1, 0, 1, 100 * time.Microsecond, 5 * time.Millisecond} {
			f, start := flags(1)[0], time.Now()
			if err := w.AtLeast(f, 1, healthy{}, 0, d); !errors.Is(err, ErrTimeout) {
				t.Errorf("%s, %v: got %v", name, d, err)
			}
			if since := time.Since(start); since < d {
				t.Errorf("%s, %v: gave up after %v", name, d, since)
			}
		}
	}
}

// A fault ends a wait in any phase, but not one whose counter is there.
func TestWaitEndsWithThePeer(t *testing.T) {
	gone := errors.New("gone")
	for name, cfg := range configs() {
		for _, after := range []time.Duration{0, 100 * time.Microsecond, 5 * time.Millisecond} {
			w, f, s := New(cfg), flags(1)[0], &sick{peer: 7}
			go func() { time.Sleep(after); s.err.Store(&gone) }()
			if err := w.AtLeast(f, 1, s, 7, patience); err != gone {
				t.Errorf("%s, %v: got %v", name, after, err)
			}
			if err := w.AtLeast(f, 1, s, 6, time.Millisecond); !errors.Is(err, ErrTimeout) {
				t.Errorf("%s: another peer's fault: got %v", name, err)
			}
			f.Raise(1)
			if err := w.waitLong(f, 1, s, 7, patience); err != nil {
				t.Errorf("%s: what came before the fault: %v", name, err)
			}
		}
	}
}

// With one scheduler thread a wait leaves it to those who compute, sleeping or
// not: the one who raises is itself a goroutine of this thread.
func TestWaitLeavesTheThreadToOthers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, cfg := range configs() {
		w, f := New(cfg), flags(1)[0]
		var turns atomic.Int64
		done := make(chan error)
		go func() { done <- w.AtLeast(f, 1, healthy{}, 0, patience) }()
		for range 2000 {
			turns.Add(1)
			runtime.Gosched()
		}
		f.Raise(1)
		if err := <-done; err != nil {
			t.Errorf("%s: %v after %d turns", name, err, turns.Load())
		}
	}
}

// A wait of seconds sleeps, also where others always run: on a host whose cores
// are busy the other goroutines seem to, and it would take a third of a core.
func TestLongWaitSleeps(t *testing.T) {
	for _, c := range []struct{ waited, idle, want, roomy, behind time.Duration }{
		{0, 0, 0, 0, 0},
		{yieldingBehind, yieldingBehind, 0, 0, 0},
		{yielding, yielding, 0, 0, nap},
		{2 * yielding, 2 * yielding, nap, 0, nap},
		{roomyYielding + 1, roomyYielding + 1, nap, nap, nap},
		{long, 0, 0, 0, 0}, // others compute on this thread
		{long, 2 * yielding, nap, 0, nap},
		{long + 1, 0, longNap, longNap, longNap},
		{time.Hour, time.Hour, longNap, longNap, longNap},
	} {
		roomy := Waiter{roomy: true}
		behind := roomy.WhileComputing()
		for _, one := range []struct {
			who     string
			w       *Waiter
			company bool
			want    time.Duration
		}{
			{"a rank", &Waiter{}, false, c.want}, {"one whose core others need", &roomy, true, c.want},
			{"one whose core nobody needs", &roomy, false, c.roomy}, {"one that computes", &behind, false, c.behind},
		} {
			if got := one.w.sleepTime(c.waited, c.idle, one.company); got != one.want {
				t.Errorf("%s, after %v, idle for %v: %v, want %v", one.who, c.waited, c.idle, got, one.want)
			}
		}
	}
}

func TestWaitAllocatesNothing(t *testing.T) {
	w, f := New(Config{Ranks: 2}), flags(1)[0]
	n := uint64(0)
	if a := testing.AllocsPerRun(1000, func() {
		n++
		f.Raise(n)
		if w.AtLeast(f, n, healthy{}, 0, patience) != nil {
			t.Fatal("not there")
		}
	}); a != 0 {
		t.Errorf("a wait for what is there allocates %v times", a)
	}
	s := new(sick)
	if a := testing.AllocsPerRun(5, func() {
		if w.AtLeast(f, n+1, s, 0, 3*time.Millisecond) != ErrTimeout {
			t.Fatal("no timeout")
		}
	}); a != 0 {
		t.Errorf("a wait that sleeps allocates %v times", a)
	}
}

// suspended is a peer without faults; once, while one waits for it, this process is suspended for an hour.
type suspended struct{ asked *int }

func (s suspended) Fault(int) error {
	if *s.asked++; *s.asked == 50 {
		time.Sleep(time.Hour)
	}
	time.Sleep(10 * time.Millisecond) // the clock of a synctest bubble goes on only so
	return nil
}

// A timeout does not count time in which this process was suspended.
func TestSuspendedWait(t *testing.T) {
	const timeout = time.Second
	synctest.Test(t, func(t *testing.T) {
		w, f, asked, start := New(Config{Ranks: 2, Cores: 2}), flags(1), 0, time.Now()
		err := w.AtLeast(f[0], 1, suspended{&asked}, 0, timeout)
		if ran := time.Since(start) - time.Hour; err != ErrTimeout || ran < timeout-50*time.Millisecond || ran > timeout+50*time.Millisecond {
			t.Errorf("%v after %v, want %v after %v", err, ran, ErrTimeout, timeout)
		}
	})
}

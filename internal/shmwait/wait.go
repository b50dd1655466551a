package shmwait

import (
	"errors"
	"runtime"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// ErrTimeout means that the counter did not reach the value in time.
var ErrTimeout = errors.New("timed out")

// Faulter reports the end of peers, such as transport.Mesh. Fault returns nil while a peer can
// still raise its flag, and should be very cheap.
type Faulter interface {
	Fault(peer int) error
}

// Config describes the waiting ranks.
type Config struct {
	// Ranks is the number of ranks waiting for each other on this host.
	Ranks int
	// Cores is the number of processors available to the ranks together; 0 means as many as ranks.
	Cores int
	// OneProcess reports whether the ranks are goroutines of this process: a wait then yields to
	// goroutines first, and to other processes only by sleeping.
	OneProcess bool
	// Seats are the last known processors of all ranks, this rank's at Me. Empty means that waits
	// do not depend on processors.
	Seats []*Seat
	Me    int
}

// Phases of a wait, in order.
const (
	// spins is the number of reads of the counter (Flag.Spin) before any other step: 1 to 3 us. In
	// company the awaited rank may need this core.
	spins          = 64
	spinsInCompany = 2
	// respins is the number of reads between two yields in company. After a yield that returned
	// immediately, without another thread on the core, the number doubles, up to mostRespins: a
	// change between reads is detected within nanoseconds.
	respins, mostRespins = 2, 128
	alone                = time.Microsecond // maximum duration of a yield without other threads
	// roomySpins is respins if no other rank can need the core.
	roomySpins = 16
	// look and roomyLook are the rounds, some microseconds, between checks of clock and peer.
	look, roomyLook = 16, 64
	// yielding is the time of yields before a sleep, and roomyYielding if they take no rank's core.
	yielding, roomyYielding = time.Millisecond, 3 * time.Millisecond
	// yieldingBehind replaces yielding if this rank computes during waits: a yield can delay the
	// computation for long, a sleep cannot. Most simultaneous arrivals need less time.
	yieldingBehind = 100 * time.Microsecond
	// nap limits a sleep, so that an error of the peer is noticed, and longNap a sleep in a wait
	// longer than long: such a wait is for a stopped or very slow peer, and may last for minutes.
	nap     = 2 * time.Millisecond
	longNap = 10 * time.Millisecond
	long    = 100 * time.Millisecond
	// yieldInterval is the duration of a yield to other runnable goroutines.
	yieldInterval = 5 * time.Microsecond
)

// Waiter waits in a way suited to the ranks and cores. The only state are the seats: a Waiter is
// safe for concurrent use. The zero value is for ranks with a core each.
type Waiter struct {
	seats      []*Seat
	me         int
	crowded    bool // more ranks than cores, or goroutines than threads
	roomy      bool // enough cores for all threads of all ranks, on separate seats
	oneProcess bool
	computing  bool // this rank computes during waits
	gosched    int  // rounds between calls of runtime.Gosched
}

// New returns the Waiter for a configuration, and for the current GOMAXPROCS.
func New(cfg Config) Waiter {
	w := Waiter{oneProcess: cfg.OneProcess, gosched: look, crowded: cfg.Cores > 0 && cfg.Ranks > cfg.Cores}
	threads := runtime.GOMAXPROCS(0)
	if cfg.OneProcess {
		w.crowded = w.crowded || cfg.Ranks > threads
	} else if len(cfg.Seats) == cfg.Ranks {
		w.seats, w.me = cfg.Seats, cfg.Me
		if w.Sit() {
			w.roomy = cfg.Ranks*threads <= cfg.Cores
		} else {
			w.seats = nil
		}
	}
	// With several threads Gosched wakes an idle thread, at a cost of microseconds for both, and is
	// useless: an idle thread would already run runnable goroutines.
	if threads == 1 {
		w.gosched = 2
	}
	return w
}

// WhileComputing returns a Waiter that sleeps early, for a rank computing on other threads.
func (w Waiter) WhileComputing() Waiter {
	w.computing = true
	return w
}

// AtLeast returns when f's counter is at least n, without allocating. AtLeast returns the error of
// peers.Fault(peer), or ErrTimeout after timeout, excluding suspensions of this process. A timeout
// <= 0 only checks. The counter takes precedence: a raise before an error is not lost.
func (w *Waiter) AtLeast(f *Flag, n uint64, peers Faulter, peer int, timeout time.Duration) error {
	if f.n.Load() >= n {
		return nil
	}
	return w.wait(f, n, peers, peer, timeout)
}

func (w *Waiter) wait(f *Flag, n uint64, peers Faulter, peer int, timeout time.Duration) error {
	if timeout > 0 {
		count := spins
		if w.InCompany() {
			count = spinsInCompany
		}
		if f.Spin(n, count) {
			return nil
		}
	}
	return w.waitLong(f, n, peers, peer, timeout)
}

func (w *Waiter) waitLong(f *Flag, n uint64, peers Faulter, peer int, timeout time.Duration) error {
	start := time.Now()
	patience := liveness.NewPatience(timeout, start)
	idle := start // time since this wait last saw another thread run
	spins := respins
	// Most waits end before a system call for this rank's processor is worthwhile.
	for company := w.InCompany(); ; company = w.sitDown() {
		if w.yield(f, n, company, &spins) {
			return nil
		}
		now := time.Now()
		if err := ended(f, n, peers, peer, patience.Spent(now)); err != nil || f.n.Load() >= n {
			return err
		}
		runtime.Gosched()
		if f.n.Load() >= n {
			return nil
		}
		since := time.Now()
		if since.Sub(now) > yieldInterval {
			idle = since // other threads compute, and a sleep would delay them
		}
		if d := w.sleepTime(since.Sub(start), since.Sub(idle), company); d > 0 {
			f.sleep(n, min(d, patience.Wait()))
		}
	}
}

// sleepTime returns the duration of a sleep, or 0 if a sleep is not due. The wait has lasted
// waited, and no other thread has run during its last part, idle.
func (w *Waiter) sleepTime(waited, idle time.Duration, company bool) time.Duration {
	most := yielding
	switch {
	case w.computing:
		most = yieldingBehind
	case w.roomy && !company:
		most = roomyYielding
	}
	switch {
	case waited > long:
		return longNap
	case idle > most:
		return nap
	}
	return 0
}

// ended returns the reason for a wait's end, or nil. The peer's raises precede its end.
func ended(f *Flag, n uint64, peers Faulter, peer int, late bool) error {
	err := peers.Fault(peer)
	if err == nil && late {
		err = ErrTimeout
	}
	if err != nil && f.n.Load() >= n {
		return nil
	}
	return err
}

// yield reads the counter between yields, and reports whether the value is reached.
func (w *Waiter) yield(f *Flag, n uint64, company bool, spins *int) bool {
	rounds, roomy := look, w.roomy && !company
	if roomy {
		rounds, *spins = roomyLook, roomySpins
	}
	for i := range rounds {
		switch {
		case w.oneProcess || i%w.gosched == 1:
			runtime.Gosched()
		case roomy:
		case company:
			*spins = respins
			yieldCore()
		default:
			*spins = giveWay(*spins)
		}
		if f.Spin(n, *spins) {
			return true
		}
	}
	return false
}

// giveWay yields the core, and returns the next number of reads.
func giveWay(spins int) int {
	start := time.Now()
	yieldCore()
	if time.Since(start) > alone {
		return respins
	}
	return min(2*spins, mostRespins)
}

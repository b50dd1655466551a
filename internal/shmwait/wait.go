package shmwait

import (
	"errors"
	"runtime"
	"time"

	"github.com/ringo-ml/ringo/internal/liveness"
)

// ErrTimeout: the counter did not get there in time.
var ErrTimeout = errors.New("timed out")

// Faulter knows why a peer will not raise its flag any more; transport.Mesh is
// one. Fault returns nil while all is well and should cost next to nothing.
type Faulter interface {
	Fault(peer int) error
}

// Config says who waits for whom.
type Config struct {
	// Ranks is how many ranks wait for each other on this host.
	Ranks int
	// Cores is how many processors they have together; 0: as many as ranks.
	Cores int
	// OneProcess says that the ranks are goroutines of this process: then a wait
	// gives way to goroutines first, and to other processes only when it sleeps.
	OneProcess bool
	// Seats are those of all ranks, this one's at Me; none: where the others run is not known.
	Seats []*Seat
	Me    int
}

// The phases of a wait, in turn.
const (
	// spins is how often the counter is looked at (Flag.Spin) before anything else is
	// done: 1 to 3 us. In company who is waited for may need this very core.
	spins          = 64
	spinsInCompany = 2
	// respins is how often it is looked at between two system calls in company. Where
	// a call returns at once nobody else was there, and twice as many follow, up to
	// mostRespins: who comes between two looks is noticed within nanoseconds.
	respins, mostRespins = 2, 128
	alone                = time.Microsecond // what such a call takes at most
	// roomySpins is the same where nobody else can need the core.
	roomySpins = 16
	// look and roomyLook are how many rounds pass between two looks at the clock, the
	// peer and the deadline: some microseconds.
	look, roomyLook = 16, 64
	// yielding is how long a wait yields before it sleeps, and roomyYielding how long
	// where that takes the core from nobody.
	yielding, roomyYielding = time.Millisecond, 3 * time.Millisecond
	// yieldingBehind is that of a wait behind a computation: a yield takes the core from it for as long as the system likes, and
	// a sleep costs it nothing. Most of those who come at about the same time come within it.
	yieldingBehind = 100 * time.Microsecond
	// nap bounds a sleep, so that a fault of the peer is noticed, and longNap one
	// of a wait that has lasted for long, whatever else runs here: such a wait is
	// for a peer that is stopped or slow by far, and may last for minutes.
	nap     = 2 * time.Millisecond
	longNap = 10 * time.Millisecond
	long    = 100 * time.Millisecond
	// yieldInterval is how long giving way to other goroutines takes when there are any.
	yieldInterval = 5 * time.Microsecond
)

// Waiter waits as suits ranks and cores. It has no state but the seats: any number of
// goroutines may use it. The zero value is for ranks with a core each.
type Waiter struct {
	seats      []*Seat
	me         int
	crowded    bool // more ranks than cores, or goroutines than threads
	roomy      bool // no thread of a rank needs another's core, if they sit apart
	oneProcess bool
	computing  bool // this rank computes while it waits
	gosched    int  // rounds between two runtime.Gosched
}

// New returns the waiter for so many ranks and cores, and for the GOMAXPROCS of
// the time of the call.
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
	// With several threads Gosched wakes an idle one, which costs both of them
	// microseconds, and says nothing: an idle thread would run what is runnable.
	if threads == 1 {
		w.gosched = 2
	}
	return w
}

// WhileComputing is w for waits of a rank that computes meanwhile, on other threads: they sleep
// soon.
func (w Waiter) WhileComputing() Waiter {
	w.computing = true
	return w
}

// AtLeast returns when the counter of f is at least n: at once if it is, and
// else after a wait that allocates nothing. It fails with what peers says of
// peer once that is not nil, and with ErrTimeout when the timeout has passed, of
// which time in which this process was suspended does not count;
// one of zero or less only asks. The counter counts first: what was raised
// before a fault is not lost.
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

// waitLong yields, and later sleeps.
func (w *Waiter) waitLong(f *Flag, n uint64, peers Faulter, peer int, timeout time.Duration) error {
	start := time.Now()
	patience := liveness.NewPatience(timeout, start)
	idle := start // since when nothing else was seen to run here
	spins := respins
	// Most waits end before it is worth a system call to look where this rank runs.
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
			idle = since // others compute here, and a sleep would hold them up
		}
		if d := w.sleepTime(since.Sub(start), since.Sub(idle), company); d > 0 {
			f.sleep(n, min(d, patience.Wait()))
		}
	}
}

// sleepTime is for how long a wait may sleep that has lasted for waited and in
// whose last part, idle, nothing else ran here; 0: not yet.
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

// ended returns why a wait cannot go on, or nil. What the peer has done counts
// before its end does.
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

// yield looks at the counter between so many calls that give way to others, and
// reports whether it is there.
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

// giveWay yields the core, and returns how many looks follow after so many before.
func giveWay(spins int) int {
	start := time.Now()
	yieldCore()
	if time.Since(start) > alone {
		return respins
	}
	return min(2*spins, mostRespins)
}

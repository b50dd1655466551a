package tcp

import (
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/transport"
)

// A poller reads until nothing has come for its stream's spin time. Most
// messages that are late are so by tens of microseconds; in the middle of a large
// transfer the peer may copy for hundreds before it sends again. So the time
// doubles when polling paid and halves when it did not.
const (
	shortSpin = 50 * time.Microsecond
	longSpin  = 400 * time.Microsecond
	// crowdedWait is for how long a rank that shares its core waits in the kernel
	// before it parks: it is woken by the message and keeps nobody from running.
	crowdedWait = 5 * time.Millisecond
	// triesPerLook is how often a poller reads between two looks at the clock.
	triesPerLook = 8
	// inLine is for how long a rank that shares its core lets others run and reads
	// before it waits in the kernel, which costs two switches and, when the core has
	// nothing else to do, waking it: in a virtual machine more than the message takes.
	inLine = time.Millisecond
	// yielded is from when on a yield has let another goroutine or thread run. Who has
	// polled for less gives way to nobody.
	yielded = 10 * time.Microsecond
)

// manners are how those who wait for a message go about it.
type manners struct {
	crowded bool // this host has more ranks than cores, or than a quota lets run: nobody spins
	yield   bool // there is one thread for all goroutines: others may need it
}

func mannersOf(cfg Config) manners {
	ranks := cfg.LocalRanks
	if ranks == 0 {
		ranks = localRanks(cfg)
	}
	return manners{
		crowded: crowded(ranks, runtime.NumCPU(), onlineCores()) || placement.WithinQuota(ranks) < ranks,
		yield:   runtime.GOMAXPROCS(0) == 1,
	}
}

// localRanks counts the ranks with this rank's host in their address.
func localRanks(cfg Config) int {
	if cfg.Rank >= len(cfg.Addrs) {
		return cfg.Size
	}
	mine, _, _ := net.SplitHostPort(cfg.Addrs[cfg.Rank])
	n := 0
	for _, a := range cfg.Addrs {
		if host, _, _ := net.SplitHostPort(a); host == mine {
			n++
		}
	}
	return n
}

// crowded reports whether ranks have to share cores. Each may run on mine; if
// that is not enough for all, they may still have been bound to different ones
// of those that are online.
func crowded(ranks, mine, online int) bool { return ranks > mine && ranks*mine > online }

// onlineCores is how many cores this host has, as far as it says.
func onlineCores() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	return countCores(strings.TrimSpace(string(text)))
}

// countCores counts a list like "0-3,7".
func countCores(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, ranges := strings.Cut(part, "-")
		lo, err := strconv.Atoi(first)
		if err != nil {
			return runtime.NumCPU()
		}
		hi := lo
		if ranges {
			if hi, err = strconv.Atoi(last); err != nil || hi < lo {
				return runtime.NumCPU()
			}
		}
		n += hi - lo + 1
	}
	return n
}

// Poll reads the connection that r's message will come by on the goroutine that
// waits for it. Neither a switch of goroutines nor of threads is then on the
// message's way. See transport.Driver.
func (p *peer) Poll(r *transport.Recv, timeout time.Duration) {
	s := p.stream(r.Tag(), r.Len())
	if !s.take() {
		return // somebody else polls and brings what comes for r too
	}
	defer s.release()
	s.polls.Add(1)
	if !s.poll(r) || r.Done() || timeout <= 0 {
		return
	}
	if p.mesh.manners.crowded {
		s.waitInLine(r, timeout)
		return
	}
	spin := min(s.spin, timeout)
	start, seen := time.Now(), s.received.Load()
	yields := 0 // in a row that let others run
	for now := start; ; {
		for range triesPerLook {
			if !s.poll(r) {
				return
			}
			if r.Done() {
				s.spin = min(2*s.spin, longSpin)
				return
			}
		}
		now = time.Now()
		if received := s.received.Load(); received != seen {
			start, seen = now, received
		}
		if now.Sub(start) > yielded && gaveWay(now) {
			s.waitInLine(r, timeout)
			return
		}
		if p.mesh.manners.yield && othersRun(now) {
			yields++
		} else {
			yields = 0
		}
		if now.Sub(start) >= spin || yields >= 2 {
			s.spin = max(s.spin/2, shortSpin)
			return
		}
	}
}

// waitInLine is Poll where others need this core, and may be those who could send
// the message. They are let through for a while; then the kernel wakes this thread.
func (s *stream) waitInLine(r *transport.Recv, timeout time.Duration) {
	patience := min(crowdedWait, timeout)
	start, seen := time.Now(), s.received.Load()
	for {
		for range triesPerLook {
			yieldCore()
			if !s.poll(r) || r.Done() {
				return
			}
		}
		now := time.Now()
		if received := s.received.Load(); received != seen {
			start, seen = now, received
		}
		waited := now.Sub(start)
		switch {
		case waited >= patience:
			return
		case waited < inLine:
			continue
		}
		s.sock.block(patience - waited)
		if !s.poll(r) || r.Done() {
			return
		}
	}
}

// gaveWay lets whoever waits for this core run, and reports whether there was one: a
// thread that computes, another job, a rank in another container. None of them is
// known at the start, and one that polls beside them takes their time.
func gaveWay(now time.Time) bool {
	yieldCore()
	return time.Since(now) > yielded
}

// othersRun lets other goroutines run and reports whether there were any, or
// another process took the core meanwhile. With one thread a poller would
// otherwise keep it from those who compute.
func othersRun(now time.Time) bool {
	runtime.Gosched()
	return time.Since(now) > yielded
}

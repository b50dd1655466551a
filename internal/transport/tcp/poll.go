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

// A poller reads until no data has arrived for its stream's spin time. Late messages mostly arrive
// within tens of microseconds; in a large transfer the peer may copy for hundreds of them between
// sends. The spin time therefore doubles after successful polling and halves otherwise.
const (
	shortSpin = 50 * time.Microsecond
	longSpin  = 400 * time.Microsecond
	// crowdedWait is the maximum wait in the kernel before a rank on a shared core parks: a message
	// wakes the rank, and other ranks can use the core.
	crowdedWait = 5 * time.Millisecond
	// triesPerLook is the number of reads between two reads of the clock.
	triesPerLook = 8
	// inLine is the time for which a rank on a shared core yields and reads before it waits in the
	// kernel. This wait costs two switches and, on an idle core, a wake-up: in a VM more than the
	// message itself.
	inLine = time.Millisecond
	// yielded is the minimum duration of a yield that let another goroutine or thread run.
	yielded = 10 * time.Microsecond
)

// manners are the rules of waiting for messages.
type manners struct {
	crowded bool // more ranks than cores on this host, or than the CPU quota permits: no rank spins
	short   bool // CPU quota below one processor per rank: yielding uses quota, so ranks wait in the kernel
	yield   bool // a single thread serves all goroutines: other goroutines may need the thread
}

func mannersOf(cfg Config) manners {
	ranks := cfg.LocalRanks
	if ranks == 0 {
		ranks = localRanks(cfg)
	}
	short := shortOf(placement.Quota(), ranks)
	return manners{
		crowded: short || crowded(ranks, runtime.NumCPU(), onlineCores()),
		short:   short,
		yield:   runtime.GOMAXPROCS(0) == 1,
	}
}

// shortOf reports whether a quota in processors is too small for ranks that spin. 0: no quota.
func shortOf(quota float64, ranks int) bool { return quota > 0 && quota < float64(ranks) }

// localRanks counts the addresses with this rank's host.
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

// crowded reports whether ranks must share cores. Each rank may use mine cores; even if these are
// too few for all ranks, the ranks may be bound to disjoint sets of the online cores.
func crowded(ranks, mine, online int) bool { return ranks > mine && ranks*mine > online }

func onlineCores() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return runtime.NumCPU()
	}
	return countCores(strings.TrimSpace(string(text)))
}

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

// Poll reads the connection on the waiting goroutine, without a switch. See transport.Driver.
func (p *peer) Poll(r *transport.Recv, timeout time.Duration) {
	s := p.stream(r.Tag(), r.Len())
	if !s.take() {
		return // another goroutine polls and delivers r's message too
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
	yields := 0 // consecutive yields that let others run
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

// waitInLine is Poll on a shared core. Other ranks, possibly the sender of the message, may use the
// core for a while; then the kernel wakes this thread.
func (s *stream) waitInLine(r *transport.Recv, timeout time.Duration) {
	patience, tries, line := min(crowdedWait, timeout), triesPerLook, inLine
	if s.peer.mesh.manners.short {
		tries, line = 1, 0
	}
	start, seen := time.Now(), s.received.Load()
	for {
		for range tries {
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
		case waited < line:
			continue
		}
		s.sock.block(patience - waited)
		if !s.poll(r) || r.Done() {
			return
		}
	}
}

// gaveWay yields the core and reports whether another thread ran: a computing thread, another job,
// a rank in another container. Such threads are unknown at the start; polling would take their
// time.
func gaveWay(now time.Time) bool {
	yieldCore()
	return time.Since(now) > yielded
}

// othersRun yields to other goroutines and reports whether a goroutine ran, or another process used
// the core. With a single thread a poller would otherwise block computing goroutines.
func othersRun(now time.Time) bool {
	runtime.Gosched()
	return time.Since(now) > yielded
}

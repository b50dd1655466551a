package tcp

import (
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// budget says how those who wait for a message do so before they park.
type budget struct {
	spin    time.Duration // reads again and again
	block   time.Duration // then waits in the kernel on its own thread
	crowded bool          // there are more ranks than cores
}

func budgetOf(cfg Config) budget {
	ranks := cfg.LocalRanks
	if ranks == 0 {
		ranks = localRanks(cfg)
	}
	if crowded(ranks, runtime.NumCPU(), onlineCores()) {
		return budget{block: time.Millisecond, crowded: true}
	}
	return budget{spin: 50 * time.Microsecond}
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

// triesPerLook is how often a poller reads between two looks at the clock.
const triesPerLook = 8

// Poll reads the peer's connections on the goroutine that waits for r. Neither a
// switch of goroutines nor of threads is then on the message's way. See
// transport.Driver.
func (p *peer) Poll(r *transport.Recv, timeout time.Duration) {
	s := p.streams[0]
	if !s.take() {
		return // somebody else polls and brings what comes for r too
	}
	defer s.release()
	s.polls.Add(1)
	if !s.poll(r) || r.Done() || timeout <= 0 {
		return
	}
	waits := p.mesh.waits
	start, seen := time.Now(), s.received.Load()
	for i := 1; ; i++ {
		if !s.poll(r) || r.Done() {
			return
		}
		if i%triesPerLook != 0 {
			continue
		}
		now, received := time.Now(), s.received.Load()
		if received != seen {
			start, seen = now, received
		}
		if now.Sub(start) > min(waits.spin, timeout) {
			return
		}
	}
}

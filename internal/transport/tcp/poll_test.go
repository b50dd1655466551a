package tcp

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// A quota below one processor is short for a single rank, too.
func TestShortOf(t *testing.T) {
	for _, c := range []struct {
		quota float64
		ranks int
		want  bool
	}{{0, 1, false}, {0.3, 1, true}, {1, 1, false}, {1.5, 1, false}, {1.5, 2, true}, {2, 2, false}} {
		if got := shortOf(c.quota, c.ranks); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// sleeper is a socket without data that counts reads.
type sleeper struct {
	scripted
	reads int
}

func (s *sleeper) block(d time.Duration) { time.Sleep(d) }

// A rank with a short quota waits in the kernel, and another crowded rank yields first.
func TestShortQuotaIsNotSpent(t *testing.T) {
	for _, short := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sock := new(sleeper)
			sock.pieces = func() int {
				if sock.reads++; !short {
					time.Sleep(inLine / 20) // a bubble's clock moves in sleeps only
				}
				return 0
			}
			s := reader(&sock.scripted, 1)
			s.sock, s.peer.mesh.manners = sock, manners{crowded: true, short: short}
			var r transport.Recv
			s.peer.in.Post(&r, transport.Tag{}, make([]byte, 1))
			start := time.Now()
			s.waitInLine(&r, time.Second)
			if waited := time.Since(start); waited < crowdedWait || (sock.reads <= 4) != short {
				t.Errorf("short %v: %d reads in %v", short, sock.reads, waited)
			}
		})
	}
}

func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		ranks, mine, online int
		want                bool
	}{
		{1, 1, 1, false},
		{2, 2, 2, false},
		{2, 1, 2, false}, // bound to one core each
		{2, 1, 1, true},
		{4, 2, 2, true},
		{4, 1, 2, true},
		{16, 8, 64, true},
		{16, 4, 64, false},
	} {
		if got := crowded(c.ranks, c.mine, c.online); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestCountCores(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0,2": 2, "0-1,8-15": 10, "": runtime.NumCPU(), "3-1": runtime.NumCPU(), "0-x": runtime.NumCPU()} {
		if got := countCores(list); got != want {
			t.Errorf("%q: got %d, want %d", list, got, want)
		}
	}
}

func TestLocalRanks(t *testing.T) {
	addrs := []string{"10.0.0.1:5", "10.0.0.2:5", "10.0.0.1:6", "[fe80::1]:5"}
	for rank, want := range []int{2, 1, 2, 1, 9} {
		if got := localRanks(Config{Rank: rank, Size: 9, Addrs: addrs}); got != want {
			t.Errorf("rank %d: got %d, want %d", rank, got, want)
		}
	}
}

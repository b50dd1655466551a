package tcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// peerVar holds what the second process of a benchmark needs: rank 0's address,
// the ticket, and what to do.
const peerVar = "RINGO_TCP_TEST_PEER"

// TestMain plays the second process where a benchmark has started one.
func TestMain(m *testing.M) {
	if spec := os.Getenv(peerVar); spec != "" {
		if err := playPeer(strings.Fields(spec)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// playPeer is rank 1: it mirrors what rank 0 does until that leaves.
func playPeer(spec []string) error {
	ticket, err := transport.ParseTicket(spec[1])
	if err != nil {
		return err
	}
	var size, segment int
	if _, err := fmt.Sscan(spec[2], &size); err != nil {
		return err
	}
	if _, err := fmt.Sscan(spec[3], &segment); err != nil {
		return err
	}
	m, err := New(context.Background(), Config{Rank: 1, Size: 2, Ticket: ticket, Version: "test", Addrs: spec[:1]})
	if err != nil {
		return err
	}
	defer m.Close()
	x := newExchange(m, size, segment)
	for x.run() == nil {
	}
	return nil
}

// exchange sends a buffer and receives the other's, in segments, as an
// allreduce of two ranks does, but for the adding.
type exchange struct {
	m       *Mesh
	seq     uint32
	out, in []byte
	segment int
	rs      [8]transport.Recv
}

func newExchange(m *Mesh, size, segment int) *exchange {
	return &exchange{m: m, out: make([]byte, size), in: make([]byte, size), segment: segment}
}

func (x *exchange) part(p []byte, i int) []byte {
	return p[i*x.segment : min(len(p), (i+1)*x.segment)]
}

func (x *exchange) run() error {
	x.seq++
	other, n := 1-x.m.Rank(), (len(x.out)+x.segment-1)/x.segment
	tag := func(i int) transport.Tag { return transport.Tag{Seq: x.seq, Part: uint32(i)} }
	posted, sent := 0, 0
	for got := range n {
		for ; posted < min(n, got+len(x.rs)); posted++ {
			x.m.Post(&x.rs[posted%len(x.rs)], other, tag(posted), x.part(x.in, posted))
		}
		for ; sent < min(n, got+len(x.rs)/2); sent++ {
			if err := x.m.Send(other, tag(sent), x.part(x.out, sent), time.Minute); err != nil {
				return err
			}
		}
		if err := x.rs[got%len(x.rs)].Wait(time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkProcesses is an exchange between two processes on loopback: the
// round trip of small messages, and the bandwidth in each direction of large
// ones.
func BenchmarkProcesses(b *testing.B) {
	for _, size := range []int{4, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m := twoProcesses(b, size, 256<<10)
			x := newExchange(m, size, 256<<10)
			for range 3 {
				if err := x.run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := x.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func twoProcesses(b *testing.B, size, segment int) *Mesh {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ticket := transport.NewTicket()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%v %v %d %d", peerVar, l.Addr(), ticket, size, segment))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	m, err := New(context.Background(), Config{Rank: 0, Size: 2, Ticket: ticket, Version: "test", Listener: l, Addrs: []string{l.Addr().String()}, JoinTimeout: 10 * time.Second})
	b.Cleanup(func() {
		if m != nil {
			m.Close()
		}
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
		runtime.GC()
	})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

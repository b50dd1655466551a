package tcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// peerVar holds what another process of a benchmark needs: its rank, the ticket,
// the length of the operand and of a segment, and all addresses.
const peerVar = "RINGO_TCP_TEST_PEER"

// TestMain plays another process where a benchmark has started one.
func TestMain(m *testing.M) {
	if spec := os.Getenv(peerVar); spec != "" {
		if err := playPeer(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// playPeer does what rank 0 does until that leaves. Its listener is file 3.
func playPeer(spec string) error {
	var rank, size, segment int
	var secret, addrs string
	if _, err := fmt.Sscan(spec, &rank, &secret, &size, &segment, &addrs); err != nil {
		return err
	}
	ticket, err := transport.ParseTicket(secret)
	if err != nil {
		return err
	}
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	all := strings.Split(addrs, ",")
	m, err := New(context.Background(), Config{Rank: rank, Size: len(all), Ticket: ticket, Version: "test", Listener: l, Addrs: all, JoinTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer m.Close()
	x := newExchange(m, size, segment)
	for x.run() == nil {
	}
	return nil
}

// exchange sends a buffer to another rank and receives that one's, in segments,
// with each rank whose number differs in one bit: an allreduce by recursive
// doubling, but for the adding.
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
	for bit := 1; bit < x.m.Size(); bit *= 2 {
		if err := x.with(x.m.Rank() ^ bit); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) with(other int) error {
	x.seq++
	n := (len(x.out) + x.segment - 1) / x.segment
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

// BenchmarkProcesses is an exchange between processes on loopback: the round trip
// of small messages, and the bandwidth in each direction of large ones.
func BenchmarkProcesses(b *testing.B) {
	for _, np := range []int{2, 4} {
		for _, size := range []int{4, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("np=%d/%d", np, size), func(b *testing.B) {
				x := newExchange(processes(b, np, size, 256<<10), size, 256<<10)
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
}

// processes starts all ranks but 0, which it returns.
func processes(b *testing.B, np, size, segment int) *Mesh {
	cfgs := configs(b, np)
	for r := 1; r < np; r++ {
		file, err := cfgs[r].Listener.(*net.TCPListener).File()
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %v %d %d %s", peerVar, r, cfgs[r].Ticket, size, segment, strings.Join(cfgs[r].Addrs, ",")))
		cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{file}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		file.Close()
		b.Cleanup(func() {
			if err := cmd.Wait(); err != nil {
				b.Error(err)
			}
		})
	}
	m, err := New(context.Background(), cfgs[0])
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() }) // before the others are waited for
	return m
}

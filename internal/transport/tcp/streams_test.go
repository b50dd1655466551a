package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// Large messages are spread evenly over the streams, small ones are not.
func TestStreamsShareTheLoad(t *testing.T) {
	leakcheck.Check(t)
	m := formed(t, 2, func(c *Config) { c.Streams = 3 })
	before := make([]int64, 3)
	for i, s := range m[0].peers[1].streams {
		before[i] = s.sent.Load()
	}
	for i := range 9 {
		for seq, n := range []int{100, StreamBytes} {
			tag := transport.Tag{Seq: uint32(seq), Part: uint32(i)}
			if err := m[0].Send(1, tag, bytes.Repeat([]byte{byte(i)}, n), patience); err != nil {
				t.Fatal(err)
			}
			if got, err := receive(m[1], 0, tag, n); err != nil || got[n-1] != byte(i) {
				t.Fatal(err)
			}
		}
	}
	for i, s := range m[0].peers[1].streams {
		want := int64(3 * (StreamBytes + wire.HeaderSize))
		if i == 0 {
			want += 9 * (100 + wire.HeaderSize)
		}
		if got := s.sent.Load() - before[i]; got != want {
			t.Errorf("stream %d: %d bytes, want %d", i, got, want)
		}
	}
}

// One lost stream is a lost peer, at both ends and for all streams.
func TestALostStreamIsALostPeer(t *testing.T) {
	leakcheck.Check(t)
	m := formed(t, 2, func(c *Config) { c.Streams = 3 })
	m[0].peers[1].streams[2].sock.reset()
	for r := range m {
		var lost *transport.LostError
		for part := range 3 { // every stream
			_, err := receive(m[r], 1-r, transport.Tag{Seq: 3, Part: uint32(part)}, StreamBytes)
			if !errors.As(err, &lost) || lost.Rank != 1-r {
				t.Errorf("rank %d: got %v", r, err)
			}
		}
		if err := m[r].Send(1-r, transport.Tag{}, []byte{1}, patience); !errors.As(err, &lost) {
			t.Errorf("rank %d: sending: %v", r, err)
		}
	}
}

func TestRanksMustHaveAsManyStreams(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 2)
	cfgs[0].Streams, cfgs[0].JoinTimeout = 2, 2*time.Second // in which rank 1 comes and is refused
	_, errs := join(cfgs)
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 1 has 1 streams to each rank, rank 0 has 2") {
			t.Errorf("rank %d: got %v", r, err)
		}
	}
}

// damaged writes a summed frame of which one bit is wrong.
func damaged(l *transport.Link, n int) {
	frame := make([]byte, wire.HeaderSize+n+wire.SumSize)
	wire.PutHeader((*[wire.HeaderSize]byte)(frame), wire.Header{Type: wire.Summed, Seq: 5, Length: n})
	binary.LittleEndian.PutUint32(frame[wire.HeaderSize+n:], wire.Sum(0, frame[wire.HeaderSize:][:n]))
	frame[wire.HeaderSize+n/2] ^= 4
	below(l).Write(frame)
}

// A damaged payload is never delivered, posted for or not, and names the peer.
func TestDamagedPayloads(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []int{1, 1000, 300_000} {
		for _, early := range []bool{true, false} {
			m, link := withPretender(t)
			var r transport.Recv
			dst := make([]byte, n)
			tag := transport.Tag{Seq: 5}
			if early {
				m.Post(&r, 1, tag, dst)
			}
			damaged(link, n)
			if !early {
				for m.Fault(1) == nil {
					runtime.Gosched()
				}
				m.Post(&r, 1, tag, dst)
			}
			err := r.Wait(patience)
			var lost *transport.LostError
			if !errors.As(err, &lost) || lost.Rank != 1 || !strings.Contains(err.Error(), "checksum") {
				t.Errorf("%d bytes, posted first %v: got %v", n, early, err)
			}
			link.Close()
			m.Close()
		}
	}
}

// withPretender is a mesh of two whose rank 1 is in the test's hands.
func withPretender(t *testing.T) (*Mesh, *transport.Link) {
	t.Helper()
	cfgs := configs(t, 2)
	made := make(chan *Mesh, 1)
	go func() {
		m, errs := join(cfgs[:1])
		if errs[0] != nil {
			t.Error(errs[0])
		}
		made <- m[0]
	}()
	l, _, err := transport.Dial(t.Context(), cfgs[0].Addrs[0], cfgs[0].Ticket,
		transport.Hello{Version: "test", Purpose: transport.MeshLink, Rank: 1, WorldSize: 2, Streams: 1})
	if err != nil {
		t.Fatal(err)
	}
	return <-made, l
}

// What the kernel offers is used on every connection; what it does not is an
// error that says what it offers.
func TestCongestionControl(t *testing.T) {
	if runtime.GOOS != "linux" {
		if err := CheckCongestionControl("reno"); err == nil {
			t.Error("it is not available, but no error")
		}
		return
	}
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	if err != nil {
		t.Skip(err)
	}
	for _, name := range strings.Fields(string(text)) {
		m := formed(t, 2, func(c *Config) { c.CongestionControl = name })
		for _, s := range m[0].peers[1].streams {
			if got, err := s.sock.(interface{ congestionControl() (string, error) }).congestionControl(); err != nil || got != name {
				t.Errorf("got %q, %v, want %q", got, err, name)
			}
		}
	}
	usual, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		t.Skip(err)
	}
	want := strings.TrimSpace(string(usual))
	if strings.HasPrefix(want, "bbr") { // which paces: not within a host
		want = "reno"
	}
	for _, s := range formed(t, 2, nil)[0].peers[1].streams {
		if got, err := s.sock.(interface{ congestionControl() (string, error) }).congestionControl(); err != nil || got != want {
			t.Errorf("where nothing is said: %q, %v, want %q", got, err, want)
		}
	}
	err = CheckCongestionControl("voodoo")
	if err == nil || !strings.Contains(err.Error(), `"voodoo"`) || !strings.Contains(err.Error(), "reno") {
		t.Errorf("got %v", err)
	}
}

// The mesh works over IPv6 as over IPv4.
func TestIPv6(t *testing.T) {
	leakcheck.Check(t)
	cfgs := configs(t, 3)
	for r := range cfgs {
		cfgs[r].Listener.Close()
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Skip("no IPv6 here: ", err)
		}
		cfgs[r].Listener, cfgs[r].Addrs[r] = l, l.Addr().String()
	}
	m, errs := join(cfgs)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	defer closeAll(m)
	for from := range m {
		to := (from + 1) % 3
		if err := m[from].Send(to, transport.Tag{}, []byte(fmt.Sprint(from)), patience); err != nil {
			t.Fatal(err)
		}
		if got, err := receive(m[to], from, transport.Tag{}, 1); err != nil || string(got) != fmt.Sprint(from) {
			t.Fatal(err)
		}
	}
}

package tcp

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

func pattern(n, salt int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8 + salt)
	}
	return p
}

// Lent messages come as they were, between copied ones, through small buffers, and
// where the system refuses to lend; and nothing of theirs stays open.
func TestLend(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		refuse bool
		lends  bool
	}{
		"lent":          {func(*Config) {}, false, true},
		"small buffers": {func(c *Config) { c.SocketBufferBytes = 32 << 10 }, false, true},
		"streams":       {func(c *Config) { c.Streams = 3 }, false, true},
		"checksums":     {func(c *Config) { c.Checksum = true }, false, false},
		"refused":       {func(*Config) {}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			open := openFiles(t)
			m := formed(t, 2, func(cfg *Config) { cfg.Lending = LendAlways; c.change(cfg) })
			if c.refuse {
				for _, s := range m[0].peers[1].streams {
					s.sock.(*epollSocket).pipe.refused = true
				}
			}
			sizes := []int{0, 1, lendFrom - 1, lendFrom, lendFrom + 1, 300_001, pipeBytes + 4097, 3 << 20}
			var loans [][]byte // to the end: what the collector reuses would be sent as it is then
			for i, n := range sizes {
				loans = append(loans, pattern(n, i))
			}
			sent := make(chan error, 1)
			go func() {
				for i, n := range sizes {
					if err := m[0].SendZeroCopy(1, transport.Tag{Part: uint32(2 * i)}, loans[i], patience); err != nil {
						sent <- err
						return
					}
					if err := m[0].Send(1, transport.Tag{Part: uint32(2*i + 1)}, pattern(n/2, -i), patience); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			for i, n := range sizes {
				got, err := receive(m[1], 0, transport.Tag{Part: uint32(2 * i)}, n)
				if err != nil || !bytes.Equal(got, loans[i]) {
					t.Fatalf("lent message of %d bytes: differs, or %v", n, err)
				}
				got, err = receive(m[1], 0, transport.Tag{Part: uint32(2*i + 1)}, n/2)
				if err != nil || !bytes.Equal(got, pattern(n/2, -i)) {
					t.Fatalf("message of %d bytes after a lent one: differs, or %v", n/2, err)
				}
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if lent(m[0]) != c.lends {
				t.Errorf("messages went through a pipe: %v, want %v", lent(m[0]), c.lends)
			}
			m[0].Close()
			m[1].Close()
			for end := time.Now().Add(patience); openFiles(t) > open; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d files are open after, %d before", openFiles(t), open)
				}
			}
		})
	}
}

// lent reports whether messages of rank 0 went through a pipe.
func lent(m *Mesh) bool {
	for _, s := range m.peers[1].streams {
		if s.sock.(*epollSocket).pipe.out != 0 {
			return true
		}
	}
	return false
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// What is lent is not copied: if the sender breaks the rule and writes before the
// receiver has read, the receiver sees that.
func TestLentMemoryIsRead(t *testing.T) {
	m := formed(t, 2, func(c *Config) { c.MaxUnexpectedBytes, c.Lending = 1, LendAlways })
	// The first message fills the place for what is not asked for, so that nobody
	// reads the second before its receive is posted.
	first, second := pattern(lendFrom, 1), pattern(lendFrom, 2)
	for i, p := range [][]byte{first, second} {
		if err := m[0].SendZeroCopy(1, transport.Tag{Part: uint32(i)}, p, patience); err != nil {
			t.Fatal(err)
		}
	}
	clear(second)
	if _, err := receive(m[1], 0, transport.Tag{}, len(first)); err != nil {
		t.Fatal(err)
	}
	got, err := receive(m[1], 0, transport.Tag{Part: 1}, len(second))
	if err != nil || !bytes.Equal(got, second) {
		t.Errorf("the receiver has a copy, or %v", err)
	}
}

func TestLendAllocatesNothing(t *testing.T) {
	m := formed(t, 2, func(c *Config) { c.Lending = LendAlways })
	p, dst := pattern(64<<10, 0), make([]byte, 64<<10)
	var r transport.Recv
	part := uint32(0)
	if n := testing.AllocsPerRun(50, func() {
		tag := transport.Tag{Part: part}
		part++
		m[1].Post(&r, 0, tag, dst)
		if err := m[0].SendZeroCopy(1, tag, p, patience); err != nil {
			t.Fatal(err)
		}
		if err := r.Wait(patience); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations a message", n)
	}
}

// A lent message that nobody reads ends like any other.
func TestLendToAPeerThatDoesNotReceive(t *testing.T) {
	leakcheck.Check(t)
	m := formed(t, 2, func(c *Config) { c.MaxUnexpectedBytes, c.SocketBufferBytes, c.Lending = 1<<16, 64<<10, LendAlways })
	p := pattern(1<<20, 0)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = m[0].SendZeroCopy(1, transport.Tag{Part: uint32(i)}, p, 100*time.Millisecond)
	}
	if err == nil {
		t.Error("100 MiB were sent to a peer that reads nothing")
	}
}

// A lent frame of which nothing was sent in time leaves nothing behind: the next one
// comes as it is, and not with the first one's beginning.
func TestNothingIsLeftOfALentFrame(t *testing.T) {
	leakcheck.Check(t)
	s, end := streamTo(t)
	filled := fill(t, s.sock)
	p := pattern(lendFrom, 1)
	err := s.send(wire.Header{Type: wire.Data, Seq: 1}, p, time.Millisecond, true)
	if !errors.Is(err, transport.ErrTimeout) || s.broken != nil {
		t.Fatalf("%v, and then %v", err, s.broken)
	}
	if held := s.sock.(*epollSocket).pipe.held; held != 0 {
		t.Errorf("%d bytes are kept", held)
	}
	if _, err := io.CopyN(io.Discard, end, int64(filled)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	q := pattern(lendFrom, 2)
	go func() { sent <- s.send(wire.Header{Type: wire.Data, Seq: 2}, q, patience, true) }()
	got := make([]byte, wire.HeaderSize+len(q))
	if _, err := io.ReadFull(end, got); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	h, err := wire.ParseHeader((*[wire.HeaderSize]byte)(got), wire.MaxPayload)
	if err != nil || h.Seq != 2 || !bytes.Equal(got[wire.HeaderSize:], q) {
		t.Errorf("message %d comes, %v; its payload is as it was: %v", h.Seq, err, bytes.Equal(got[wire.HeaderSize:], q))
	}
}

// streamTo returns a stream and the other end of its connection, which is one
// whose room is known: none until the other end has read.
func streamTo(t *testing.T) (*stream, *os.File) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "the other end")
	t.Cleanup(func() { theirs.Close() })
	sock := &epollSocket{fd: ends[0]}
	if sock.in, err = newGate(sock.fd, unix.EPOLLIN); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sock.close)
	s := reader(&scripted{}, 1)
	s.sock = sock
	s.writer.init(s, 0)
	return s, theirs
}

// fill writes until nothing fits, and returns how many bytes did.
func fill(t *testing.T, sock socket) (filled int) {
	t.Helper()
	for {
		n, err := sock.write([][]byte{make([]byte, 1000)})
		switch filled += n; {
		case err == errAgain:
			return filled
		case err != nil:
			t.Fatal(err)
		}
	}
}

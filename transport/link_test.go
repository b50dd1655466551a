package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/wire"
)

// links returns the two ends of a connection without its handshake.
func links(t testing.TB) (*Link, *Link) {
	t.Helper()
	l := listen(t)
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return newLink(a), newLink(b)
}

func data(seq int) wire.Header { return wire.Header{Type: wire.Data, Seq: uint32(seq)} }

func readWithin(l *Link, limit int, timeout time.Duration) (wire.Header, []byte, error) {
	l.SetReadDeadline(time.Now().Add(timeout))
	defer l.SetReadDeadline(time.Time{})
	return l.readFrame(limit)
}

// patience is for what must happen, on a machine that others use, too.
const patience = time.Minute

func readMessage(l *Link) (wire.Header, []byte, error) {
	return readWithin(l, wire.MaxPayload, patience)
}

func TestLinkCarriesFramesOfAllSizes(t *testing.T) {
	leakcheck.Check(t)
	a, b := links(t)
	sizes := []int{0, 1, 100, readAhead - wire.HeaderSize, readAhead - wire.HeaderSize + 1, readAhead, 3*readAhead + 7, 1 << 20, 5, 0, 9}
	total := int64(0)
	var writing sync.WaitGroup
	writing.Go(func() {
		for i, n := range sizes {
			a.WriteFrame(data(i), bytes.Repeat([]byte{byte(i + 1)}, n), patience)
		}
	})
	for i, n := range sizes {
		h, p, err := readMessage(b)
		if err != nil || int(h.Seq) != i || !bytes.Equal(p, bytes.Repeat([]byte{byte(i + 1)}, n)) {
			t.Fatalf("frame %d: %+v, %d bytes, %v", i, h, len(p), err)
		}
		total += int64(n + wire.HeaderSize)
		if b.Received() != total {
			t.Fatalf("frame %d: %d bytes received, want %d", i, b.Received(), total)
		}
	}
	writing.Wait() // the last frame may be here before it is counted there
	if a.Sent() != total {
		t.Errorf("%d bytes sent, want %d", a.Sent(), total)
	}
	if a.LocalAddr().String() != b.RemoteAddr().String() {
		t.Error(a.LocalAddr(), b.RemoteAddr())
	}
}

func TestLinkHasManyWriters(t *testing.T) {
	a, b := links(t)
	const writers, frames = 8, 50
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range frames {
				p := bytes.Repeat([]byte{byte(w)}, w*1000)
				if err := a.WriteFrame(wire.Header{Type: wire.Data, Group: uint32(w), Seq: uint32(i)}, p, patience); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var next [writers]uint32
	for range writers * frames {
		h, p, err := readMessage(b)
		if err != nil || h.Seq != next[h.Group] || !bytes.Equal(p, bytes.Repeat([]byte{byte(h.Group)}, int(h.Group)*1000)) {
			t.Fatal(h, err)
		}
		next[h.Group]++
	}
	all.Wait()
}

// A read that was interrupted is taken up where it was, header or payload.
func TestLinkResumesReads(t *testing.T) {
	a, b := links(t)
	var head [wire.HeaderSize]byte
	wire.PutHeader(&head, wire.Header{Type: wire.Data, Length: 1000})
	want := bytes.Repeat([]byte{7}, 1000)
	stream := append(head[:], want...)
	write := func(from, to int) {
		if _, err := a.conn.Write(stream[from:to]); err != nil {
			t.Fatal(err)
		}
	}
	interrupted := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrTimeout) {
			t.Fatalf("got %v, want a timeout", err)
		}
		b.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	}
	b.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	write(0, 10)
	_, err := b.ReadHeader()
	interrupted(err)
	write(10, 300)
	h, err := b.ReadHeader()
	for errors.Is(err, ErrTimeout) {
		b.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		h, err = b.ReadHeader()
	}
	if err != nil || h.Length != 1000 {
		t.Fatal(h, err)
	}
	dst := make([]byte, 1000)
	got, err := b.ReadPayload(dst)
	interrupted(err)
	write(300, len(stream))
	b.SetReadDeadline(time.Time{})
	n, err := b.ReadPayload(dst[got:])
	if err != nil || got+n != 1000 || !bytes.Equal(dst, want) {
		t.Fatal(got, n, err)
	}
}

// A frame that stalls in part makes the link unusable for writing, and says how
// far it came; one that waits for its turn fails on its own.
func TestLinkWriteTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		defer x.Close()
		defer y.Close()
		a := newLink(x)
		first := make(chan error, 1)
		go func() { first <- a.WriteFrame(data(0), make([]byte, 1000), time.Minute) }()
		if _, err := io.ReadFull(y, make([]byte, wire.HeaderSize+500)); err != nil {
			t.Fatal(err)
		}
		err := a.WriteFrame(data(1), nil, time.Second)
		if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "another frame") {
			t.Errorf("got %v", err)
		}
		if err := <-first; !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "does not read") {
			t.Errorf("got %v", err)
		}
		if err := a.WriteFrame(data(2), nil, time.Minute); !errors.Is(err, ErrTimeout) {
			t.Errorf("a frame was written behind half of another: %v", err)
		}
	})
}

func TestLinkEnds(t *testing.T) {
	leakcheck.Check(t)
	a, b := links(t)
	left := errors.New("left")
	if err := a.WriteFrame(wire.Header{Type: wire.Goodbye}, []byte("bye"), patience); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseWrite(patience, left); err != nil {
		t.Fatal(err)
	}
	if err := a.WriteFrame(data(0), nil, patience); err != left {
		t.Errorf("got %v, want %v", err, left)
	}
	if h, p, err := readMessage(b); err != nil || h.Type != wire.Goodbye || string(p) != "bye" {
		t.Errorf("got %v %q %v", h, p, err)
	}
	if _, err := b.ReadHeader(); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
	if err := b.WriteFrame(data(0), []byte("x"), patience); err != nil {
		t.Errorf("the other direction ended too: %v", err)
	}
	if _, p, err := readMessage(a); err != nil || string(p) != "x" {
		t.Error(p, err)
	}
	blocked := make(chan error, 1)
	go func() { _, err := a.ReadHeader(); blocked <- err }()
	a.Close()
	if err := <-blocked; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
}

func TestLinkRefusesWhatIsNoFrame(t *testing.T) {
	var long [wire.HeaderSize]byte
	wire.PutHeader(&long, wire.Header{Type: wire.Data, Length: 1 << 29})
	for _, c := range []struct {
		say  string
		want error
	}{
		{strings.Repeat("x", wire.HeaderSize), wire.ErrMagic},
		{string(long[:]), wire.ErrTooLong},
		{string(long[:10]), io.ErrUnexpectedEOF},
		{"", io.EOF},
	} {
		a, b := links(t)
		io.WriteString(a.conn, c.say)
		a.Close()
		if _, p, err := readWithin(b, 1000, patience); !errors.Is(err, c.want) || p != nil {
			t.Errorf("%q: got %d bytes, %v, want %v", c.say, len(p), err, c.want)
		}
	}
	a, b := links(t)
	io.WriteString(a.conn, string(long[:])+"part")
	a.Close()
	if _, err := b.ReadHeader(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.ReadPayload(make([]byte, 10)); n != 4 || err != io.ErrUnexpectedEOF {
		t.Error(n, err)
	}
}

func TestLinkAllocatesNothing(t *testing.T) {
	a, b := links(t)
	p, dst := make([]byte, 30000), make([]byte, 30000)
	i := 0
	n := testing.AllocsPerRun(100, func() {
		i++
		if err := a.WriteFrame(data(i), p, patience); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ReadHeader(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ReadPayload(dst); err != nil {
			t.Fatal(err)
		}
	})
	if n >= 1 {
		t.Errorf("a frame allocates %v times", n)
	}
}

// Frames that are encoded already arrive as others do, however many and long.
func TestLinkWritesEncodedFrames(t *testing.T) {
	a, b := links(t)
	var frames net.Buffers
	total := int64(0)
	for i, n := range []int{0, 5, 100000, 1 << 20} {
		f := make([]byte, wire.HeaderSize+n)
		if err := wire.PutHeader((*[wire.HeaderSize]byte)(f), wire.Header{Type: wire.Data, Seq: uint32(i), Length: n}); err != nil {
			t.Fatal(err)
		}
		for j := range n {
			f[wire.HeaderSize+j] = byte(i + 1)
		}
		frames, total = append(frames, f), total+int64(len(f))
	}
	sent := make(chan error, 1)
	go func() { sent <- a.WriteEncoded(frames, patience) }()
	for i, n := range []int{0, 5, 100000, 1 << 20} {
		h, p, err := readMessage(b)
		if err != nil || int(h.Seq) != i || !bytes.Equal(p, bytes.Repeat([]byte{byte(i + 1)}, n)) {
			t.Fatalf("frame %d: %+v, %d bytes, %v", i, h, len(p), err)
		}
	}
	if err := <-sent; err != nil || a.Sent() != total {
		t.Errorf("%d bytes sent, %v, want %d", a.Sent(), err, total)
	}
}

// Who reads slowly is waited for, who does not read at all is not.
func TestLinkWritesEncodedFramesSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		defer x.Close()
		defer y.Close()
		a := newLink(x)
		read := func(n int) {
			for range n {
				time.Sleep(900 * time.Millisecond)
				y.Read(make([]byte, 1))
			}
		}
		go read(30)
		if err := a.WriteEncoded(net.Buffers{make([]byte, 10), make([]byte, 20)}, time.Second); err != nil {
			t.Fatal(err)
		}
		if err := a.WriteEncoded(net.Buffers{make([]byte, 10)}, time.Second); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "does not read") {
			t.Errorf("got %v", err)
		}
		go read(15)
		if err := a.WriteEncoded(net.Buffers{make([]byte, 10)}, time.Second); err != nil {
			t.Errorf("nothing was written, and yet the link is of no more use: %v", err)
		}
		first := a.WriteEncoded(net.Buffers{make([]byte, 10)}, time.Second)
		if !errors.Is(first, ErrTimeout) || !strings.Contains(first.Error(), "after 5 bytes") {
			t.Errorf("got %v", first)
		}
		if err := a.WriteEncoded(net.Buffers{make([]byte, 1)}, time.Second); err != first {
			t.Errorf("a frame was written behind a part of another: %v", err)
		}
	})
}

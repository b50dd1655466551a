package connpeek

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Who says nothing is not accepted, whoever came first; who speaks is.
func TestSpeakFirst(t *testing.T) {
	if !cookies() {
		t.Skip("without SYN cookies silent ones would keep others out")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	SpeakFirst(l)
	first, second := dial(t, l), dial(t, l)
	_, _ = io.WriteString(second, "I")
	for _, want := range []net.Conn{second, first} {
		_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Second))
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RemoteAddr().String(); got != want.LocalAddr().String() {
			t.Errorf("accepted %s, want %s", got, want.LocalAddr())
		}
		_ = c.Close()
		_, _ = io.WriteString(first, "So do I")
	}
}

// A look takes nothing away, waits for nothing, and tells silence from an end.
func TestPeek(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far := dial(t, l)
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	p := make([]byte, 4)
	if n, gone := Peek(near, p); n != 0 || gone {
		t.Errorf("of one that says nothing: %d bytes, gone %v", n, gone)
	}
	_, _ = io.WriteString(far, "hello")
	_ = far.(*net.TCPConn).CloseWrite()
	one := make([]byte, 1) // waits until it is there
	_, _ = io.ReadFull(near, one)
	for range 2 {
		if n, gone := Peek(near, p); string(p[:n]) != "ello" || gone {
			t.Errorf("%q, gone %v, want ello", p[:n], gone)
		}
	}
	if rest, err := io.ReadAll(near); err != nil || !bytes.Equal(rest, []byte("ello")) {
		t.Errorf("%q, %v after two looks", rest, err)
	}
	if n, gone := Peek(near, p); n != 0 || !gone {
		t.Errorf("at the end: %d bytes, gone %v", n, gone)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if n, gone := Peek(a, p); n != 0 || gone {
		t.Errorf("of what is no socket: %d bytes, gone %v", n, gone)
	}
}

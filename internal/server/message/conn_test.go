package message

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

const silence = 10 * time.Second

// pair returns the ends of a connection in memory: a raw one that says what it likes,
// and a server's.
func pair(t testing.TB) (net.Conn, *Conn) {
	t.Helper()
	a, b := net.Pipe()
	hello := transport.Hello{Version: "1", Purpose: transport.Service}
	ticket := transport.NewTicket()
	accepted := make(chan *transport.Link, 1)
	go func() {
		link, _, _ := transport.ServerHandshake(context.Background(), b, ticket, hello, nil)
		accepted <- link
	}()
	dialled, _, err := transport.ClientHandshake(context.Background(), a, ticket, hello)
	must(t, err)
	link := <-accepted
	if link == nil {
		t.Fatal("no link")
	}
	t.Cleanup(func() { dialled.Close(); link.Close() })
	raw, _ := dialled.Detach()
	return raw, NewConn(link, Server, testLimits(), silence)
}

// frame is a frame of a headed type.
func frame(t testing.TB, typ wire.Type, h Head, body []byte) []byte {
	t.Helper()
	b := append(make([]byte, Front), body...)
	must(t, PutFront(b, typ, h))
	return b
}

func plain(t testing.TB, typ wire.Type, payload []byte) []byte {
	t.Helper()
	b, err := AppendFrame(nil, typ, payload)
	must(t, err)
	return b
}

func TestConnReadsMessages(t *testing.T) {
	keys := bytesview.Bytes([]uint64{1, 2, 3})
	plainEnd, c := pair(t)
	pull := Head{Number: 4, Step: 5, Count: 3, Table: 1, Code: FP16}
	go func() {
		for _, b := range [][]byte{
			plain(t, TypeHello, goldenHello.Append(nil)), plain(t, TypeHeartbeat, nil), frame(t, TypePullRows, pull, keys),
			plain(t, TypeHeartbeat, nil), frame(t, TypeLeave, Head{Number: 1}, nil), plain(t, TypeGoodbye, []byte("bye")),
		} {
			for len(b) > 0 { // in pieces
				n, _ := plainEnd.Write(b[:min(7, len(b))])
				if n == 0 {
					return
				}
				b = b[n:]
			}
		}
		plainEnd.Close()
	}()
	next := func(want wire.Type, head Head, body int) []byte {
		t.Helper()
		typ, h, n, err := c.Next()
		if err != nil || typ != want || h != head || n != body {
			t.Fatalf("got %s %+v with %d bytes, %v, want %s %+v with %d", Name(typ), h, n, err, Name(want), head, body)
		}
		b, err := c.ReadAll(n)
		must(t, err)
		return b
	}
	if h, err := ParseHello(next(TypeHello, Head{}, helloFixed+5+11)); err != nil || !reflect.DeepEqual(h, goldenHello) {
		t.Error(h, err)
	}
	if got := next(TypePullRows, pull, 24); !bytes.Equal(got, keys) {
		t.Errorf("% x", got)
	}
	next(TypeLeave, Head{Number: 1}, 0)
	if got := next(TypeGoodbye, Head{}, 3); string(got) != "bye" {
		t.Errorf("%q", got)
	}
	if _, _, _, err := c.Next(); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
}

// What is too long, or does not fit its head, or is the other side's to say, is
// refused before anything behind the header or the head is read.
func TestConnRefuses(t *testing.T) {
	cut := func(b []byte, n int) []byte {
		var head [wire.HeaderSize]byte
		h, err := wire.ParseHeader((*[wire.HeaderSize]byte)(b), wire.MaxPayload)
		must(t, err)
		h.Length = n
		must(t, wire.PutHeader(&head, h))
		return append(head[:], b[wire.HeaderSize:]...)
	}
	tagged := make([]byte, wire.HeaderSize)
	must(t, wire.PutHeader((*[wire.HeaderSize]byte)(tagged), wire.Header{Type: TypeHeartbeat, Part: 1}))
	pull := frame(t, TypePullRows, Head{Count: 3}, make([]byte, 24))
	for says, b := range map[string][]byte{
		"a trainer does not send rows":                 frame(t, TypeRows, Head{Count: 1}, make([]byte, 12)),
		"a trainer does not send data":                 plain(t, wire.Data, nil),
		"with a tag":                                   tagged,
		"1073741824 bytes, the limit is 432":           cut(pull, 1<<30),
		"with 400 bytes behind its head":               cut(pull, HeadSize+400),
		"a pull of rows frame of 31 bytes":             cut(pull, HeadSize-1),
		"51 keys":                                      cut(frame(t, TypePullRows, Head{Count: 51}, nil), HeadSize+8),
		"ends with 9":                                  append(append([]byte(nil), pull[:Front-1]...), 9),
		"a heartbeat frame of 5 bytes, the limit is 0": plain(t, TypeHeartbeat, []byte("alive")),
		"of 16777217 bytes, the limit is 16777216":     cut(plain(t, TypeSchema, nil), MaxSchema+1),
	} {
		raw, c := pair(t)
		go raw.Write(b)
		if _, _, n, err := c.Next(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), says) || n != 0 {
			t.Errorf("%d bytes, %v, want it to say %q", n, err, says)
		}
	}
	raw, c := pair(t)
	go raw.Write(bytes.Repeat([]byte("garbage!"), 8))
	if _, _, _, err := c.Next(); !errors.Is(err, wire.ErrMagic) {
		t.Errorf("garbage: %v", err)
	}
}

// A byte now and then keeps a connection alive, both ways; nothing for as long as
// the limit ends it.
func TestConnTellsSlowFromDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw, c := pair(t)
		body := bytes.Repeat([]byte{7}, 24)
		b := frame(t, TypePullRows, Head{Count: 3}, body)
		go func() {
			raw.Write(b[:Front]) // whoever sends a header and a head sends them at once
			for i := range body {
				time.Sleep(silence - time.Second)
				raw.Write(body[i : i+1])
			}
		}()
		_, _, n, err := c.Next()
		must(t, err)
		got, err := c.ReadAll(n)
		must(t, err)
		if !bytes.Equal(got, body) {
			t.Errorf("% x", got)
		}
		start := time.Now()
		if _, _, _, err := c.Next(); !errors.Is(err, transport.ErrTimeout) || !strings.Contains(err.Error(), "the trainer was silent for 10s") {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(start); waited != silence {
			t.Errorf("waited %v", waited)
		}
		go func() {
			one := make([]byte, 1)
			for range 40 {
				time.Sleep(silence - time.Second)
				raw.Read(one)
			}
		}()
		must(t, c.Write(net.Buffers{make([]byte, 20), make([]byte, 20)}))
		if err := c.Write(net.Buffers{make([]byte, 20)}); !errors.Is(err, transport.ErrTimeout) {
			t.Errorf("got %v", err)
		}
	})
}

// An interrupt waits for the end of a message, and holds for all that come.
func TestConnIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw, c := pair(t)
		ended := make(chan error, 1)
		go func() { _, _, _, err := c.Next(); ended <- err }()
		synctest.Wait()
		c.Interrupt()
		if err := <-ended; err != ErrInterrupted {
			t.Errorf("got %v", err)
		}
		go raw.Write(plain(t, TypeHeartbeat, nil))
		if _, _, _, err := c.Next(); err != ErrInterrupted {
			t.Errorf("got %v", err)
		}

		raw, c = pair(t)
		b := frame(t, TypePullRows, Head{Count: 3}, make([]byte, 24))
		go func() {
			raw.Write(b[:Front+5])
			time.Sleep(time.Second)
			c.Interrupt()
			time.Sleep(time.Second)
			raw.Write(b[Front+5:])
		}()
		_, _, n, err := c.Next()
		must(t, err)
		if _, err := c.ReadAll(n); err != nil {
			t.Errorf("the rest of a message: %v", err)
		}
		if _, _, _, err := c.Next(); err != ErrInterrupted {
			t.Errorf("got %v", err)
		}
	})
}

// Whatever comes is an error or a message within the limits.
func FuzzConn(f *testing.F) {
	f.Add(frame(f, TypePushRows, Head{Number: 1, Count: 2, Table: 1, Code: FP16}, make([]byte, 2*8+2*16*2)))
	f.Add(append(plain(f, TypeHello, goldenHello.Append(nil)), frame(f, TypeClock, Head{Number: 2, Step: 1}, nil)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, c := pair(t)
		go func() { raw.Write(b); raw.Close() }()
		for {
			typ, h, n, err := c.Next()
			if err != nil {
				return
			}
			if n < 0 || n > c.limits.longest(typ) {
				t.Fatalf("%s %+v with %d bytes", Name(typ), h, n)
			}
			if _, err := c.ReadAll(n); err != nil {
				return
			}
		}
	})
}

func TestConnAllocatesNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a pipe would make a timer for each deadline
	must(t, err)
	defer l.Close()
	ticket, hello := transport.NewTicket(), transport.Hello{Version: "1", Purpose: transport.Service}
	dialled := make(chan *transport.Link, 1)
	go func() {
		link, _, _ := transport.Dial(context.Background(), l.Addr().String(), ticket, hello)
		dialled <- link
	}()
	accepted, err := l.Accept()
	must(t, err)
	link, _, err := transport.ServerHandshake(context.Background(), accepted, ticket, hello, nil)
	must(t, err)
	defer link.Close()
	other := <-dialled
	defer other.Close()
	raw, _ := other.Detach()
	c := NewConn(link, Server, testLimits(), silence)
	b := frame(t, TypePushRows, Head{Number: 1, Count: 10, Table: 1}, make([]byte, 10*8+10*64))
	go func() {
		for {
			if _, err := raw.Write(b); err != nil {
				return
			}
		}
	}()
	body := make([]byte, 10*8+10*64)
	n := testing.AllocsPerRun(100, func() {
		_, _, size, err := c.Next()
		if err != nil || size != len(body) {
			t.Fatal(size, err)
		}
		must(t, c.Read(body))
	})
	if n >= 1 {
		t.Errorf("a message allocates %v times", n)
	}
}

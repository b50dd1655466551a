package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/transport"
)

// Requests on a link: a byte, and a number of bytes.
const (
	echo     = 'e' // return the bytes that follow
	take     = 't' // read the bytes, and then return one
	give     = 'g' // send bytes
	mostSent = 256 << 20
	piece    = 256 << 10
	small    = 64                     // message bytes of the round trip
	rounds   = 200                    // round trips
	enough   = 200 * time.Millisecond // minimum duration of a rate measurement
	patience = 20 * time.Second       // maximum duration of a measurement
)

type speed struct {
	RoundTrip time.Duration `json:"round_trip_ns"` // median round trip
	To        float64       `json:"to_bytes_per_s"`
	From      float64       `json:"from_bytes_per_s"`
}

func (s speed) String() string {
	return fmt.Sprintf("%s there and back, %s Gbit/s to it, %s Gbit/s from it", quantity.Duration(s.RoundTrip), quantity.Float(s.To*8/1e9), quantity.Float(s.From*8/1e9))
}

func ask(conn net.Conn, what byte, n int) error {
	b := binary.BigEndian.AppendUint32([]byte{what}, uint32(n))
	_, err := conn.Write(b)
	return err
}

// answer serves requests until the connection ends.
func answer(conn net.Conn) error {
	buf := make([]byte, piece)
	for {
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
		var head [5]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return nil // the peer has closed
		}
		if err := do(conn, head[0], int(binary.BigEndian.Uint32(head[1:])), buf); err != nil {
			return err
		}
	}
}

func do(conn net.Conn, what byte, n int, buf []byte) error {
	if n > mostSent || what == echo && n > len(buf) {
		return fmt.Errorf("%d bytes are asked for", n)
	}
	switch what {
	case echo:
		if _, err := io.ReadFull(conn, buf[:n]); err != nil {
			return err
		}
		_, err := conn.Write(buf[:n])
		return err
	case take:
		if err := swallow(conn, n, buf); err != nil {
			return err
		}
		_, err := conn.Write(buf[:1])
		return err
	case give:
		return pour(conn, n, buf)
	}
	return fmt.Errorf("%q is asked for", what)
}

func swallow(conn net.Conn, n int, buf []byte) error {
	for n > 0 {
		got, err := conn.Read(buf[:min(n, len(buf))])
		if n -= got; err != nil && n > 0 {
			return err
		}
	}
	return nil
}

func pour(conn net.Conn, n int, buf []byte) error {
	for n > 0 {
		sent, err := conn.Write(buf[:min(n, len(buf))])
		if n -= sent; err != nil {
			return err
		}
	}
	return nil
}

func measure(conn net.Conn) (s speed, err error) {
	buf := make([]byte, piece)
	_ = conn.SetDeadline(time.Now().Add(patience))
	times := make([]time.Duration, rounds)
	for i := range times {
		if times[i], err = round(conn, buf); err != nil {
			return s, fmt.Errorf("small messages: %w", err)
		}
	}
	slices.Sort(times)
	s.RoundTrip = times[rounds/2]
	if s.To, err = rate(conn, take, func(n int) error { return errors.Join(pour(conn, n, buf), swallow(conn, 1, buf)) }); err != nil {
		return s, fmt.Errorf("bytes to it: %w", err)
	}
	if s.From, err = rate(conn, give, func(n int) error { return swallow(conn, n, buf) }); err != nil {
		return s, fmt.Errorf("bytes from it: %w", err)
	}
	return s, nil
}

// round measures a round trip of a small message.
func round(conn net.Conn, buf []byte) (time.Duration, error) {
	begun := time.Now()
	err := errors.Join(ask(conn, echo, small), pour(conn, small, buf), swallow(conn, small, buf)) // one deadline for all three
	return time.Since(begun), err
}

// rate doubles the bytes until a transfer takes long enough, and returns bytes per second.
func rate(conn net.Conn, what byte, move func(n int) error) (float64, error) {
	for n := piece; ; n *= 2 {
		_ = conn.SetDeadline(time.Now().Add(patience))
		begun := time.Now()
		if err := ask(conn, what, n); err != nil {
			return 0, err
		}
		if err := move(n); err != nil {
			return 0, err
		}
		if took := time.Since(begun); took > enough || 2*n > mostSent {
			return float64(n) / took.Seconds(), nil
		}
	}
}

func hello(version string) transport.Hello {
	return transport.Hello{Version: version, Purpose: transport.Control, Rank: -1}
}

// dial connects like a job's ranks, with or without TLS, and returns the connection without frames.
func dial(ctx context.Context, addr, version string, t transport.Ticket, mode string) (net.Conn, error) {
	l, _, err := transport.Dial(ctx, addr, t.Under(transport.TLS{Mode: mode}), hello(version))
	if err != nil {
		return nil, err
	}
	conn, _ := l.Detach() // the peer sends only on request
	return conn, nil
}

// serve answers holders of the ticket sequentially, until the listener is closed.
func serve(ctx context.Context, l net.Listener, version string, t transport.Ticket, mode string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		link, _, err := transport.ServerHandshake(ctx, conn, t.Under(transport.TLS{Mode: mode}), hello(version), nil)
		if err != nil {
			continue // stranger
		}
		below, _ := link.Detach()
		stop := context.AfterFunc(ctx, func() { _ = below.Close() })
		_ = answer(below) // the peer reports errors too
		stop()
		_ = below.Close()
	}
}

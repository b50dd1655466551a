package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/internal/connpeek"
	"github.com/ringo-ml/ringo/internal/wire"
)

// AcceptLimiter limits unauthenticated connections: peers that have not yet proved that they have
// the ticket, the job's secret. A connection above the limit closes the oldest one, so that silent
// peers cannot block the port. Each kind of refusal is reported once per host.
type AcceptLimiter struct {
	slots  int
	report func(line string)

	mu       sync.Mutex
	inside   []*PendingConn // oldest first
	reported map[string]bool
	blocked  map[string]bool // kinds of connections that are closed immediately
}

// PendingConn is an unauthenticated connection.
type PendingConn struct {
	door *AcceptLimiter
	conn net.Conn
	sent bool // closed in favour of a newer connection
}

// errCrowded means that a connection was too slow and closed in favour of a newer one.
var errCrowded = errors.New("sent away because it was slow and others came")

// maxTold limits the number of refusals, by kind and host, that an AcceptLimiter reports and
// remembers.
const maxTold = 64

// NewDoor returns a limiter for at most slots unauthenticated connections. report, if not nil, gets
// a line about refused connections.
func NewDoor(slots int, report func(line string)) *AcceptLimiter {
	if report == nil {
		report = func(string) {}
	}
	return &AcceptLimiter{slots: slots, report: report, reported: map[string]bool{}, blocked: map[string]bool{}}
}

// Admit admits a connection as unauthenticated, and closes the oldest if more than slots are open.
// Call Admit before accepting the next connection: at most slots+1 descriptors are then open. Admit
// closes the connection and returns nil if the first bytes are not ringo's protocol and the host
// has sent such bytes before.
func (d *AcceptLimiter) Admit(conn net.Conn) *PendingConn {
	if d.repeats(conn) {
		_ = conn.Close()
		return nil
	}
	s := &PendingConn{door: d, conn: conn}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.inside) >= d.slots {
		oldest := d.inside[0]
		oldest.sent = true
		oldest.conn.Close()
		d.inside = slices.Delete(d.inside, 0, 1)
	}
	d.inside = append(d.inside, s)
	return s
}

// repeats reports whether conn sends foreign bytes or closes silently, as its host did before.
func (d *AcceptLimiter) repeats(conn net.Conn) bool {
	var first [len(wire.PrefaceMagic)]byte
	n, gone := connpeek.Peek(conn, first[:])
	kind := ErrNotRingo.Error()
	switch {
	case gone:
		kind = networksFault
	case n == 0, first[0] == tlsRecord, string(first[:n]) == wire.PrefaceMagic[:n]:
		return false
	}
	key := refusalKey(conn.RemoteAddr(), kind)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.blocked[key] || len(d.blocked) == maxTold {
		return true
	}
	d.blocked[key] = true
	return false
}

// Accept is ServerHandshake for an admitted connection. Call it at most once.
func (s *PendingConn) Accept(ctx context.Context, who Credentials, mine Hello, check func(Hello) error) (*Link, Hello, error) {
	d := s.door
	link, theirs, err := ServerHandshake(ctx, s.conn, who, mine, func(h Hello) error {
		d.leave(s)
		if check == nil {
			return nil
		}
		return check(h)
	})
	if d.leave(s) && err != nil {
		err = fmt.Errorf("connection from %v: %w", s.conn.RemoteAddr(), errCrowded)
	}
	if err != nil && ctx.Err() == nil {
		d.reportRefusal(s.conn.RemoteAddr(), err)
	}
	return link, theirs, err
}

// leave removes s and reports whether s had been closed in favour of a newer connection.
func (d *AcceptLimiter) leave(s *PendingConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.inside, s); i >= 0 {
		d.inside = slices.Delete(d.inside, i, i+1)
	}
	return s.sent
}

// reportRefusal reports err, with the text "connection from …", once per kind of error and host.
func (d *AcceptLimiter) reportRefusal(from net.Addr, err error) {
	key := refusalKey(from, kindOfRefusal(err))
	d.mu.Lock()
	known, full := d.reported[key], len(d.reported) >= maxTold
	if !known && !full {
		d.reported[key] = true
	}
	last := !known && !full && len(d.reported) == maxTold
	d.mu.Unlock()
	if known || full {
		return
	}
	line := fmt.Sprintf("refused a %v", err)
	if last {
		line += "; others are refused without a report"
	}
	d.report(line)
}

// refusalKey is equal for all refusals of a kind per host.
func refusalKey(from net.Addr, kind string) string {
	if tcp, ok := from.(*net.TCPAddr); ok {
		return tcp.IP.String() + " " + kind
	}
	return from.String() + " " + kind
}

// networksFault is the kind of refusals that the network causes instead of the peer.
const networksFault = "the network's fault"

// kindOfRefusal returns the kind of a refusal: only the first of a kind and host is reported. After
// the ticket was proved each error is a kind.
func kindOfRefusal(err error) string {
	for _, kind := range []error{ErrNotRingo, ErrVersion, ErrTicket, ErrCertificate, ErrTimeout, errCrowded} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if errors.Is(err, ErrRefused) {
		return err.Error()
	}
	return networksFault
}

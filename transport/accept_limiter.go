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

// AcceptLimiter accepts connections where anybody may knock. Only so many strangers are
// inside at a time, those who have not proved yet that they hold the ticket: one
// more sends the oldest away, so that silent ones keep nobody out. Each kind of
// refusal is reported once for each host.
type AcceptLimiter struct {
	slots  int
	report func(line string)

	mu       sync.Mutex
	inside   []*PendingConn // the oldest first
	reported map[string]bool
	blocked  map[string]bool // kinds of what is closed at sight from now on
}

// PendingConn is a connection whose handshake has not proved anything yet.
type PendingConn struct {
	door *AcceptLimiter
	conn net.Conn
	sent bool // away, for another one's sake
}

// errCrowded: a connection was closed because it was silent while others came.
var errCrowded = errors.New("sent away because it was slow and others came")

// maxTold is how many kinds of refusals an AcceptLimiter reports and remembers, and of how many it
// answers the first.
const maxTold = 64

// NewDoor returns a door for at most so many strangers at a time. report, if not
// nil, gets a line about refused connections.
func NewDoor(slots int, report func(line string)) *AcceptLimiter {
	if report == nil {
		report = func(string) {}
	}
	return &AcceptLimiter{slots: slots, report: report, reported: map[string]bool{}, blocked: map[string]bool{}}
}

// Admit lets a connection in as a stranger, and sends the oldest one away where there are too many.
// Who accepts connections calls it before the next one: so there are never more descriptors open
// than the door has slots, and one. It returns nil for one that it has closed at sight: what came
// is nothing that a ringo process says, and not the first such thing from its host.
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

// repeats reports whether conn says what is nothing to us, or has closed without a word, which one from its host did before.
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

// Accept is the function of that name, for one who has knocked. It is called once.
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

// leave reports whether s was sent away.
func (d *AcceptLimiter) leave(s *PendingConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.inside, s); i >= 0 {
		d.inside = slices.Delete(d.inside, i, i+1)
	}
	return s.sent
}

// reportRefusal reports err, which begins with "connection from", unless one of its kind
// from the same host was.
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

// refusalKey is the same for all refusals of a kind of one host's connections.
func refusalKey(from net.Addr, kind string) string {
	if tcp, ok := from.(*net.TCPAddr); ok {
		return tcp.IP.String() + " " + kind
	}
	return from.String() + " " + kind
}

// networksFault is the kind of refusals that say nothing about who is at the other end.
const networksFault = "the network's fault"

// kindOfRefusal is the same for those that a person would not want to read twice.
// What the holder of a ticket did wrong is always worth a line of its own.
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

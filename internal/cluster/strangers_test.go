package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// Hundreds of strangers come while a job forms and runs; it does both, and they
// are reported once for each kind.
func TestJobAmongStrangers(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	c, cfg := job(t, 3, func(c *CoordinatorConfig) {
		c.Report = func(line string) { mu.Lock(); defer mu.Unlock(); lines = append(lines, line) }
	})
	knock := func() {
		for i := range 200 {
			conn, err := net.Dial("tcp", cfg.Rendezvous)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			if i%2 == 0 {
				io.WriteString(conn, "\x00\x01\x02 and so on")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wrong := cfg
		wrong.Ticket = transport.NewTicket()
		if _, err := Join(ctx, wrong); !errors.Is(err, transport.ErrTicket) {
			t.Errorf("with a wrong ticket: %v", err)
		}
	}
	knock()
	members := joinAll(t, cfg)
	knock()
	time.Sleep(10 * time.Millisecond)
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	for r, m := range members {
		if err := errors.Join(m.Err(), m.Leave("")); err != nil || !c.HasLeft(r) {
			t.Errorf("rank %d: %v, left %v", r, err, c.HasLeft(r))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lines) == 0 || len(lines) > 5 { // garbage, crowded, the ticket, a reset connection, one that was silent for long
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

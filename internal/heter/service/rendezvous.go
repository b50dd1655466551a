package service

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/frames"
	"github.com/ringo-ml/ringo/internal/heter/message"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

// place is the rendezvous.Backend of a group: members find the first one at the port for trainers.
type place struct {
	s     *Server
	first int    // member number
	name  string // name of the rendezvous
}

// lookTimeout limits a lookup: the first member may be lost.
const lookTimeout = 2 * time.Second

// place returns nil without the addresses of heter-trainers.
func (s *Server) place(m GroupSpec) rendezvous.Backend {
	if s.cfg.Addrs == nil {
		return nil
	}
	members := sha256.Sum256(fmt.Append(nil, m.Members)) // hashed to limit the name's length
	return &place{s, m.Members[0], fmt.Sprintf("the meeting of step %d, attempt %d (%x)", m.Step, m.Attempt, members[:8])}
}

// Publish implements rendezvous.Backend.
func (p *place) Publish(_ context.Context, n rendezvous.Endpoint) (withdraw func(), err error) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posted[p.name] = n.Encode()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.posted, p.name)
	}, nil
}

// Lookup implements rendezvous.Backend.
func (p *place) Lookup(ctx context.Context, job string) (n rendezvous.Endpoint, err error) {
	cfg := &p.s.cfg
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	who := fmt.Sprintf("heter-trainer %d at %s", p.first, cfg.Addrs[p.first])
	link, _, err := transport.Dial(ctx, cfg.Addrs[p.first], cfg.Ticket, transport.Hello{Version: cfg.Version, Purpose: transport.Heter, Rank: cfg.Index, WorldSize: cfg.Trainers})
	if err != nil {
		return n, fmt.Errorf("asking %s where %s is: %w", who, p.name, err)
	}
	defer link.Close()
	defer context.AfterFunc(ctx, func() { link.Close() })()
	b, err := ask(frames.New(link, "heter-trainer", lookTimeout), p.name)
	if err != nil {
		return n, fmt.Errorf("asking %s where %s is: %w", who, p.name, err)
	}
	if len(b) == 0 {
		return n, fmt.Errorf("%s has not said yet where it listens for %s", who, p.name)
	}
	return rendezvous.Decode(b, who, job)
}

func ask(c *frames.Conn, name string) ([]byte, error) {
	if err := c.WriteFrame(message.TypeWhere, []byte(name)); err != nil {
		return nil, err
	}
	f, err := c.Header()
	if err != nil {
		return nil, err
	}
	if f.Type != message.TypeHere || f.Length > message.MaxHere {
		return nil, message.Malformed("a %s of %d bytes where a notice must come", message.Name(f.Type), f.Length)
	}
	return c.ReadAll(f.Length)
}

// tellWhere answers another heter-trainer's lookup.
func (c *conn) tellWhere(f wire.Header) error {
	if f.Length > message.MaxWhere {
		return message.Malformed("a meeting's name of %d bytes", f.Length)
	}
	name, err := c.io.ReadAll(f.Length)
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	notice := c.s.posted[string(name)]
	c.s.mu.Unlock()
	return c.io.WriteFrame(message.TypeHere, notice)
}

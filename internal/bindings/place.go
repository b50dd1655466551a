package bindings

import (
	"sync"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// Place is a rank's place in a job, from another language. The zero value takes the place from a
// launcher's variables.
type Place struct {
	// Size, Rank and Rendezvous place a rank by hand: see ringo.Config. Size 0: a launcher's place.
	Size, Rank int
	Rendezvous string
	// Heters are the addresses of all heter-trainers, for a heter-trainer placed by hand: Size is
	// the number of ranks, and Rank an index into Heters.
	Heters []string
	// Ticket is the job's secret, 64 hexadecimal digits, and TicketFile a file with the secret,
	// readable only by its owner, for a rank placed by hand; at most one is set. Without both, an
	// environment variable has the secret.
	Ticket, TicketFile string
	// Transport is "shm", "tcp" or empty: the launcher's choice, or else shm.
	Transport string
	// Bind is as in ringo.Config, but empty means none, as the threads belong to the caller's
	// program.
	Bind string
	// Algorithm is as in collective.Config.
	Algorithm string
	// Timeout bounds each wait for another rank, JoinTimeout the wait for all at the start. 0: the
	// defaults.
	Timeout, JoinTimeout time.Duration
}

// Config is the place as a ringo.Config. lookup finds environment variables.
func (p Place) Config(lookup func(string) (string, bool)) (ringo.Config, error) {
	ticket, err := p.ticket()
	if err != nil {
		return ringo.Config{}, err
	}
	c := ringo.Config{Size: p.Size, Rank: p.Rank, Rendezvous: p.Rendezvous, TicketFile: p.TicketFile, Transport: p.Transport, Bind: launch.Bind(p.Bind)}
	if c.Heters = p.Heters; len(p.Heters) > 0 {
		c.HeterTrainer = true
	}
	c.Collective.Algorithm, c.Collective.Timeout, c.Times.Join = p.Algorithm, p.Timeout, p.JoinTimeout
	c.Lookup = func(name string) (string, bool) {
		switch {
		case ticket != "" && name == launch.TicketVar:
			return ticket, true
		case ticket != "" && name == launch.TicketFileVar:
			return "", false
		}
		return lookup(name)
	}
	if _, said := c.Lookup(launch.BindVar); p.Bind == "" && !said {
		c.Bind = launch.BindNone
	}
	if err := c.Validate(); err != nil {
		return c, Misusef("%v", err)
	}
	return c, nil
}

func (p Place) ticket() (string, error) {
	if p.Ticket == "" {
		return "", nil
	}
	if p.TicketFile != "" {
		return "", Misusef("a ticket and a file with a ticket: want one of them")
	}
	t, err := transport.ParseTicket(p.Ticket)
	if err != nil {
		return "", Misusef("%v", err)
	}
	return t.String(), nil
}

// Places are the places that a launcher assigns to this process: the first one by variables, and
// one more after each loss of a rank, under `ringo run --min-np`.
type Places struct {
	mu     sync.Mutex
	opened bool
	next   *launch.Places
}

// Next returns the variables of the next place, by name: see launch.Places. Without a pipe of the
// launcher it returns lookup.
func (p *Places) Next(lookup func(string) (string, bool)) (func(string) (string, bool), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.opened {
		p.opened, p.next = true, launch.OpenPlaces(lookup)
		return lookup, nil
	}
	env, ok := p.next.Read()
	if p.next != nil && !ok {
		return nil, Misusef("the launcher has no next place for this process: its job has ended, or has lost no rank")
	}
	return func(name string) (string, bool) {
		if value, ours := env[name]; ours {
			return value, value != ""
		}
		return lookup(name)
	}, nil
}

package bindings

import (
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// Place is a rank's place in a job as another language says it. The zero value takes the place that a launcher's variables
// say.
type Place struct {
	// Size, Rank and Rendezvous place a rank by hand: see ringo.Config. Size 0: a launcher does.
	Size, Rank int
	Rendezvous string
	// Ticket is the job's secret, 64 hexadecimal digits, and TicketFile a file that holds it, which only its owner may read, for a rank
	// by hand: at most one of them. Neither: a variable says it.
	Ticket, TicketFile string
	// Transport is "shm", "tcp" or empty, which is the launcher's choice, or else shm.
	Transport string
	// Bind is as ringo.Config has it, but that empty means none: the threads are those of a program that knows more of them.
	Bind string
	// Timeout bounds each wait for another rank, JoinTimeout the wait for all at the start. 0: the defaults.
	Timeout, JoinTimeout time.Duration
}

// Config is the place as ringo.Join takes it. lookup finds variables of the environment.
func (p Place) Config(lookup func(string) (string, bool)) (ringo.Config, error) {
	ticket, err := p.ticket()
	if err != nil {
		return ringo.Config{}, err
	}
	c := ringo.Config{Size: p.Size, Rank: p.Rank, Rendezvous: p.Rendezvous, TicketFile: p.TicketFile, Transport: p.Transport, Bind: launch.Bind(p.Bind)}
	c.Collective.Timeout, c.Times.Join = p.Timeout, p.JoinTimeout
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

// ticket is the secret as text, empty where it is elsewhere.
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

package ringo

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/launch"
)

// Config places a rank in its job. The zero value takes the place that the
// launcher assigned, or, without one, is a job of one rank.
type Config struct {
	// Size, when above 0, places a rank by hand, without a launcher: it is the
	// world size. 0 takes the launcher's variables. The ticket is always taken
	// from RINGO_TICKET.
	Size int
	// Rank is this rank when Size is given, from 0 to Size-1.
	Rank int
	// Rendezvous is the HOST:PORT where rank 0 listens when Size is given.
	Rendezvous string
	// JoinTimeout bounds how long the ranks wait for each other at the start;
	// 0 means 60 s.
	JoinTimeout time.Duration
	// Heartbeat is the time between signs of life, 0 means 1 s; DeadAfter is
	// after how long without one a rank is lost, at least twice as long, 0 means
	// 10 s. All ranks and their launcher must have the same.
	Heartbeat, DeadAfter time.Duration
	// Transport is TransportSHM or TransportTCP, the same on every rank. Empty:
	// what RINGO_TRANSPORT says, or else TransportSHM.
	Transport string
	// Network says how ranks of different processes are connected.
	Network Network
	// Collective says how ranks agree. Hosts, if empty, is what the ranks find out
	// about themselves.
	Collective collective.Config
	// Report, if set, is told in one line about ranks that are slow, by the rank
	// that coordinates a job started by hand (a launcher has its own), and, by
	// rank 0, about ranks that cannot share memory.
	Report func(line string)
}

// What processes talk over.
const (
	// TransportSHM: memory that the ranks of one host share, and TCP beside it,
	// also in its place where there is none: see Job.Fallback.
	TransportSHM = "shm"
	// TransportTCP: connections alone.
	TransportTCP = "tcp"
)

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var errs []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(c.Size < 0, "size %d: want the number of ranks, or 0 for the launcher's", c.Size)
	fault(c.Size > 0 && (c.Rank < 0 || c.Rank >= c.Size), "rank %d: want 0 to %d, since the size is %d", c.Rank, c.Size-1, c.Size)
	if c.Size > 0 {
		_, port, err := net.SplitHostPort(c.Rendezvous)
		fault(err != nil || port == "", "rendezvous %q: want HOST:PORT, where rank 0 listens", c.Rendezvous)
	}
	fault(c.Size == 0 && (c.Rank != 0 || c.Rendezvous != ""),
		"rank %d and rendezvous %q place a rank by hand, which needs the size too", c.Rank, c.Rendezvous)
	fault(c.Transport != "" && c.Transport != TransportSHM && c.Transport != TransportTCP,
		"transport %q is not known: use %s, %s or nothing", c.Transport, TransportSHM, TransportTCP)
	fault(c.JoinTimeout < 0, "join timeout %v: want at least 0", c.JoinTimeout)
	fault(c.Heartbeat < 0 || c.DeadAfter < 0, "heartbeat %v, dead after %v: want at least 0", c.Heartbeat, c.DeadAfter)
	if err := c.Network.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("network: %w", err))
	}
	if err := c.Collective.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("collective: %w", err))
	}
	return errors.Join(errs...)
}

// place finds this rank's place in its job; present is false in none.
func (c Config) place(lookup func(string) (string, bool)) (env launch.Env, present bool, err error) {
	if err := c.Validate(); err != nil {
		return env, false, err
	}
	if c.Size == 0 {
		return launch.FromEnv(lookup)
	}
	if ticket, _ := lookup(launch.TicketVar); ticket == "" {
		return env, false, fmt.Errorf("%s is not set: give all ranks of a job the same 64 random hexadecimal digits", launch.TicketVar)
	}
	return launch.FromEnv(c.byHand(lookup))
}

// byHand returns the lookup of the launcher's variables in which this place
// comes before that of a launcher.
func (c Config) byHand(lookup func(string) (string, bool)) func(string) (string, bool) {
	mine := map[string]string{
		launch.RankVar:        strconv.Itoa(c.Rank),
		launch.LocalRankVar:   "0",
		launch.WorldSizeVar:   strconv.Itoa(c.Size),
		launch.RendezvousVar:  c.Rendezvous,
		launch.CoordinatorVar: "", // rank 0
	}
	return func(name string) (string, bool) {
		if v, ok := mine[name]; ok {
			return v, true
		}
		return lookup(name)
	}
}

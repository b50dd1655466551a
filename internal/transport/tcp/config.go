// Package tcp is the mesh of processes: one TCP connection between every two
// ranks, or several.
//
// Who waits for a message reads the connection that it comes by, and a goroutine
// of the connection does when nobody waits so; messages go straight into the
// slices that were posted for them. Senders write from their own goroutine.
// Neither allocates once the mesh is warm.
//
// A host that vanishes without a word while nothing is under way to it is noticed by
// the operating system's keepalive probes, within about 10 s, at no cost to messages;
// otherwise the cluster's heartbeats come first.
package tcp

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

const (
	// DefaultMaxUnexpectedBytes is how much a rank keeps from one peer for
	// receives not yet posted.
	DefaultMaxUnexpectedBytes = 256 << 20
	// MaxStreams is the largest number of connections between two ranks.
	MaxStreams = 16
	// StreamBytes is the length from which on messages are spread over streams.
	StreamBytes = 16 << 10
)

// Config says who this rank is and where the others are.
type Config struct {
	// Rank is this rank, from 0 to Size-1, and Size how many there are.
	Rank, Size int
	// Ticket is the job's secret, the same on all ranks.
	Ticket transport.Ticket
	// TLS says which connections are encrypted, the same on all ranks. Zero: those between hosts.
	TLS transport.TLS
	// Version is the program's: ranks of another one are refused.
	Version string
	// Listener is where higher ranks connect. New takes it over and closes it
	// before it returns. The last rank needs none.
	Listener net.Listener
	// Addrs are the ranks' addresses. Only those of lower ranks are used.
	Addrs []string
	// MaxUnexpectedBytes bounds what is kept from one peer for receives that
	// are not yet posted; then nothing more is read from it until one is.
	// Zero: DefaultMaxUnexpectedBytes.
	MaxUnexpectedBytes int64
	// JoinTimeout bounds New, besides its context. It must be given where there are several ranks.
	JoinTimeout time.Duration
	// SocketBufferBytes sets the kernel's buffers of each connection and
	// direction. Zero: the kernel sizes them as it goes.
	SocketBufferBytes int
	// LocalRanks is how many ranks run on this host, this one included. With
	// more of them than cores none polls for long. Zero: as many as have this
	// rank's host in Addrs, or Size when its own address is not there.
	LocalRanks int
	// Streams is how many connections there are with each rank, at most
	// MaxStreams; messages of at least StreamBytes are spread over them, each
	// whole on one. It must be the same on all ranks. Zero: 1.
	Streams int
	// CongestionControl is the algorithm that the kernel uses for each
	// connection, such as "reno", "cubic" or "bbr". Empty: the system's default,
	// and reno instead of bbr between ranks of one host.
	CongestionControl string
	// Checksum has every message followed by the CRC-32C of its payload, which
	// the receiver checks: TCP's own sum misses about one damage in 65,000.
	Checksum bool
	// Lending says whether large payloads that may be lent are sent from where they lie: LendMeasured, LendAlways
	// or LendNever. Empty: LendMeasured.
	Lending string
	// Report, if set, is told in one line about connections that were refused
	// while the mesh formed, each kind once for each host.
	Report func(line string)

	open func(*net.TCPConn) (socket, error) // for tests; nil: the system's best
}

// Validate returns everything that is wrong with the configuration.
func (c Config) Validate() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("tcp: "+format, args...))
		}
	}
	fault(c.Size < 1, "Size %d: at least 1 expected", c.Size)
	fault(c.Rank < 0 || c.Rank >= max(1, c.Size), "Rank %d: expected 0 to %d", c.Rank, max(1, c.Size)-1)
	fault(c.MaxUnexpectedBytes < 0, "MaxUnexpectedBytes %d is negative", c.MaxUnexpectedBytes)
	fault(c.SocketBufferBytes < 0, "SocketBufferBytes %d is negative", c.SocketBufferBytes)
	fault(c.LocalRanks < 0 || c.LocalRanks > max(1, c.Size), "LocalRanks %d: expected 0 to %d", c.LocalRanks, max(1, c.Size))
	if c.Streams < 0 || c.Streams > MaxStreams {
		faults = append(faults, setting.Errorf("network.streams", "%d: want 1 to %d, or 0 for 1", c.Streams, MaxStreams))
	}
	if err := CheckCongestionControl(c.CongestionControl); err != nil {
		faults = append(faults, setting.Errorf("", "CongestionControl %w", err))
	}
	if err := CheckLending(c.Lending); err != nil {
		faults = append(faults, setting.Errorf("", "Lending %w", err))
	}
	if c.Size > 1 {
		faults = append(faults, c.TLS.Validate())
		fault(c.JoinTimeout <= 0, "JoinTimeout %v: more than 0 expected", c.JoinTimeout)
		fault(len(c.Ticket) == 0, "Ticket is missing")
		fault(c.Version == "" || len(c.Version) > wire.MaxVersion, "Version %q: 1 to %d bytes expected", c.Version, wire.MaxVersion)
		fault(c.Rank < c.Size-1 && c.Listener == nil, "Listener is missing: ranks %d to %d connect to rank %d", c.Rank+1, c.Size-1, c.Rank)
		fault(len(c.Addrs) < c.Rank, "Addrs has %d entries: rank %d needs those of all lower ranks", len(c.Addrs), c.Rank)
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.MaxUnexpectedBytes == 0 {
		c.MaxUnexpectedBytes = DefaultMaxUnexpectedBytes
	}
	if c.Streams == 0 {
		c.Streams = 1
	}
	return c
}

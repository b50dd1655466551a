// Package tcp is the mesh between processes: one TCP connection or several between every two ranks.
//
// A goroutine that waits for a message reads the connection itself; otherwise the connection's own
// goroutine reads. Payloads go directly into the posted slices. Senders write from their own
// goroutine. A warm mesh allocates no memory.
//
// A host that disappears while no data is in flight to it is detected by TCP keepalive probes
// within about 10 s, at no cost to messages, unless the cluster's heartbeats detect the loss first.
package tcp

import (
	"net"
	"time"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/wire"
	"github.com/ringo-ml/ringo/transport"
)

const (
	// DefaultMaxUnexpectedBytes limits a rank's buffers per peer for receives not yet posted.
	DefaultMaxUnexpectedBytes = 256 << 20
	// MaxStreams is the largest number of connections between two ranks.
	MaxStreams = 16
	// StreamBytes is the minimum length of messages that are spread over streams.
	StreamBytes = 16 << 10
)

// Config describes this rank and the addresses of the other ranks.
type Config struct {
	// Rank is this rank, from 0 to Size-1, and Size the number of ranks.
	Rank, Size int
	// Ticket is the job's secret, the same on all ranks.
	Ticket transport.Ticket
	// TLS selects the encrypted connections, equal on all ranks. Zero means those between hosts.
	TLS transport.TLS
	// Version is the program's version: ranks with another version are refused.
	Version string
	// Listener accepts connections of higher ranks. New takes ownership and closes Listener before
	// returning. The last rank needs no Listener.
	Listener net.Listener
	// Addrs are the ranks' addresses. Only lower ranks are dialled.
	Addrs []string
	// MaxUnexpectedBytes limits the bytes buffered per peer for receives not yet posted. At the
	// limit the mesh reads no more from the peer until a post. 0 means DefaultMaxUnexpectedBytes.
	MaxUnexpectedBytes int64
	// JoinTimeout limits New, in addition to the context. Required with several ranks.
	JoinTimeout time.Duration
	// SocketBufferBytes is the kernel's buffer size per connection and direction. 0 means adaptive.
	SocketBufferBytes int
	// LocalRanks is the number of ranks on this host, including this rank. Above the number of
	// cores no rank polls for long. 0 means the Addrs on this host, or Size if unknown.
	LocalRanks int
	// Streams is the number of connections with each rank, at most MaxStreams, equal on all ranks.
	// Messages of at least StreamBytes are distributed, each on one stream. 0 means 1.
	Streams int
	// CongestionControl is the kernel's algorithm for each connection, such as "reno", "cubic" or
	// "bbr". Empty means the system default, with bbr replaced by reno between ranks of one host.
	CongestionControl string
	// Checksum appends a CRC-32C of the payload to every message, which the receiver checks: TCP's
	// own checksum misses about one corruption in 65,000.
	Checksum bool
	// Lending selects zero-copy sends: LendMeasured (default), LendAlways or LendNever.
	Lending string
	// Report, if set, gets a line about connections refused in forming, once per kind and host.
	Report func(line string)

	open func(*net.TCPConn) (socket, error) // set by tests; nil: the system's best
}

// Validate returns all errors of the configuration.
func (c Config) Validate() error {
	bad := faults.In("tcp: ")
	bad.If(c.Size < 1, "Size %d: at least 1 expected", c.Size)
	bad.If(c.Rank < 0 || c.Rank >= max(1, c.Size), "Rank %d: expected 0 to %d", c.Rank, max(1, c.Size)-1)
	bad.If(c.MaxUnexpectedBytes < 0, "MaxUnexpectedBytes %d is negative", c.MaxUnexpectedBytes)
	bad.If(c.SocketBufferBytes < 0, "SocketBufferBytes %d is negative", c.SocketBufferBytes)
	bad.If(c.LocalRanks < 0 || c.LocalRanks > max(1, c.Size), "LocalRanks %d: expected 0 to %d", c.LocalRanks, max(1, c.Size))
	if c.Streams < 0 || c.Streams > MaxStreams {
		bad.Add(setting.Errorf("", "Streams %d: want 1 to %d, or 0 for 1", c.Streams, MaxStreams))
	}
	if err := CheckCongestionControl(c.CongestionControl); err != nil {
		bad.Add(setting.Errorf("", "CongestionControl %w", err))
	}
	if err := CheckLending(c.Lending); err != nil {
		bad.Add(setting.Errorf("", "Lending %w", err))
	}
	if c.Size > 1 {
		bad.Add(c.TLS.Validate())
		bad.If(c.JoinTimeout <= 0, "JoinTimeout %v: more than 0 expected", c.JoinTimeout)
		bad.If(len(c.Ticket) == 0, "Ticket is missing")
		bad.If(c.Version == "" || len(c.Version) > wire.MaxVersion, "Version %q: 1 to %d bytes expected", c.Version, wire.MaxVersion)
		bad.If(c.Rank < c.Size-1 && c.Listener == nil, "Listener is missing: ranks %d to %d connect to rank %d", c.Rank+1, c.Size-1, c.Rank)
		bad.If(len(c.Addrs) < c.Rank, "Addrs has %d entries: rank %d needs those of all lower ranks", len(c.Addrs), c.Rank)
	}
	return bad.Err()
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

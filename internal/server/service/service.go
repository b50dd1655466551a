// Package service lets trainers pull from and push to one server's part of a job's
// tables over the network. Package ps/client is the other end, internal/server/message says what
// travels between them.
//
//	s, err := service.New(service.Config{…, Open: func(sc schema.Schema) (service.Engine, error) { … }})
//	err = s.Serve(ctx, listener)
//
// # Connections
//
// A trainer has one connection for each of its sessions. A goroutine reads a
// connection's messages and applies them one after the other; where several pulls
// follow each other a second one helps. What they answer is
// written by another, as many answers and acknowledgements at a time as there are. A
// pull that has to wait for other trainers is parked and answered later; what comes
// behind it goes on. Acknowledgements wait in a third goroutine until the changes are
// durable.
//
// A connection holds at most [Config.Replies] answers that the trainer has not read;
// then nothing more of it is read. A batch of pulls or pushes makes no garbage: its
// memory stays with the connection, at most a message for each answer and each pull
// that waits ([Config.Pulls]), and one for the change that is applied.
//
// # Who is there
//
// Both ends say something at least every [cluster.Times.Heartbeat]. A connection that is
// silent for [cluster.Times.DeadAfter] is closed; one on which bytes move, however slowly, is
// not. All absences are counted in time in which the server itself ran: one that was
// stopped for a while blames nobody. A session that connects again takes the place of its old connection. A trainer
// with a session that does not come back within [Config.Rejoin] is lost, and the engine
// decides what that means. A server ends in good order when all trainers have left.
//
// # Meetings
//
// At one of the servers trainers can meet: each brings some bytes, and when all have come each
// gets what all have brought. Who has left or is lost is not waited for.
//
// # Checkpoints of the job
//
// Trainers that have agreed on a step order the server's part of a checkpoint of the whole job.
// All order it, and each gets its number when it is written.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// LSN is the place of a change in an engine's log, for Durable.
type LSN = wal.LSN

// Engine is what a server serves: *engine.Engine, or what stands for it in tests.
//
// Join and the changes of a session (SetDense to Leave) are called by one goroutine at a
// time, everything else by many. Slices are the caller's again when a call returns. A
// change whose number the session has already had does nothing.
type Engine interface {
	// Join begins or takes up a session whose trainer holds its changes from a number
	// on, before which it has clocked a step, and returns the last number that the
	// engine has of it.
	Join(session int, from, clock uint64) (last uint64, err error)

	SetDense(session int, seq uint64, array, lo int, values []float32) (LSN, error)
	// PushRows has the counts that the table's rule wants behind each row's gradient.
	PushRows(session int, seq uint64, table int, step uint64, keys []uint64, grads []float32) (LSN, error)
	PushDense(session int, seq uint64, array int, step uint64, lo int, values []float32) (LSN, error)
	Clock(session int, seq uint64, step uint64, rate float64) (LSN, error)
	Leave(session int, seq uint64) (LSN, error)

	// Durable waits until a ticket, and with it all earlier ones of its session, is
	// as safe as the engine makes it.
	Durable(t LSN) error
	// Await waits until a trainer may pull for a step. It returns nil at once
	// where there is nothing to wait for, even if ctx is done.
	Await(ctx context.Context, trainer int, step uint64) error
	// WaitsFor is a trainer for which Await of a step waits; -1: for none, or that is not known.
	WaitsFor(step uint64) (trainer int)
	// PullRows may wait until what it counts is safe. id tells a pull that comes again, after its connection
	// broke, from a new one.
	PullRows(id rows.PullID, table int, keys []uint64, dst []float32) error
	// PeekRows is PullRows that makes no rows and counts nothing.
	PeekRows(table int, keys []uint64, dst []float32) error
	PullDense(array, lo int, dst []float32) error
	// Clocked is a step whose pushes of all trainers, and of all before it, are in what is pulled from now on.
	Clocked() uint64
	// Prefetch is told of keys whose pull waits for its step, so that their rows may come from where they lie into memory
	// meanwhile. No pull's values depend on it.
	Prefetch(ctx context.Context, table int, keys []uint64)

	// SaveStep writes the server's part of a checkpoint of the whole job after a step, once, and
	// returns its number; those of steps below oldest are not needed any more.
	SaveStep(ctx context.Context, step, oldest uint64) (number uint64, err error)

	// Lost tells that a trainer will not come back.
	Lost(trainer int, cause error) error
	// Failed is closed at the first fault that ends the engine, which Err
	// returns.
	Failed() <-chan struct{}
	Err() error
}

// Config says what a server is. The zero value is not valid: Ticket, Version, Open and
// the numbers of servers and trainers are needed.
type Config struct {
	Ticket transport.Ticket
	// TLS says which connections are encrypted, the same at both ends. Zero: those between hosts.
	TLS     transport.TLS
	Version string // of the program; trainers of other versions are refused
	Job     string // trainers of another job are refused; may be ""
	// Settings are what the server was told of its job, and what it decides itself, such as message.PathSync: trainers that
	// were told otherwise are refused.
	Settings setting.Values

	Index, Servers int // which of how many servers
	Trainers       int
	Sessions       int // of each trainer; 0: 1

	// Schema of the tables; nil: the first trainer's.
	Schema *schema.Schema
	// Begun is the schema of the tables that an earlier process of this server began, where they survive. They are opened
	// at once, so that a server whose trainers have all left ends without them. It may be nil.
	Begun *schema.Schema
	// Open makes the engine, once the schema is known. It may take its time.
	// Whoever gives it closes the engine, after Serve has returned.
	Open func(schema.Schema) (Engine, error)

	// MaxKeys and MaxValues bound a message; trainers cut longer batches. An engine
	// with a log must take records of such messages. 0: 32 Ki keys, 512 Ki values.
	MaxKeys, MaxValues int
	// Pulls is how many pulls of a connection may wait for an answer, and Replies
	// how many answers for the trainer to read them. 0: 64 and 8.
	Pulls, Replies int
	// Strangers is how many connections may be in their handshake at a time; 0: 128.
	Strangers int

	// Times say how long trainers are waited for. Join is how long one may take to come at the beginning, though not
	// to a server that takes another one's place. DeadAfter is the time without a byte after which an end is taken for
	// dead. Heartbeat is at most 5 s.
	Times cluster.Times
	// Rejoin is how long a trainer may stay away, at least Times.DeadAfter. 0 means 60 s.
	Rejoin time.Duration
	// SocketBytes are the system's buffers of a connection, each way; 0: 2 MiB.
	SocketBytes int

	// Record is where requests are recorded. It may be nil.
	Record *record.Recorder
	// Report gets a line about what a person should know: who comes, goes, is
	// refused. It may be nil; it is called by many goroutines.
	Report func(line string)
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.Sessions = cmp.Or(c.Sessions, 1)
	c.MaxKeys, c.MaxValues = cmp.Or(c.MaxKeys, 32<<10), cmp.Or(c.MaxValues, 512<<10)
	c.Pulls, c.Replies = cmp.Or(c.Pulls, 64), cmp.Or(c.Replies, 8)
	c.Strangers = cmp.Or(c.Strangers, 128)
	c.Times, c.Rejoin = c.Times.WithDefaults(), cmp.Or(c.Rejoin, time.Minute)
	c.SocketBytes = cmp.Or(c.SocketBytes, 2<<20)
	if c.Report == nil {
		c.Report = func(string) {}
	}
	return c
}

// Validate reports all faults together.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("ps: service: "+format, args...))
		}
	}
	fault(len(c.Ticket) == 0, "no ticket")
	errs = append(errs, c.TLS.Validate())
	fault(c.Version == "", "no version")
	fault(c.Open == nil, "nothing opens the engine")
	if err := c.hello().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("ps: service: %w", err))
	}
	if err := c.welcome(0).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("ps: service: %w", err))
	}
	fault(c.Replies < 1 || c.Replies > 1<<12, "%d answers to be read: want 1 to %d", c.Replies, 1<<12)
	fault(c.Strangers < 1, "%d strangers: want at least 1", c.Strangers)
	if err := c.Times.Validate(); err != nil {
		errs = append(errs, err)
	}
	if most := transport.HandshakeTimeout / 2; c.Times.Heartbeat > most {
		errs = append(errs, setting.Errorf("job.heartbeat-interval", "%v: want at most %v with servers that keep the parameters", c.Times.Heartbeat, most))
	}
	fault(c.Rejoin < c.Times.DeadAfter, "a trainer may stay away for %v: want at least %v, the silence that a connection may have", c.Rejoin, c.Times.DeadAfter)
	fault(c.SocketBytes < 4<<10, "socket buffers of %d bytes: want at least %d", c.SocketBytes, 4<<10)
	if c.Schema != nil {
		if err := c.Schema.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("ps: service: %w", err))
		}
	}
	return errors.Join(errs...)
}

// hello is what all trainers' hellos have in common.
func (c *Config) hello() message.Hello {
	return message.Hello{
		Trainers: c.Trainers, Sessions: c.Sessions, Server: c.Index, Servers: c.Servers, Job: c.Job, Settings: c.Settings, Incarnation: 1, From: 1,
	}
}

func (c *Config) welcome(last uint64) message.Welcome {
	return message.Welcome{
		Keys: c.MaxKeys, Values: c.MaxValues, Pulls: c.Pulls, Last: last, Heartbeat: c.Times.Heartbeat, Silence: c.Times.DeadAfter,
	}
}

// transportHello introduces this server to whoever connects.
func (c *Config) transportHello() transport.Hello {
	return transport.Hello{Version: c.Version, Purpose: transport.Service, Rank: c.Index, WorldSize: c.Servers}
}

// tune sets the options of a connection. They are not needed for correctness: their
// faults are left for the first read or write to show.
func tune(conn net.Conn, socketBytes int) {
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetReadBuffer(socketBytes)
		c.SetWriteBuffer(socketBytes)
	}
}

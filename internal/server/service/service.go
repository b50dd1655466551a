// Package service serves one parameter server's part of a job's tables over the network. Package
// ps/client is the other end, and internal/server/message defines the protocol.
//
//	s, err := service.New(service.Config{…, Open: openEngine})
//	err = s.Serve(ctx, listener)
//
// # Connections
//
// A trainer has one connection per session. A goroutine reads and applies a connection's messages
// sequentially; a second goroutine helps with consecutive pulls. Another goroutine writes the
// answers, as many answers and acknowledgements at a time as are ready. A pull that has to wait for
// other trainers is parked and answered later; later messages continue. A third goroutine delays
// acknowledgements until the changes are durable.
//
// A connection holds at most [Config.Replies] answers not yet read by the trainer, and then stops
// reading messages. Pulls and pushes allocate no garbage: the connection retains their memory, at
// most a message for each answer, each waiting pull ([Config.Pulls]), and the current change.
//
// # Liveness
//
// Both ends send a message at least every [cluster.Times.Heartbeat]. A connection without any bytes
// for [cluster.Times.DeadAfter] is closed, but not a slow connection. Absences are measured in the
// server's running time: a server that was stopped for a while blames no trainer. A session that
// reconnects replaces its old connection. A trainer with a session absent for more than
// [Config.Rejoin] is lost, and the engine decides the consequence. A server ends without an error
// when all trainers have left.
//
// # Gathers
//
// At one of the servers trainers can gather blobs: each trainer sends a blob, and after the last
// has arrived all trainers receive all blobs. Trainers that have left or are lost are excluded.
//
// # Checkpoints of the job
//
// Trainers that have agreed on a step request the server's part of a checkpoint of the whole job.
// All send the request, and each receives the checkpoint's number when it is written.
package service

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// LSN is the position of a change in an engine's log, for Durable.
type LSN = wal.LSN

// Engine is the served engine: *engine.Engine, which describes the methods, or a fake in tests.
//
// Join and the changes of a session (SetDense to Leave) are called by one goroutine at a time,
// other methods concurrently. Slices belong to the caller after a call returns. A change with a
// number already applied has no effect.
type Engine interface {
	Join(session int, from, clock uint64) (last uint64, err error)

	SetDense(session int, seq uint64, array, lo int, values []float32) (LSN, error)
	PushRows(session int, seq uint64, table int, step uint64, keys []uint64, grads []float32) (LSN, error)
	PushDense(session int, seq uint64, array int, step uint64, lo int, values []float32) (LSN, error)
	Clock(session int, seq uint64, step uint64, rate float64) (LSN, error)
	Leave(session int, seq uint64) (LSN, error)

	Durable(t LSN) error
	Await(ctx context.Context, trainer int, step uint64) error
	WaitsFor(step uint64) (trainer int)
	PullRows(id rows.PullID, table int, keys []uint64, dst []float32) error
	PeekRows(table int, keys []uint64, dst []float32) error
	PullDense(array, lo int, dst []float32) error
	Clocked() uint64
	Prefetch(ctx context.Context, table int, keys []uint64)
	SaveStep(ctx context.Context, step, oldest uint64) (number uint64, err error)

	Lost(trainer int, cause error) error
	Failed() <-chan struct{}
	Err() error
}

// Config configures a server. The zero value is not valid: Ticket, Version, Open and the numbers of
// servers and trainers are required.
type Config struct {
	Ticket transport.Ticket
	// TLS selects the encrypted connections, equally at both ends. Zero: connections between hosts.
	TLS     transport.TLS
	Version string // program version; trainers of other versions are rejected
	Job     string // trainers of another job are rejected; may be ""
	// Settings are the server's job settings, and its own decisions such as message.PathSync:
	// trainers with other values are rejected.
	Settings setting.Values

	Index, Servers int // number of this server, and of all servers
	Trainers       int
	Sessions       int // sessions per trainer; 0: 1

	// Schema is the schema of the tables; nil: the first trainer's.
	Schema *schema.Schema
	// Begun is the schema of tables restored from an earlier process of this server. The tables are
	// opened immediately, so that a server without remaining trainers can end. It may be nil.
	Begun *schema.Schema
	// Open makes the engine, once the schema is known. It may take long. The caller closes the
	// engine after Serve has returned.
	Open func(schema.Schema) (Engine, error)

	// MaxKeys and MaxValues limit a message; trainers split longer batches. The log of an engine
	// must accept such messages. 0: 32 Ki keys, 512 Ki values.
	MaxKeys, MaxValues int
	// Pulls is the maximum number of a connection's unanswered pulls, and Replies the maximum
	// number of answers not yet read by the trainer. 0: 64 and 8.
	Pulls, Replies int
	// Strangers is the maximum number of concurrent handshakes; 0: 128.
	Strangers int

	// Times are the time limits for trainers. Join is the limit to connect at the start of the job,
	// but not to a restarted server. DeadAfter is the time without a byte until a peer counts as
	// dead. Heartbeat is at most 5 s.
	Times cluster.Times
	// Rejoin is the maximum absence of a trainer, at least Times.DeadAfter. 0 means 60 s.
	Rejoin time.Duration
	// SocketBytes is the size of the system's buffers of a connection, each way; 0: 2 MiB.
	SocketBytes int

	// Record records the requests. It may be nil.
	Record *record.Recorder
	// Report receives lines about trainers that connect, leave or are rejected. It may be nil; many
	// goroutines call it.
	Report func(line string)
}

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

// Validate returns all errors together.
func (c Config) Validate() error {
	c = c.withDefaults()
	bad := faults.In("ps: service: ")
	bad.If(len(c.Ticket) == 0, "no ticket")
	bad.Add(c.TLS.Validate())
	bad.If(c.Version == "", "no version")
	bad.If(c.Open == nil, "nothing opens the engine")
	bad.Wrap(c.hello().Validate())
	bad.Wrap(c.welcome(0).Validate())
	bad.If(c.Replies < 1 || c.Replies > 1<<12, "%d answers to be read: want 1 to %d", c.Replies, 1<<12)
	bad.If(c.Strangers < 1, "%d strangers: want at least 1", c.Strangers)
	bad.Add(c.Times.Validate())
	if most := transport.HandshakeTimeout / 2; c.Times.Heartbeat > most {
		bad.Add(setting.Errorf("Times.Heartbeat", "%v: want at most %v with servers that keep the parameters", c.Times.Heartbeat, most))
	}
	bad.If(c.Rejoin < c.Times.DeadAfter, "a trainer may stay away for %v: want at least %v, the silence that a connection may have", c.Rejoin, c.Times.DeadAfter)
	bad.If(c.SocketBytes < 4<<10, "socket buffers of %d bytes: want at least %d", c.SocketBytes, 4<<10)
	if c.Schema != nil {
		bad.Wrap(c.Schema.Validate())
	}
	return bad.Err()
}

// hello has the common fields of all trainers' hellos.
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

func (c *Config) transportHello() transport.Hello {
	return transport.Hello{Version: c.Version, Purpose: transport.Service, Rank: c.Index, WorldSize: c.Servers}
}

// tune sets the options of a connection. Errors are ignored, because the options only affect speed.
func tune(conn net.Conn, socketBytes int) {
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetReadBuffer(socketBytes)
		c.SetWriteBuffer(socketBytes)
	}
}

// Package client connects a trainer to its job's parameter servers. Package internal/server/service
// is the other end.
//
//	c, err := client.Dial(ctx, client.Config{Servers: addresses, …})
//	session := c.Session(0)
//	next, err := session.PullRows(table, 1, keys, rows)
//	for step := uint64(1); ; step++ {
//		err = next.Wait()
//		next, err = session.PullRows(table, step+1, nextKeys, nextRows)  // overlaps this step
//		…
//		err = session.PushRows(table, step, keys, grads)
//		err = session.Clock(step, rate)
//	}
//	err = c.Leave(ctx)
//
// A session is a numbered sequence of calls over a connection to every server; a connection is
// renewed after a failure. Calls of a session reach each server in order: a pull includes the
// pushes before it, as far as the servers' consistency mode applies these. If pulls need more than
// [Config.Pulls] messages in flight, later pushes overtake the waiting pulls. Trainers with several
// concurrent batches use a session per thread.
//
// # Pushes are applied exactly once
//
// The client copies each push and numbers it. After a broken connection it sends unacknowledged
// pushes again with the same numbers, so that the server ignores repetitions. At most
// [Config.Window] changes of a session wait for a server's acknowledgement; further pushes block.
// The client retries an unreachable server with growing delays for [Config.Reconnect], then fails
// with an error that names the server.
//
// # Cost
//
// Keys are divided by server and copied once, gradients are copied (or encoded) once. Rows from a
// single server are read from the connection directly into dst; rows from several servers are
// copied to dst. A batch allocates no garbage once buffers have grown.
package client

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/faults"
	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/message/requests"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// Config identifies the trainer and its servers. The zero value is not valid: Servers, Ticket,
// Version, Trainers and Schema are required.
type Config struct {
	Servers []string // addresses by index, equal on all trainers
	Ticket  transport.Ticket
	// TLS selects the encrypted connections; it must be equal at both ends. Zero: connections
	// between hosts.
	TLS     transport.TLS
	Version string // program version
	Job     string // equal to the servers'; may be ""
	// Settings are the trainer's job settings. Servers reject a trainer with other values by a
	// *setting.ConflictError. Servers of mode geo (message.SyncGeo) accept only a trainer that sets
	// message.PathSync.
	Settings setting.Values

	Trainer, Trainers int // number of this trainer, and of all trainers
	Sessions          int // sessions per trainer; 0: 1
	// Reader makes a connection that is not a trainer: PeekRows and PullDense read running servers,
	// and all other requests fail. Job, Settings, Trainer, Trainers and Sessions have no effect.
	Reader bool
	Schema schema.Schema // schema of the tables

	// Pull and Push are the encodings of rows and of their gradients, and Dense the encoding of
	// arrays. Zero: float32.
	Pull, Push, Dense message.Code
	// Merge allows duplicate keys in a batch: each key is sent once, with the sum of its gradients
	// in order of appearance. Without Merge a pull may have duplicates, a push may not.
	Merge bool

	// Window is the maximum number of a session's changes per server that are not acknowledged.
	// Pulls is the maximum number of its requests in flight for rows or values. 0: 16 each. The
	// server may allow fewer pulls.
	Window, Pulls int
	// Reconnect is the longest time without a connection to a server, also at the start; 0: 2 min,
	// or half of Timeout if less. A server that reports that it still opens its tables counts as
	// connected.
	Reconnect time.Duration
	// Timeout is the maximum wait for an answer or an acknowledgement, without a connection
	// included. It must be longer than Reconnect, and than the servers' wait for other trainers. A
	// checkpoint of the whole job may take at least 15 min. 0: 15 min.
	Timeout time.Duration
	// Watched reports that another process, such as a launcher, monitors the servers and ends
	// servers that hang. The client then reconnects to a server that sends nothing; otherwise it
	// treats the server as lost.
	Watched bool
	// SocketBytes is the size of the system's buffers of a connection, each way; 0: 2 MiB.
	SocketBytes int

	// OnLeave, if set, is called after a successful Leave.
	OnLeave func()
	// Record records the requests to servers. It may be nil.
	Record *record.Recorder

	// Dial connects to a server; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// longest is the default Timeout, and the shortest timeout of Save.
const longest = 15 * time.Minute

func (c Config) withDefaults() Config {
	if c.Sessions = cmp.Or(c.Sessions, 1); c.Reader {
		c.Trainer, c.Trainers, c.Sessions, c.Job, c.Settings = 0, 1, 1, "", nil
	}
	c.Window, c.Pulls = cmp.Or(c.Window, 16), cmp.Or(c.Pulls, 16)
	c.Timeout = cmp.Or(c.Timeout, longest)
	c.Reconnect = cmp.Or(c.Reconnect, min(2*time.Minute, c.Timeout/2))
	c.SocketBytes = cmp.Or(c.SocketBytes, 2<<20)
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: transport.HandshakeTimeout}
			return dialer.DialContext(ctx, "tcp", addr)
		}
	}
	return c
}

// Validate returns all errors together.
func (c Config) Validate() error {
	c = c.withDefaults()
	bad := faults.In("ps: client: ")
	bad.If(len(c.Ticket) == 0, "no ticket")
	bad.Add(c.TLS.Validate())
	bad.If(c.Version == "", "no version")
	for i, addr := range c.Servers {
		bad.If(addr == "", "server %d has no address", i)
	}
	hello := message.Hello{Trainer: c.Trainer, Trainers: c.Trainers, Sessions: c.Sessions, Servers: len(c.Servers), Incarnation: 1, From: 1, Job: c.Job, Settings: c.Settings}
	bad.Wrap(hello.Validate())
	bad.Wrap(c.Schema.Validate())
	for what, code := range map[string]message.Code{"rows pulled": c.Pull, "gradients pushed": c.Push, "arrays": c.Dense} {
		bad.If(!code.Valid(), "%s in %v", what, code)
	}
	bad.If(c.Window < 1 || c.Pulls < 1, "%d changes and %d pulls under way: want at least 1 each", c.Window, c.Pulls)
	bad.If(c.Reconnect < 0 || c.Timeout <= c.Reconnect, "servers may be away for %v and take %v to answer: want more than 0, and the second to be more", c.Reconnect, c.Timeout)
	bad.If(c.SocketBytes < 4<<10, "socket buffers of %d bytes: want at least %d", c.SocketBytes, 4<<10)
	return bad.Err()
}

// Client has a trainer's connections to all servers.
type Client struct {
	cfg      Config
	hash     [32]byte // hash of the schema
	json     []byte   // encoded schema
	counts   []int    // counts after each row's gradient, by table
	process  uint64   // random number of this process
	sessions []*Session
	count    counters
	meeting  gatherState
	clock    *liveness.Clock // measures absences and waits
	record   *requests.Book

	ctx    context.Context // done when the client ends
	cancel context.CancelFunc
	links  sync.WaitGroup

	mu  sync.Mutex
	err error // first error
}

// ErrClosed is the error of a closed client.
var ErrClosed = errors.New("the client is closed")

// Dial connects all sessions to all servers. It waits within ctx and Config.Reconnect.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Client{cfg: cfg, process: 1 + rand.Uint64N(1<<63), clock: liveness.New(watchEvery)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if _, err := hex.Decode(c.hash[:], []byte(cfg.Schema.Hash())); err != nil {
		return nil, fmt.Errorf("ps: client: the schema's hash: %w", err)
	}
	c.record = requests.NewBook(cfg.Record, cfg.Sessions)
	c.record.Know(&cfg.Schema)
	var err error
	if c.json, err = json.Marshal(cfg.Schema); err != nil {
		return nil, fmt.Errorf("ps: client: the schema: %w", err)
	}
	if len(c.json) > message.MaxSchema {
		return nil, fmt.Errorf("ps: client: the schema takes %d bytes, the limit is %d", len(c.json), message.MaxSchema)
	}
	for i := range cfg.Schema.Sparse {
		c.counts = append(c.counts, cfg.Schema.Sparse[i].Counts())
	}
	for l := range cfg.Sessions {
		c.sessions = append(c.sessions, newSession(c, l))
	}
	for _, k := range c.allLinks() {
		c.links.Go(k.run)
	}
	c.links.Go(c.watch)
	if err := c.await(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// watchEvery is the interval of the checks for timeouts.
const watchEvery = 250 * time.Millisecond

// watch ends the client with an error when a message has waited longer than Timeout.
func (c *Client) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		c.clock.Tick()
		for _, l := range c.sessions {
			for _, k := range l.links {
				k.checkAges(c.clock.Now())
			}
		}
	}
}

// await blocks until every link has been connected once.
func (c *Client) await(ctx context.Context) error {
	for _, k := range c.allLinks() {
		select {
		case <-k.ready:
		case <-c.ctx.Done():
			return c.Err()
		case <-ctx.Done():
			return k.fault("connecting", 0, context.Cause(ctx))
		}
	}
	return nil
}

func (c *Client) allLinks() (out []*link) {
	for _, l := range c.sessions {
		out = append(out, l.links...)
	}
	return out
}

// Session returns a session by number, from 0.
func (c *Client) Session(i int) *Session { return c.sessions[i] }

// Err returns the error that ended the client, or nil.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done returns a channel closed at the client's end: Err returns the cause.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// fail ends the client with its first error.
func (c *Client) fail(cause error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = cause
	}
	cause = c.err
	c.mu.Unlock()
	c.cancel()
	for _, k := range c.allLinks() {
		k.abandon(cause)
	}
}

// Flush blocks until all servers have acknowledged all pushes.
func (c *Client) Flush(ctx context.Context) error {
	for _, k := range c.allLinks() {
		if err := k.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Leave reports the trainer's end to all servers, waits until they have acknowledged all changes,
// and closes the client. Servers treat a trainer that ends without Leave as lost.
func (c *Client) Leave(ctx context.Context) error {
	for _, l := range c.sessions {
		if err := l.leave(); err != nil {
			return err
		}
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	var bye sync.WaitGroup
	for _, k := range c.allLinks() {
		bye.Go(func() { k.goodbye(ctx) })
	}
	bye.Wait()
	if c.cfg.OnLeave != nil {
		c.cfg.OnLeave()
	}
	return c.Close()
}

// Close ends the client immediately. Waiting calls fail with ErrClosed; unacknowledged pushes may
// or may not have arrived. After Close the client writes to no destination slice. It returns nil.
func (c *Client) Close() error {
	c.fail(fmt.Errorf("ps: trainer %d: %w", c.cfg.Trainer, ErrClosed))
	c.links.Wait()
	return nil
}

// Abort ends the client because of an error elsewhere, such as the loss of another trainer: waiting
// and later calls fail with cause. It does not block, is always safe, and does not replace Close.
func (c *Client) Abort(cause error) {
	c.fail(fmt.Errorf("ps: trainer %d: %w", c.cfg.Trainer, cause))
}

// Error is an error of an operation with a server.
type Error struct {
	Op      string // operation, such as "pull of table \"ads\""
	Trainer int    // -1: a reader
	Session int
	Server  int
	Addr    string
	Step    uint64 // 0: no step
	Err     error
}

// Error names the operation, the server and the cause.
func (e *Error) Error() string {
	step := ""
	if e.Step != 0 {
		step = fmt.Sprintf(" of step %d", e.Step)
	}
	who := fmt.Sprintf("trainer %d", e.Trainer)
	if e.Trainer < 0 {
		who = "reader"
	}
	if lost := (*transport.ServerLostError)(nil); errors.As(e.Err, &lost) { // names the server
		return fmt.Sprintf("ps: %s: %s%s, session %d: %v", who, e.Op, step, e.Session, e.Err)
	}
	return fmt.Sprintf("ps: %s: %s%s, server %d (%s), session %d: %v", who, e.Op, step, e.Server, e.Addr, e.Session, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Place returns the step of the operation, as counted by the servers' clock.
func (e *Error) Place() failure.Position {
	if e.Step == 0 {
		return failure.Position{}
	}
	return failure.Position{Where: fmt.Sprintf("in step %d", e.Step)}
}

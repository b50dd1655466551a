// Package client is a trainer's end of the connections to its job's parameter
// servers. Package internal/server/service is the other end.
//
//	c, err := client.Dial(ctx, client.Config{Servers: addresses, …})
//	session := c.Session(0)
//	next, err := session.PullRows(table, 1, keys, rows)
//	for step := uint64(1); ; step++ {
//		err = next.Wait()
//		next, err = session.PullRows(table, step+1, nextKeys, nextRows) // travels while this one computes
//		…
//		err = session.PushRows(table, step, keys, grads)
//		err = session.Clock(step, rate)
//	}
//	err = c.Leave(ctx)
//
// A session is one connection to every server, and after it the next one. What goes through a session reaches each
// server in the order of the calls: a pull sees what was pushed before it, as far as
// the servers' consistency lets it. Only where a pull is so long, or so many are made, that
// more than [Config.Pulls] messages would be under way, those that wait for their turn are
// overtaken by later pushes. Trainers that run several batches at once give
// each thread a session.
//
// # Pushes are applied exactly once
//
// A push is copied when it is made, keeps its number until the server has
// acknowledged it, and is sent again where a connection was cut before; the server
// leaves out what it has had. At most [Config.Window] of a session wait for a server's
// acknowledgement: then a push waits, so that a trainer is never far ahead. A server
// that is away is tried again, more and more slowly, for [Config.Reconnect]; then the
// client ends with an error that names it.
//
// # Cost
//
// Keys are cut by owner and copied once, gradients are copied (or encoded) once.
// Rows that come from the only server are read from the connection straight to where
// they are wanted; those of several are read aside and put to their places. A batch
// makes no garbage once memory has grown.
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

	"github.com/ringo-ml/ringo/internal/liveness"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/message/requests"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// Config says who the trainer is and where its servers are. The zero value is not
// valid: Servers, Ticket, Version, Trainers and Schema are needed.
type Config struct {
	Servers []string // addresses, by index: the same on all trainers
	Ticket  transport.Ticket
	// TLS says which connections are encrypted, the same at both ends. Zero: those between hosts.
	TLS     transport.TLS
	Version string // of the program
	Job     string // as the servers have it; may be ""
	// Settings are what the trainer was told of its job: servers that were told otherwise refuse it with a
	// *setting.ConflictError. Servers of message.SyncGeo take only a trainer that says so, by message.PathSync.
	Settings setting.Values

	Trainer, Trainers int           // which of how many
	Sessions          int           // of each trainer; 0: 1
	Schema            schema.Schema // of the tables

	// Pull and Push are the codes in which rows and their gradients travel, Dense
	// that of arrays, both ways. Zero: float32.
	Pull, Push, Dense message.Code
	// Merge lets keys be more than once in a batch: they travel once, and their
	// gradients are summed in the order in which they appear. Without it a pull
	// may hold a key twice, a push may not.
	Merge bool

	// Window is how many changes of a session may wait for a server's
	// acknowledgement, and Pulls how many messages for rows or values may be under
	// way to it; 0: 16 each. The server may allow fewer pulls.
	Window, Pulls int
	// Reconnect is how long a server may be away, at the beginning too; 0: 2 min, or half of
	// Timeout where that is less. While it opens its tables, and says so, it is not away.
	Reconnect time.Duration
	// Timeout is how long an answer or an acknowledgement may take, absences of
	// the server included: more than Reconnect, and more than servers wait for
	// other trainers. A checkpoint of the whole job may take 15 min at least. 0: 15 min.
	Timeout time.Duration
	// Watched says that somebody else watches the servers, as a launcher does, and ends those that
	// hang: one that shows no sign of life is waited for as one that is away. Without it, it is lost.
	Watched bool
	// SocketBytes are the system's buffers of a connection, each way; 0: 2 MiB.
	SocketBytes int

	// OnLeave, if set, is called when Leave has succeeded.
	OnLeave func()
	// Record is where what is asked of servers is recorded. It may be nil.
	Record *record.Recorder

	// Dial makes a connection; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// longest is how long an answer may take if nothing else is said, and that to Save in any case.
const longest = 15 * time.Minute

func (c Config) withDefaults() Config {
	c.Sessions = cmp.Or(c.Sessions, 1)
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

// Validate reports all faults together.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("ps: client: "+format, args...))
		}
	}
	fault(len(c.Ticket) == 0, "no ticket")
	errs = append(errs, c.TLS.Validate())
	fault(c.Version == "", "no version")
	for i, addr := range c.Servers {
		fault(addr == "", "server %d has no address", i)
	}
	hello := message.Hello{Trainer: c.Trainer, Trainers: c.Trainers, Sessions: c.Sessions, Servers: len(c.Servers), Incarnation: 1, From: 1, Job: c.Job, Settings: c.Settings}
	if err := hello.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("ps: client: %w", err))
	}
	if err := c.Schema.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("ps: client: %w", err))
	}
	for what, code := range map[string]message.Code{"rows pulled": c.Pull, "gradients pushed": c.Push, "arrays": c.Dense} {
		fault(!code.Valid(), "%s in %v", what, code)
	}
	fault(c.Window < 1 || c.Pulls < 1, "%d changes and %d pulls under way: want at least 1 each", c.Window, c.Pulls)
	fault(c.Reconnect < 0 || c.Timeout <= c.Reconnect, "servers may be away for %v and take %v to answer: want more than 0, and the second to be more", c.Reconnect, c.Timeout)
	fault(c.SocketBytes < 4<<10, "socket buffers of %d bytes: want at least %d", c.SocketBytes, 4<<10)
	return errors.Join(errs...)
}

// Client is a trainer's connections to all servers.
type Client struct {
	cfg      Config
	hash     [32]byte // the schema's
	json     []byte   // the schema
	counts   []int    // behind each row's gradient, by table
	process  uint64   // drawn by this process
	sessions []*Session
	count    counters
	meeting  gatherState
	clock    *liveness.Clock // by which absences and waits are measured
	record   *requests.Book

	ctx    context.Context // done when the client ends
	cancel context.CancelFunc
	links  sync.WaitGroup

	mu  sync.Mutex
	err error // the first fault
}

// ErrClosed: the client was closed.
var ErrClosed = errors.New("the client is closed")

// Dial connects all sessions to all servers. It waits for servers that are not there yet,
// within ctx and Config.Reconnect.
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

// watchEvery is how often waits are looked at.
const watchEvery = 250 * time.Millisecond

// watch ends the client when a message has waited for too long.
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

// await waits until every link has been up.
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

// Session is a session by number, from 0.
func (c *Client) Session(i int) *Session { return c.sessions[i] }

// Err is the fault that has ended the client, nil while there is none.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done is closed when the client has ended: Err says why.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// fail ends everything; the first cause is kept.
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

// Flush waits until all servers have acknowledged everything that was pushed.
func (c *Client) Flush(ctx context.Context) error {
	for _, k := range c.allLinks() {
		if err := k.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Leave tells all servers that this trainer has no more to do, waits until they have
// acknowledged that and everything before, and closes the client. Without it servers
// take a trainer that is gone for lost.
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

// Close ends the client at once. What waits fails with ErrClosed, and what was pushed
// and not acknowledged may or may not have arrived. When it returns nothing is written
// to anybody's memory any more. It returns nil.
func (c *Client) Close() error {
	c.fail(fmt.Errorf("ps: trainer %d: %w", c.cfg.Trainer, ErrClosed))
	c.links.Wait()
	return nil
}

// Abort ends the client because of a fault elsewhere, such as the loss of another trainer: what waits
// fails with the cause, and so does all that follows. It does not wait for anything, and may be called
// at any time; the client is to be closed all the same.
func (c *Client) Abort(cause error) {
	c.fail(fmt.Errorf("ps: trainer %d: %w", c.cfg.Trainer, cause))
}

// Error is a fault of one operation with one server.
type Error struct {
	Op      string // "pull of table \"ads\""
	Trainer int
	Session int
	Server  int
	Addr    string
	Step    uint64 // 0: of none
	Err     error
}

// Error says what failed, with whom, and why.
func (e *Error) Error() string {
	step := ""
	if e.Step != 0 {
		step = fmt.Sprintf(" of step %d", e.Step)
	}
	if lost := (*transport.ServerLostError)(nil); errors.As(e.Err, &lost) { // which names it
		return fmt.Sprintf("ps: trainer %d: %s%s, session %d: %v", e.Trainer, e.Op, step, e.Session, e.Err)
	}
	return fmt.Sprintf("ps: trainer %d: %s%s, server %d (%s), session %d: %v", e.Trainer, e.Op, step, e.Server, e.Addr, e.Session, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Place is the step in words, as the servers' clock counts it.
func (e *Error) Place() failure.Position {
	if e.Step == 0 {
		return failure.Position{}
	}
	return failure.Position{Where: fmt.Sprintf("in step %d", e.Step)}
}

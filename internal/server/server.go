// Package server is a whole server of tables: what trainers talk to (internal/server/service), and
// what it keeps for them (internal/server/engine).
package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/snapshot"
	"github.com/ringo-ml/ringo/internal/server/tiers"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

// Config says who the server is and how it keeps tables. The zero value is not valid.
type Config struct {
	// Listener is where trainers come. Run closes it.
	Listener net.Listener
	Ticket   transport.Ticket
	// TLS says which connections are encrypted, the same at both ends. Zero: those between hosts.
	TLS     transport.TLS
	Version string // of the program
	// Index is which of Servers this is, Trainers how many train.
	Index, Servers, Trainers int
	// Sessions is how many sessions each trainer has; 0: 1.
	Sessions int
	// Mode, Staleness, Durability, Fsync and OnLost are those of engine.Config.
	Mode       engine.Mode
	Staleness  int
	Durability engine.Durability
	Fsync      bool
	OnLost     engine.FailurePolicy
	// Dir is a folder that servers may have in common; each has one of its own in it.
	Dir string
	// From is the Dir of an earlier job, of any number of servers, whose newest checkpoints this one begins
	// with. It is looked at only where this server has none of its own.
	From string
	// FromNumbers, by server, are the parts of a checkpoint of the whole job in From with which this server begins instead
	// of the newest ones, and FromStep is its step.
	FromNumbers []uint64
	FromStep    uint64
	// Job, where it is not empty, names a job whose trainers order checkpoints of the whole; trainers of others are
	// refused. With durability none these checkpoints are the only ones, and Dir is needed for them.
	Job string
	// Begin, where it is not nil, hands out rows that a table begins with in place of initial weights, keys and Dim weights each; the server
	// takes those that are its own. It is not called where the server begins with a checkpoint, its own or one of From.
	Begin func(table schema.Sparse, do func(keys []uint64, weights []float32) error) error
	// MemoryBytes bounds the rows in memory, DiskBytes those in Dir that memory has no room
	// for; 0: no limit, and without one of memory all rows are in memory.
	MemoryBytes, DiskBytes int64
	// Admission says which keys get a row.
	Admission shard.Admission
	// TableAdmission is that of tables by name, which goes before what the schema says of them.
	TableAdmission map[string]shard.Admission
	// DeleteAfter is how many days a row may not be pulled nor pushed, in tables whose rule does not say
	// so itself; 0: any.
	DeleteAfter int
	// ShrinkEvery is how long a day is: after each, rows age and some are deleted. 0: a person says so.
	ShrinkEvery time.Duration
	// SaveEvery is the time between checkpoints, over restarts, 0 for none but the last. Most are
	// deltas: see engine.Engine.Checkpoint. With durability checkpoint it is what a lost server
	// takes with it, and the time that a checkpoint takes; with wal it bounds what a server replays
	// when it begins, and so does the length of its log, whichever comes first: see
	// engine.Config.LogFloor.
	SaveEvery time.Duration
	// FullWait is how long the server waits for room on a full disk for its last checkpoint, and for its part of one of
	// the job, which waits meanwhile. 0: it does not.
	FullWait time.Duration
	// Times and Rejoin say when a trainer is lost: see service.Config.
	Times  cluster.Times
	Rejoin time.Duration
	// HTTP is HOST:PORT of server 0, where a person may ask by HTTP; the others take the next ports, and port 0 is any free one.
	// ListenHTTP makes Admin and AdminHost of it.
	HTTP string
	// Admin, where it is not nil, is where a person may ask by HTTP: see service.Handler. Whoever reaches it may read:
	// let it listen on this host only, or say which other host requests may be for in AdminHost. Run closes it.
	Admin     net.Listener
	AdminHost string
	// AdminToken is what orders must show; empty: one made of Ticket, the same for all servers of a job and each start of
	// them. Report says where a person finds such a one: in a file in the server's folder that only its owner
	// reads, or where there is no folder in the line itself.
	AdminToken string
	// JobSettings are the settings that the server was told of its job, by path, besides Mode and
	// Staleness: trainers that were told otherwise are refused with an error that names the
	// setting, both processes and both values. nil: nothing.
	JobSettings setting.Values
	// Record is where requests are recorded. It may be nil.
	Record *record.Recorder
	// Report gets lines about what a person should know, from many goroutines. It may be nil.
	Report func(line string)
}

// Stats are what a server has done.
type Stats struct {
	service.Stats
	Tables engine.Stats `json:"tables"`
}

// server is one run.
type server struct {
	cfg     Config
	service *service.Server

	mu     sync.Mutex
	engine *engine.Engine
	tiers  *tiers.Tiers
	ready  chan struct{} // closed when engine is there
	from   []string
}

// Validate reports all faults together.
func (c Config) Validate() error {
	var errs []error
	if c.Listener == nil {
		errs = append(errs, errors.New("ps: server: it has nowhere to listen"))
	}
	return errors.Join(append(errs, c.check())...)
}

// check is Validate without what a server needs to run.
func (c Config) check() error {
	var errs []error
	if c.FullWait < 0 {
		errs = append(errs, fmt.Errorf("ps: server: waiting %v for room on a full disk: want at least 0", c.FullWait))
	}
	if (len(c.FromNumbers) > 0) != (c.FromStep > 0) || c.FromStep > 0 && c.From == "" {
		errs = append(errs, fmt.Errorf("ps: server: it begins with checkpoints %v of step %d in %q: want all of them, or no numbers and no step", c.FromNumbers, c.FromStep, c.From))
	}
	return errors.Join(append(errs, c.faults().Err(), c.tables().Validate())...)
}

// sharedSettings is JobSettings, and what the server decides by its other fields.
func (c Config) sharedSettings() setting.Values {
	told := setting.Values{}
	maps.Copy(told, c.JobSettings)
	told[message.PathSync] = string(c.Mode)
	if c.Mode == engine.SSP {
		told["ps.staleness"] = strconv.Itoa(c.Staleness)
	}
	return told
}

// serverDir is the server's folder.
func (c Config) serverDir() string { return offline.ServerDir(c.Dir, c.Index) }

func (c Config) tables() engine.Config {
	job := sha256.Sum256(append([]byte("ringo tables "), c.Ticket...))
	t := engine.Config{
		Job:   hex.EncodeToString(job[:8]), // a server that is started again goes on, another job does not
		Index: c.Index, Servers: c.Servers, Trainers: c.Trainers, Sessions: c.Sessions, Mode: c.Mode, Staleness: c.Staleness,
		Durability: c.Durability, Fsync: c.Fsync, Lost: c.OnLost,
	}
	if c.Job != "" && c.Durability == engine.None {
		t.Durability, t.Ordered = engine.Checkpoint, true
	}
	if c.Dir != "" && t.Durability != engine.None {
		t.Dir = c.serverDir()
	}
	return t
}

// Run serves until all trainers have left, and then returns nil, ctx ends, or something fails. Errors of what
// it does at its end are joined to the first.
func Run(ctx context.Context, cfg Config) (Stats, error) {
	for _, l := range []net.Listener{cfg.Listener, cfg.Admin} {
		if l != nil {
			defer l.Close()
		}
	}
	if err := cfg.Validate(); err != nil {
		return Stats{}, err
	}
	if cfg.Report == nil {
		cfg.Report = func(string) {}
	}
	s := &server{cfg: cfg, ready: make(chan struct{})}
	err := s.findFrom()
	if err != nil {
		return Stats{}, fmt.Errorf("ps: server %d: %w", cfg.Index, err)
	}
	s.service, err = service.New(service.Config{
		Ticket: cfg.Ticket, TLS: cfg.TLS, Version: cfg.Version, Job: cfg.Job, Settings: cfg.sharedSettings(), Index: cfg.Index, Servers: cfg.Servers, Trainers: cfg.Trainers, Sessions: cfg.Sessions,
		Times: cfg.Times, Rejoin: cfg.Rejoin, Report: cfg.Report, Open: s.open, Record: cfg.Record, Begun: cfg.begun(),
	})
	if err != nil {
		return Stats{}, err
	}
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var beside sync.WaitGroup
	if cfg.Admin != nil {
		beside.Go(func() { s.serveAdmin(ctx) })
	}
	if cfg.SaveEvery > 0 || cfg.Durability == engine.WAL {
		beside.Go(func() {
			if e := s.await(ctx); e != nil {
				s.checkpointLoop(ctx, e, fullPause, cancel)
			}
		})
	}
	if cfg.ShrinkEvery > 0 {
		beside.Go(func() { s.shrinkLoop(ctx, cancel) })
	}
	err = s.service.Serve(ctx, cfg.Listener)
	if err == nil {
		err = context.Cause(ctx) // nil where all trainers have left
	}
	cancel(nil)
	beside.Wait()
	if s.opened() != nil && cfg.Admin != nil && cfg.Dir != "" {
		_ = os.Remove(s.tokenPath()) // it opens nothing any more; it is not there where it was given
	}
	stats := Stats{Stats: s.service.Stats()}
	errs := []error{err}
	if e := s.opened(); e != nil {
		if cfg.Durability != engine.None && (err == nil || outer.Err() != nil) {
			errs = append(errs, s.saveLast(context.WithoutCancel(ctx), fullPause, func(ctx context.Context) error {
				_, err := e.Save(ctx, false)
				return err
			}))
		}
		stats.Tables = e.Stats()
		errs = append(errs, e.Close(), s.tiers.Close())
	}
	return stats, errors.Join(errs...)
}

// begun is the schema of the tables that an earlier process of this server has logged, nil without them. What
// cannot be read is an error when the tables are opened.
func (c Config) begun() *schema.Schema {
	t := c.tables()
	if t.Durability != engine.WAL {
		return nil
	}
	id, err := engine.IdentityOf(t.Dir)
	if err != nil {
		return nil
	}
	chain, err := snapshot.Chain(engine.CheckpointDir(t.Dir), id.Owner(), 0)
	if err != nil {
		return nil
	}
	about, err := engine.AboutOf(chain[len(chain)-1])
	if err != nil || id.Job != t.Job || about.Layout.Hash() != id.Schema {
		return nil
	}
	return &about.Layout
}

// open makes the engine for the trainers' schema.
func (s *server) open(sc schema.Schema) (service.Engine, error) {
	if err := s.cfg.daysFit(sc); err != nil {
		return nil, err
	}
	c, below := s.cfg.tables(), tiers.Config{Admission: s.cfg.Admission, TableAdmission: s.cfg.TableAdmission, DeleteAfter: s.cfg.DeleteAfter}
	if c.From = s.from; len(s.from) > 0 {
		c.FromNumbers = s.cfg.FromNumbers
	}
	if s.cfg.MemoryBytes > 0 {
		below.Dir, below.MemoryBytes, below.DiskBytes = offline.Below(s.cfg.serverDir()), s.cfg.MemoryBytes, s.cfg.DiskBytes
	}
	below.Deltas = c.Durability != engine.None // else there are no checkpoints
	if begun, err := s.begun(); err != nil {
		return nil, err
	} else if s.cfg.Begin != nil && len(s.from) == 0 && !begun {
		below.Begin = s.beginRows
	}
	t, err := tiers.Open(below, sc)
	if err != nil {
		return nil, err
	}
	c.Make = t.Make
	e, err := engine.Open(c, sc)
	if err != nil {
		if len(c.FromNumbers) > 0 {
			err = fmt.Errorf("%w; if a part is damaged, the job can go on from an earlier checkpoint: remove the file of step %d", err, s.cfg.FromStep)
		}
		return nil, errors.Join(err, t.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine, s.tiers = e, t
	close(s.ready)
	if end := e.LogEnd(); end.Path != "" {
		s.cfg.Report(fmt.Sprintf("server %d: its log %s", s.cfg.Index, end))
	}
	if has := e.Stats(); has.LogMost > 0 {
		s.cfg.Report(fmt.Sprintf("server %d: a checkpoint bounds its log whenever that has grown by the size of the tables, and by %d MiB at least", s.cfg.Index, engine.DefaultLogFloor>>20))
	}
	if s.cfg.Admin != nil && s.cfg.Dir != "" && s.cfg.AdminToken == "" {
		s.writeToken()
	}
	return diskFullEngine{e, s}, nil
}

// daysFit reports days that would do nothing to the tables: rules that count (click) say themselves what
// days do, others need DeleteAfter.
func (c Config) daysFit(sc schema.Schema) error {
	own := 0
	for i := range sc.Sparse {
		own += min(1, sc.Sparse[i].Counts())
	}
	switch {
	case c.DeleteAfter > 0 && own > 0 && own == len(sc.Sparse):
		return setting.Errorf(pathUnseen, "%d has no effect: the rule of all tables says itself when rows go (delete_after)", c.DeleteAfter)
	case c.ShrinkEvery > 0 && c.DeleteAfter == 0 && own == 0:
		return setting.Errorf(pathShrinkEvery, "%v has no effect without %v: no row would go", c.ShrinkEvery, pathUnseen)
	}
	return nil
}

func (s *server) opened() *engine.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine
}

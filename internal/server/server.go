// Package server is a complete parameter server: the network side (internal/server/service) and the
// tables (internal/server/engine).
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
	"github.com/ringo-ml/ringo/internal/faults"
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

// Config identifies the server and configures its tables. The zero value is not valid.
type Config struct {
	// Listener accepts trainers. Run closes it.
	Listener net.Listener
	Ticket   transport.Ticket
	// TLS selects the encrypted connections, equally at both ends. Zero: connections between hosts.
	TLS     transport.TLS
	Version string // program version
	// Index is this server's number, below Servers, and Trainers the number of trainers.
	Index, Servers, Trainers int
	// Sessions is the number of sessions per trainer; 0: 1.
	Sessions int
	// Mode, Staleness, Durability and OnLost are as in engine.Config.
	Mode       engine.Mode
	Staleness  int
	Durability engine.Durability
	OnLost     engine.FailurePolicy
	// Dir is a folder that servers may share; each has a subfolder.
	Dir string
	// From is the Dir of an earlier job, of any number of servers, with the newest checkpoints to
	// start from. It is ignored if this server has a checkpoint.
	From string
	// FromNumbers, by server, are the parts of a job checkpoint in From to start from, instead of
	// the newest ones, and FromStep is the checkpoint's step.
	FromNumbers []uint64
	FromStep    uint64
	// Job, unless empty, is the name of a job with checkpoints of the whole job; trainers of other
	// jobs are rejected. With durability none it makes no other ones, and needs Dir.
	Job string
	// Begin, unless nil, passes the first rows of a table to do, with Dim weights per key; other
	// rows begin with initial weights. The server takes those rows that belong to it. A start from
	// a checkpoint does not call Begin.
	Begin func(table schema.Sparse, do func(keys []uint64, weights []float32) error) error
	// MemoryBytes limits the rows in memory; other rows are in Dir, up to DiskBytes. 0: no limit.
	MemoryBytes, DiskBytes int64
	// Admission selects the keys that get a row.
	Admission shard.Admission
	// TableAdmission is the admission by table name, which overrides the schema's.
	TableAdmission map[string]shard.Admission
	// DeleteAfter is the number of days without a pull or push until a row is deleted, in tables
	// with a rule that does not decide this; 0: never.
	DeleteAfter int
	// ShrinkEvery is the length of a day: at its end rows age or are deleted. 0: by HTTP only.
	ShrinkEvery time.Duration
	// SaveEvery is the time between checkpoints, including restarts; 0: only one at the end. Most
	// checkpoints are deltas: see engine.Engine.Checkpoint. With durability checkpoint a lost
	// server loses up to this time, and the time of a checkpoint; with wal it limits the replay of
	// a restart, as does the length of the log: see engine.Config.LogFloor.
	SaveEvery time.Duration
	// FullWait is the maximum wait for space on a full disk, for the last checkpoint and for a part
	// of a job checkpoint. 0: no wait.
	FullWait time.Duration
	// Times and Rejoin decide the loss of a trainer: see service.Config.
	Times  cluster.Times
	Rejoin time.Duration
	// HTTP is the HOST:PORT for HTTP at server 0; the other servers use the next ports, and port 0
	// is any free port. ListenHTTP sets Admin and AdminHost from it.
	HTTP string
	// Admin, unless nil, accepts HTTP: see service.Handler. Clients may read health and metrics
	// without the token: use a loopback address, or set AdminHost to the host that requests name.
	// Run closes it.
	Admin     net.Listener
	AdminHost string
	// AdminToken authorises POST requests; empty: a token derived from Ticket, equal for all
	// servers and attempts of a job. Report then names a file in the server's folder that only its
	// owner can read or, without a folder, the token.
	AdminToken string
	// JobSettings are the server's job settings, by path, in addition to Mode and Staleness:
	// trainers with other values are rejected with an error that names the setting, both processes
	// and both values. nil: none.
	JobSettings setting.Values
	// Record records requests. It may be nil.
	Record *record.Recorder
	// Report receives lines for users, from many goroutines. It may be nil.
	Report func(line string)
}

// Stats are a server's counters.
type Stats struct {
	service.Stats
	Tables engine.Stats `json:"tables"`
}

// server is a run.
type server struct {
	cfg     Config
	service *service.Server

	mu     sync.Mutex
	engine *engine.Engine
	tiers  *tiers.Tiers
	ready  chan struct{} // closed once engine is set
	from   []string
}

// Validate returns all errors together.
func (c Config) Validate() error {
	bad := faults.In("ps: server: ")
	bad.If(c.Listener == nil, "it has nowhere to listen")
	bad.Add(c.check())
	return bad.Err()
}

// check is Validate, except for the fields that only Run needs.
func (c Config) check() error {
	bad := faults.In("ps: server: ")
	bad.If(c.FullWait < 0, "waiting %v for room on a full disk: want at least 0", c.FullWait)
	bad.If((len(c.FromNumbers) > 0) != (c.FromStep > 0) || c.FromStep > 0 && c.From == "",
		"it begins with checkpoints %v of step %d in %q: want all of them, or no numbers and no step", c.FromNumbers, c.FromStep, c.From)
	bad.Add(c.faults().Err(), c.tables().Validate())
	return bad.Err()
}

// sharedSettings returns JobSettings with the server's decisions from other fields.
func (c Config) sharedSettings() setting.Values {
	told := setting.Values{}
	maps.Copy(told, c.JobSettings)
	told[message.PathSync] = string(c.Mode)
	if c.Mode == engine.SSP {
		told["ps.staleness"] = strconv.Itoa(c.Staleness)
	}
	return told
}

func (c Config) serverDir() string { return offline.ServerDir(c.Dir, c.Index) }

func (c Config) tables() engine.Config {
	job := sha256.Sum256(append([]byte("ringo tables "), c.Ticket...))
	t := engine.Config{
		Job:   hex.EncodeToString(job[:8]), // equal after a restart, different for another job
		Index: c.Index, Servers: c.Servers, Trainers: c.Trainers, Sessions: c.Sessions, Mode: c.Mode, Staleness: c.Staleness,
		Durability: c.Durability, Lost: c.OnLost,
	}
	if c.Job != "" && c.Durability == engine.None {
		t.Durability, t.Ordered = engine.Checkpoint, true
	}
	if c.Dir != "" && t.Durability != engine.None {
		t.Dir = c.serverDir()
	}
	return t
}

// Run serves until all trainers have left, and then returns nil, until ctx ends, or until an error.
// Errors of the shutdown are joined to the first.
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
	if cfg.SaveEvery > 0 || cfg.Durability.Logged() {
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
		err = context.Cause(ctx) // nil if all trainers have left
	}
	cancel(nil)
	beside.Wait()
	if s.opened() != nil && cfg.Admin != nil && cfg.Dir != "" {
		_ = os.Remove(s.tokenPath()) // no longer valid; missing if configured
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

// begun returns the schema of the tables logged by an earlier process of this server, or nil.
// Unreadable data are an error when the tables are opened.
func (c Config) begun() *schema.Schema {
	t := c.tables()
	if !t.Durability.Logged() {
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

// open opens the engine with the trainers' schema.
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
	below.Deltas = c.Durability != engine.None // otherwise without checkpoints
	if begun, err := s.begun(); err != nil {
		return nil, err
	} else if s.cfg.Begin != nil && len(s.from) == 0 && !begun {
		below.Begin = s.beginRows
	}
	if c.Durability != engine.None {
		if err := engine.CheckSiblings(c.Dir, c.Job); err != nil {
			return nil, err
		}
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

// daysFit returns an error if days have no effect on the tables. They have an effect on tables with
// a counting rule (click), and on others with DeleteAfter.
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

package ringo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/rendezvous"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
	"github.com/ringo-ml/ringo/internal/hugepage"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/transport/shm"
	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/internal/watch/failure"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// verdictWait is how long a rank with a broken link waits for the coordinator
// to say who is lost, in a job of one process for the rank that aborted. It covers the 10 s after which a silent rank is dead only
// in part: a killed process is known at once, and all must end within 10 s.
const verdictWait = 3 * time.Second

// Job is one rank's part of a job: who it is, and the group of all ranks.
type Job struct {
	rank, size, localRank int // of a server rank is its number in the mesh
	servers               int
	columns               int
	launched              bool                 // a launcher hosts the coordinator
	tables, heters        []string             // addresses
	heter                 *HeterTrainer        // nil: it is none
	saving                launch.CheckpointEnv // what its launcher says of checkpoints
	serversOnly           bool                 // there are no connections among ranks
	watched               bool                 // the launcher ends those that hang
	timeout               time.Duration        // of waits for others
	ticket                transport.Ticket     // nil in a job of one process
	tls                   transport.TLS

	recorder    *record.Recorder
	recordFiles launch.RecordFiles   // where it lies, if no launcher holds it
	failed      atomic.Bool          // it is of use
	figures     *metrics.RankMetrics // nil: nobody wants them
	dialed      atomic.Int32         // clients of DialParameterServers that have not left
	uncount     func()               // ends what keeps them up to date
	outer       context.Context      // what Join was given
	ctx         context.Context
	cancel      context.CancelCauseFunc
	mesh        transport.Mesh
	group       *collective.Group // nil in a server
	subs        subgroups
	collective  collective.Config // of the group, for those of some ranks
	settings    setting.Values    // that it was told
	client      *aggregate.Client // of the servers, nil without
	server      *aggregate.Server // nil in a rank that trains
	stops       *localStoppers    // of a job of one process

	member      *cluster.Member                // nil in a job of one process
	reportExit  func(failure.Exit) (told bool) // of a rank without a mesh: tells its launcher
	coordinator *cluster.Coordinator           // of a job started by hand, in rank 0
	kind        string
	fallback    string
	placed      string             // where ranks run, in words
	cores       int                // that this rank has for itself
	board       *metrics.Dir       // that Join has opened; nil: it has not
	place       rendezvous.Backend // where rank 0 says that it listens; nil: it is known
	withdraw    func()             // removes the notice of where this rank listens; nil: there is none
	unbind      func()             // undoes that this rank has bound itself; nil: it has not
	watching    sync.WaitGroup
	closed      sync.Once
	closeErr    error
}

// Join makes this process a rank of its job and returns when all ranks are
// there. Without a launcher's variables and without Config.Size it is a job of
// one rank that needs no network. An error names what is missing: a variable,
// the coordinator, or the ranks that did not come.
//
// A program that a launcher has started as a heter-trainer gets a Job that says so: see Job.HeterTrainer.
func Join(ctx context.Context, cfg Config) (*Job, error) {
	if place, is, err := cfg.heterPlace(); err != nil {
		return nil, fmt.Errorf("joining the job: %w", err)
	} else if is {
		return joinHeter(ctx, place, cfg)
	}
	env, present, err := cfg.rankEnv(cfg.lookup())
	if err != nil {
		return nil, fmt.Errorf("joining the job: %w", err)
	}
	if !present {
		return local(ctx, mem.New(1)[0], cfg, &localStoppers{ranks: make([]*Stopper, 1)}, launch.NewRecordFiles(cfg.BlackBox, nil))
	}
	return join(ctx, env, cfg)
}

// join takes the place that env says.
func join(ctx context.Context, env launch.RankEnv, cfg Config) (*Job, error) {
	var opened *metrics.Dir
	if cfg.Times = cfg.Times.WithDefaults(); cfg.Metrics == nil && env.Metrics != "" {
		board, err := metrics.Open(env.Metrics)
		if err != nil {
			return nil, err
		}
		cfg.Metrics, opened = board, board
	}
	j := &Job{rank: env.Rank, size: env.WorldSize, servers: env.Servers, localRank: env.LocalRank, columns: env.Columns, launched: env.Launched, kind: TransportTCP, tables: env.Tables, heters: env.Heters, ticket: env.Ticket}
	j.board, j.saving = opened, env.Saving
	j.placed, j.cores = env.Placed, placement.Usable()
	j.record(env, cfg)
	j.watched, j.timeout, j.settings = env.Launched, cfg.Collective.Timeout, cfg.Settings
	if len(cfg.ParameterServers) > 0 {
		j.tables, j.watched = cfg.ParameterServers, false
	}
	if len(cfg.Heters) > 0 {
		j.heters = cfg.Heters
	}
	j.outer = ctx
	j.ctx, j.cancel = context.WithCancelCause(ctx)
	listener, err := j.rendezvous(&env, cfg)
	switch {
	case err != nil:
		_ = j.release() // err says more
		return nil, fmt.Errorf("joining the job: %w", err)
	case cfg.ServersOnly:
		j.reportExit = env.Tell
		return j.joinServersOnly(cfg)
	}
	if err := j.connect(env, listener, cfg); err != nil {
		known := j.giveUp(err)
		if ctx.Err() != nil {
			err = fmt.Errorf("rank %d gave up joining the job at %s: %w", j.rank, env.Rendezvous, err)
		}
		return nil, j.markReported(err, known)
	}
	return j, nil
}

// joinServersOnly makes a rank that meets the others at servers only.
func (j *Job) joinServersOnly(cfg Config) (*Job, error) {
	j.serversOnly, j.kind = true, ""
	if err := j.start(mem.New(1)[0], cfg); err != nil {
		_ = j.release() // of a mesh in memory
		return nil, err
	}
	return j, nil
}

// connect joins the cluster, then builds the mesh and the group. A rank that is
// lost on the way ends it.
func (j *Job) connect(env launch.RankEnv, listener net.Listener, cfg Config) error {
	if err := j.enter(env, listener, cfg); err != nil {
		return err
	}
	env.Ticket = j.member.Ticket()
	j.ticket, j.tls = env.Ticket, cfg.Network.TLS
	j.watching.Go(j.listen)
	mesh, err := tcp.New(j.ctx, tcp.Config{
		Rank: env.Rank, Size: env.Members(), Ticket: env.Ticket, Version: Version, JoinTimeout: cfg.Times.Join,
		Listener: j.member.Listener(), Addrs: j.member.Addrs(), Report: cfg.Report,
		Streams: cfg.Network.Streams, CongestionControl: cfg.Network.CongestionControl, Checksum: cfg.Network.Checksum, Lending: cfg.Network.ZeroCopy,
		TLS: cfg.Network.TLS,
	})
	if err != nil {
		return j.Err(err)
	}
	shared, err := j.share(mesh, env, cfg)
	if err != nil {
		return j.Err(err)
	}
	if len(cfg.Collective.Hosts) == 0 {
		cfg.Collective.Hosts = shared.Hosts()
	}
	if !env.Launched {
		j.localRank = localRank(shared.Hosts(), j.rank)
	}
	if err := j.start(shared, cfg); err != nil {
		return err
	}
	j.member.SetReceived(func() int64 { t := shared.Traffic(); return t.WireReceived + t.PayloadReceived })
	j.member.SetWaiting(func() (cluster.Wait, bool) { return j.waiting(cfg.Times.Heartbeat) })
	return nil
}

// waiting is the longest wait of this member for another. Of one that has lasted
// for long, the operations begun are told too: it may never end.
func (j *Job) waiting(long time.Duration) (cluster.Wait, bool) {
	var longest collective.Wait
	found := false
	look := func(w collective.Wait, ok bool) {
		if ok && (!found || w.Since.Before(longest.Since)) {
			longest, found = w, true
		}
	}
	if j.group != nil {
		look(j.group.Waiting())
		j.subs.waiting(look)
	}
	if j.client != nil {
		look(j.client.Waiting())
	}
	if j.server != nil {
		look(j.server.Waiting())
	}
	if !found {
		return cluster.Wait{}, false // most often: it allocates nothing
	}
	out := cluster.Wait{Peer: longest.Peer, Since: longest.Since, In: fmt.Sprintf("%s %d", longest.Op, longest.Seq)}
	if j.group != nil && time.Since(longest.Since) >= long {
		for _, b := range j.group.Begun() {
			out.Begun = append(out.Begun, cluster.Begun{Number: b.Seq, Operation: b.Operation})
		}
	}
	return out, true
}

// share arranges memory among the ranks of each host. It owns mesh.
func (j *Job) share(mesh transport.Mesh, env launch.RankEnv, cfg Config) (*shm.Mesh, error) {
	asked := cmp.Or(cfg.Transport, env.Transport)
	off := ""
	if asked == TransportTCP {
		off = "it was told to use tcp alone" // and says so to those who were not
	}
	m, err := shm.New(j.ctx, mesh, shm.Config{
		Ticket: env.Ticket, Version: Version, JoinTimeout: cfg.Times.Join, Off: off, Threads: cfg.takes(env), Settle: j.settle(env, cfg),
	})
	if err != nil {
		return nil, err
	}
	if m.SharedMemory() != nil {
		j.kind = TransportSHM
	}
	why, failed := m.Reason()
	if asked != TransportSHM && !(failed && shm.Supported) {
		return m, nil
	}
	if j.fallback = why; why != "" && j.rank == 0 { // for all: it is the same everywhere
		j.member.Report("tcp in place of shared memory: " + why)
	}
	return m, nil
}

// start makes the group over the mesh and the client of the servers, or the
// server. The job's end now aborts the mesh.
func (j *Job) start(mesh transport.Mesh, cfg Config) (err error) {
	j.mesh = mesh
	cfg.Aggregate = cfg.aggregation(j.size)
	cfg.Aggregate.Record = j.recorder
	if j.serves() {
		j.server, err = aggregate.NewServer(mesh, cfg.Aggregate)
	} else {
		if j.servers > 0 {
			cfg.Collective.Ranks = collective.Ranks(j.size)
		}
		cfg.Collective.Record = j.recorder
		j.collective = cfg.Collective
		j.group, err = collective.New(mesh, cfg.Collective)
		if err == nil && j.servers > 0 {
			j.client, err = aggregate.NewClient(mesh, cfg.Aggregate)
		}
	}
	if err != nil {
		return err
	}
	if err = j.startMetrics(cfg.Metrics); err != nil {
		return err
	}
	j.watching.Go(j.watch)
	return nil
}

// giveUp leaves a job that could not be joined because of err, and returns whether the
// coordinator knows of it. The others would wait for this rank if they were not told.
func (j *Job) giveUp(err error) (known bool) {
	if j.member != nil {
		known = j.member.Fail(err)
	} else {
		known = cluster.IsVerdict(err)
	}
	if j.coordinator != nil {
		j.coordinator.MarkLost(j.rank, err.Error())
	}
	_ = j.release() // err says more
	return known
}

// listen ends the job's context when a rank is lost.
func (j *Job) listen() {
	select {
	case err := <-j.member.Lost():
		j.cancel(err)
	case <-j.ctx.Done():
	}
}

// watch ends the job's operations with its context.
func (j *Job) watch() {
	<-j.ctx.Done()
	cause := context.Cause(j.ctx)
	if cause == errDone {
		return
	}
	j.mesh.Abort(cause)
	if (j.size == 1 || j.serversOnly) && j.group != nil { // its operations never touch the mesh
		_ = j.group.Close()
	}
}

var errDone = errors.New("the job is done")

// Rank is this rank, from 0 to Size()-1; -1 of a heter-trainer.
func (j *Job) Rank() int { return j.rank }

// Size is the number of ranks, the world size.
func (j *Job) Size() int { return j.size }

// Servers is how many servers the job has.
func (j *Job) Servers() int { return j.servers }

// Reducer is what sums gradients on the job's servers, nil where it has none: to
// be given to distopt.Config. It is the job's, which closes it.
func (j *Job) Reducer() exchange.Reducer {
	if j.client == nil {
		return nil
	}
	return j.client
}

// ServersOnly tells whether the job has no connections among its ranks: see Config.ServersOnly.
func (j *Job) ServersOnly() bool { return j.serversOnly }

// LocalRank is this rank's number among those of its host.
func (j *Job) LocalRank() int { return j.localRank }

// Group is the group of all ranks; without a mesh, of this rank alone. Subgroup
// makes others.
func (j *Job) Group() *collective.Group { return j.group }

// Transport is what this rank and those of its host talk over: TransportSHM,
// TransportTCP, "mem" inside one process, or nothing without a mesh.
func (j *Job) Transport() string { return j.kind }

// Fallback says which ranks of one host do not share memory although they were to,
// and why, the same on every rank; empty if all do. Where every rank has a host of
// its own it says so if TransportSHM was asked for by name.
func (j *Job) Fallback() string { return j.fallback }

// Alloc returns n zeros, aligned to 64 bytes, in the memory that this rank shares
// with its host, or in ordinary memory where there is none or no more: for
// operands of operations, which are reduced there without a copy, such as the
// arena of gradients (nn.Params.GradsFrom), and of parameters whose updates ranks
// share (nn.Params.ArenasFrom). It is the job's: it must not be used after Close,
// when what it held is gone, and Free gives it back before. It is not to be called
// from two goroutines at once.
func (j *Job) Alloc(n int) []float32 {
	if w := j.SharedMemory(); w != nil {
		if b := w.Alloc(4 * n); b != nil {
			x := bytesview.As[float32](b)
			hugepage.Collapse(x)
			return x
		}
	}
	return hugepage.Floats(n)
}

// Free gives back what the last Alloc returned. Anything else stays until the
// job ends. No operation on it may be under way.
func (j *Job) Free(x []float32) {
	if w := j.SharedMemory(); w != nil && len(x) > 0 {
		w.Return(bytesview.Bytes(x))
	}
}

// SharedMemory is the memory that the ranks of this host share, nil if they share
// none. Operands that lie in it are reduced without a copy.
func (j *Job) SharedMemory() *transport.SharedMemory { return transport.SharedMemoryOf(j.mesh) }

// Columns is the width of the terminal that rank 0's output ends up on, though
// it may write to its launcher's pipe; 0 when that is not known.
func (j *Job) Columns() int { return j.columns }

// Context ends with the job, or when it cannot go on: its parent ended, or a
// rank is lost. context.Cause says which.
func (j *Job) Context() context.Context { return j.ctx }

// Traffic is what this rank has sent and received so far. Wire bytes include
// headers, handshakes and the control connection.
func (j *Job) Traffic() transport.Traffic {
	t := j.mesh.Traffic()
	if j.member != nil {
		c := j.member.Traffic()
		t.WireSent += c.WireSent
		t.WireReceived += c.WireReceived
	}
	return t
}

// SetStatus says what this rank is doing, for the report when others wait for
// it: "training epoch 3", "evaluating".
func (j *Job) SetStatus(doing string) {
	if j.member != nil {
		j.member.SetStatus(doing)
	}
}

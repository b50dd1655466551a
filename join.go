package ringo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/cluster/membership"
	"github.com/ringo-ml/ringo/internal/exchange/aggregate"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/transport/shm"
	"github.com/ringo-ml/ringo/internal/transport/tcp"
	"github.com/ringo-ml/ringo/transport"
)

// Run joins a job, calls fn, and leaves. Run reports an error of fn to the other ranks, and returns
// the error that caused it if another rank did, such as one with the lost rank's number. Reported
// shows whether the launcher prints the error. If fn returns a *StoppedError or
// ErrHeterTrainerDone, the job has not failed.
func Run(ctx context.Context, cfg Config, fn func(*Job) error) error {
	job, err := Join(ctx, cfg)
	if err != nil {
		return err
	}
	return job.end(panics.Do(func() error { return fn(job) }))
}

// end leaves the job after fn of Run has returned err.
func (j *Job) end(err error) error {
	switch {
	case errors.Is(err, ErrHeterTrainerDone):
		return j.Close()
	case err == nil && j.notServedError() != nil:
		return j.Fail(j.notServedError())
	case err == nil && j.servers.unleftError() != nil:
		return j.Fail(j.servers.unleftError())
	case stoppedBy(err) != nil || errors.As(err, new(*cluster.RejoinError)):
		return errors.Join(err, j.Close())
	case err != nil:
		return j.Fail(err)
	}
	return j.Close()
}

// Join makes this process a rank of its job, and returns when all ranks have joined. Without a
// launcher's variables and without Config.Size the job has one rank and needs no network. An error
// names the missing variable, coordinator or ranks.
//
// In a process started by a launcher as a heter-trainer, Job.HeterTrainer is not nil.
func Join(ctx context.Context, cfg Config) (*Job, error) {
	role, isHeter, err := cfg.heterPlace()
	if err != nil {
		return nil, fmt.Errorf("joining the job: %w", err)
	}
	if isHeter {
		return joinHeter(ctx, role, cfg)
	}
	env, placed, err := cfg.rankEnv(cfg.lookup())
	if err != nil {
		return nil, fmt.Errorf("joining the job: %w", err)
	}
	if !placed {
		return joinLocal(ctx, mem.New(1)[0], cfg, cluster.NewLocalStops(1), launch.NewRecordFiles(cfg.BlackBox, nil))
	}
	return join(ctx, env, cfg)
}

// join makes this process a rank or an aggregation server, as env specifies.
func join(ctx context.Context, env launch.RankEnv, cfg Config) (*Job, error) {
	cfg.Times = cfg.Times.WithDefaults()
	if err := cfg.takeAlgorithm(env.Algorithm); err != nil {
		return nil, fmt.Errorf("joining the job: %w", err)
	}
	j := newJob(env, cfg)
	if err := j.records.openMetrics(env.Metrics, &cfg); err != nil {
		return nil, err
	}
	j.openRecorder(env, cfg)
	j.life.parent = ctx
	j.life.begin(ctx)
	if err := j.findRankZero(&env, cfg); err != nil {
		_ = j.release() // err says more
		return nil, fmt.Errorf("joining the job: %w", err)
	}
	if cfg.ServersOnly {
		return j.joinWithoutMesh(env, cfg)
	}
	if err := j.joinMesh(env, cfg); err != nil {
		return nil, j.abandon(env, err)
	}
	return j, nil
}

// newJob returns a job with the fields that need only env and cfg, without connections.
func newJob(env launch.RankEnv, cfg Config) *Job {
	j := &Job{
		identity: identity{rank: env.Rank, size: env.WorldSize, localRank: env.LocalRank, aggregators: env.Servers, launched: env.Launched},
		links:    connections{kind: TransportTCP},
		cpus:     processors{placement: env.Placed, count: placement.Usable()},
	}
	s := &j.servers
	s.addresses, s.heters, s.checkpoint = env.Tables, env.Heters, env.Saving
	s.watched, s.timeout, s.settings = env.Launched, cfg.Collective.Timeout, cfg.Settings
	if len(cfg.ParameterServers) > 0 {
		s.addresses, s.watched = cfg.ParameterServers, false
	}
	if len(cfg.Heters) > 0 {
		s.heters = cfg.Heters
	}
	j.records.columns = env.Columns
	return j
}

// openRecorder opens the process's recorder: in memory that the launcher holds, or else in a file.
func (j *Job) openRecorder(env launch.RankEnv, cfg Config) {
	if j.records.recorder = env.Recorder(); env.Record == 0 && !env.Launched {
		j.records.files = launch.NewRecordFiles(cfg.BlackBox, env.Ticket)
		j.records.recorder = j.records.files.Recorder(j.recordIdentity())
	}
}

// findRankZero sets the ticket in env and, in rank 0, the address at which this rank listens.
func (j *Job) findRankZero(env *launch.RankEnv, cfg Config) (err error) {
	j.members.cluster, err = membership.Find(j.life.ctx, env, membership.Config{
		Version: Version, Interface: cfg.Network.Interface, Ports: cfg.Network.ports(), TLS: cfg.Network.TLS,
		Times: cfg.Times, Settings: cfg.Settings, OpenBackend: cfg.OpenBackend, NoMesh: cfg.ServersOnly, Report: cfg.Report,
	})
	j.servers.ticket = env.Ticket
	return err
}

// joinWithoutMesh starts a rank that has connections to parameter servers, but none to other ranks.
func (j *Job) joinWithoutMesh(env launch.RankEnv, cfg Config) (*Job, error) {
	j.members.reportExit = env.Tell
	j.serversOnly, j.links.kind = true, ""
	if err := j.start(mem.New(1)[0], cfg); err != nil {
		_ = j.release() // a mesh in memory
		return nil, err
	}
	return j, nil
}

// joinMesh joins the cluster, connects the ranks, and starts the group. It fails if a rank is lost.
func (j *Job) joinMesh(env launch.RankEnv, cfg Config) error {
	if err := j.enterCluster(&env, cfg); err != nil {
		return err
	}
	mesh, err := j.connect(env, cfg)
	if err != nil {
		return j.Err(err)
	}
	shared, err := j.shareMemory(mesh, env, cfg)
	if err != nil {
		return j.Err(err)
	}
	j.locate(shared.Hosts(), &cfg)
	if err := j.start(shared, cfg); err != nil {
		return err
	}
	m := j.members.member()
	m.SetReceived(func() int64 { t := shared.Traffic(); return t.WireReceived + t.PayloadReceived })
	m.SetWaiting(func() (cluster.Wait, bool) { return j.ops.waiting(cfg.Times.Heartbeat) })
	return nil
}

// enterCluster waits until all ranks and servers have joined. Then it watches for lost ranks.
func (j *Job) enterCluster(env *launch.RankEnv, cfg Config) error {
	if err := j.members.cluster.Join(j.life.ctx, *env); err != nil {
		return err
	}
	env.Ticket = j.members.member().Ticket()
	j.servers.ticket, j.servers.tls = env.Ticket, cfg.Network.TLS
	j.life.watchers.Go(j.watchLost)
	return nil
}

// connect connects this rank with all other ranks.
func (j *Job) connect(env launch.RankEnv, cfg Config) (*tcp.Mesh, error) {
	m, n := j.members.member(), cfg.Network
	return tcp.New(j.life.ctx, tcp.Config{
		Rank: env.Rank, Size: env.Members(), Ticket: env.Ticket, Version: Version, JoinTimeout: cfg.Times.Join,
		Listener: m.Listener(), Addrs: m.Addrs(), Report: cfg.Report, TLS: n.TLS,
		Streams: n.Streams, CongestionControl: n.CongestionControl, Checksum: n.Checksum, Lending: n.ZeroCopy,
	})
}

// shareMemory adds shared memory among the ranks of each host to mesh. The result owns mesh.
func (j *Job) shareMemory(mesh transport.Mesh, env launch.RankEnv, cfg Config) (*shm.Mesh, error) {
	asked := cmp.Or(cfg.Transport, env.Transport)
	off := ""
	if asked == TransportTCP {
		off = "it was told to use tcp alone" // the other ranks receive this reason
	}
	m, err := shm.New(j.life.ctx, mesh, shm.Config{
		Ticket: env.Ticket, Version: Version, JoinTimeout: cfg.Times.Join, Off: off, Threads: cfg.threadsWanted(env), Settle: j.cpus.settle(env, cfg.Bind),
	})
	if err != nil {
		return nil, err
	}
	if m.SharedMemory() != nil {
		j.links.kind = TransportSHM
	}
	why, failed := m.Reason()
	if asked != TransportSHM && !(failed && shm.Supported) {
		return m, nil
	}
	if j.links.fallback = why; why != "" && j.rank == 0 { // the reason is equal on all ranks
		j.members.member().Report("tcp in place of shared memory: " + why)
	}
	return m, nil
}

// locate sets the hosts in cfg.Collective, and this rank's number on its host if no launcher
// assigns it. hosts has the host of each rank and server.
func (j *Job) locate(hosts []int, cfg *Config) {
	if len(cfg.Collective.Hosts) == 0 {
		cfg.Collective.Hosts = hosts
	}
	if j.launched {
		return
	}
	j.localRank = 0
	for _, h := range hosts[:j.rank] {
		if h == hosts[j.rank] {
			j.localRank++
		}
	}
}

// start makes the group of all ranks over mesh, and starts the metrics. When the job ends, its
// operations over mesh end too.
func (j *Job) start(mesh transport.Mesh, cfg Config) error {
	j.links.mesh = mesh
	if err := j.ops.start(j, cfg); err != nil {
		return err
	}
	if err := j.startMetrics(cfg.Metrics); err != nil {
		return err
	}
	j.life.watchers.Go(j.watchEnd)
	return nil
}

// watchLost ends the job's context when a rank is lost.
func (j *Job) watchLost() {
	select {
	case err := <-j.members.member().Lost():
		j.life.cancel(err)
	case <-j.life.ctx.Done():
	}
}

// watchEnd ends the job's operations when the job's context ends.
func (j *Job) watchEnd() {
	<-j.life.ctx.Done()
	cause := context.Cause(j.life.ctx)
	if cause == errDone {
		return
	}
	j.links.mesh.Abort(cause)
	if (j.size == 1 || j.serversOnly) && j.ops.group != nil { // operations of such a group do not use the mesh
		_ = j.ops.group.Close()
	}
}

// abandon leaves a job that this rank cannot join, and returns the error to report.
func (j *Job) abandon(env launch.RankEnv, err error) error {
	reported := j.members.cluster.Abandon(j.rank, err)
	_ = j.release() // err says more
	if j.life.parent.Err() != nil {
		err = fmt.Errorf("rank %d gave up joining the job at %s: %w", j.rank, env.Rendezvous, err)
	}
	return j.markReported(err, reported)
}

// Local runs fn on n ranks. The ranks are goroutines of this process and exchange through memory.
// Local returns the first error, with its rank. Typical uses are tests of training programs and
// `--transport mem`. Aggregation servers, if cfg has any, are goroutines too. The fields Transport,
// Network, Times and Report have no effect, because they configure processes.
func Local(ctx context.Context, n int, cfg Config, fn func(*Job) error) error {
	if n < 1 {
		return fmt.Errorf("%d ranks: want at least 1", n)
	}
	if cfg.Size != 0 {
		return fmt.Errorf("size %d places a rank by hand: the ranks of Local have their places", cfg.Size)
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errDone)
	files := launch.NewRecordFiles(cfg.BlackBox, nil)
	errs := make([]error, n+cfg.Servers)
	stops := cluster.NewLocalStops(n)
	var wg sync.WaitGroup
	for rank, mesh := range mem.New(n + cfg.Servers) {
		body := fn
		if rank >= n {
			body = (*Job).serve
		}
		wg.Go(func() {
			j, err := joinLocal(ctx, mesh, cfg, stops, files)
			if err == nil {
				err = j.runLocal(ctx, cancel, body)
			}
			errs[rank] = err
		})
	}
	wg.Wait()
	err := cmp.Or(errs...)
	if err == nil || stoppedBy(err) != nil || errors.Is(err, context.Canceled) {
		return err
	}
	return files.WithRecords(err, files.Files()...)
}

// joinLocal returns a rank of a job of one process. The ranks exchange through memory.
func joinLocal(ctx context.Context, mesh transport.Mesh, cfg Config, stops *cluster.LocalStops, files launch.RecordFiles) (*Job, error) {
	j := &Job{
		identity: identity{rank: mesh.Rank(), size: mesh.Size() - cfg.Servers, aggregators: cfg.Servers, localRank: mesh.Rank()},
		links:    connections{kind: "mem"},
		cpus:     processors{count: max(1, runtime.GOMAXPROCS(0)/mesh.Size())},
	}
	j.members.stops, j.records.files = stops, files
	j.records.recorder = files.Recorder(j.recordIdentity())
	j.life.begin(ctx)
	if err := j.start(mesh, cfg); err != nil {
		_ = j.release() // a mesh in memory
		return nil, err
	}
	return j, nil
}

// runLocal runs fn on a rank of Local. If fn fails, runLocal cancels ctx with the error before
// other ranks fail as a consequence, so that all ranks return the same error.
func (j *Job) runLocal(ctx context.Context, cancel context.CancelCauseFunc, fn func(*Job) error) error {
	if err := panics.Do(func() error { return fn(j) }); stoppedBy(err) != nil {
		return errors.Join(err, j.Close())
	} else if err != nil {
		j.awaitCause(ctx, err)
		cancel(j.withName(err))
		_ = j.Fail(err)
		return context.Cause(ctx)
	}
	return j.Close()
}

// awaitCause waits up to verdictWait for ctx to end, if another rank caused err, so that Local
// returns that rank's error.
func (j *Job) awaitCause(ctx context.Context, err error) {
	by := (*transport.AbortError)(nil)
	if !errors.As(err, &by) || by.Rank == j.rank {
		return
	}
	moment := time.NewTimer(verdictWait)
	defer moment.Stop()
	select {
	case <-ctx.Done():
	case <-moment.C:
	}
}

// withName returns err with the name of this rank, unless err already names a lost rank.
func (j *Job) withName(err error) error {
	if best := j.Err(err); errors.As(best, new(*transport.LostError)) {
		return best
	}
	return fmt.Errorf("%s: %w", j.name(), err)
}

// Serve makes this process an aggregation server of its job, and returns statistics after all ranks
// have left. The launcher assigns the server's number; with Config.Size the process is server
// cfg.Rank of cfg.Servers. Serve calls up, if not nil, when all ranks and servers have joined. An
// error names the missing value or the lost process.
func Serve(ctx context.Context, cfg Config, up func(s Serving)) (aggregate.Stats, error) {
	cfg.serves = true
	env, _, err := cfg.rankEnv(cfg.lookup())
	if err != nil {
		return aggregate.Stats{}, fmt.Errorf("joining the job: %w", err)
	}
	j, err := join(ctx, env, cfg)
	if err != nil {
		return aggregate.Stats{}, err
	}
	if up != nil {
		up(Serving{Index: j.rank - j.size, Servers: j.aggregators, Rank: j.rank, Trainers: j.size})
	}
	if err := j.serve(); err != nil {
		return j.ops.server.Stats(), j.Fail(err)
	}
	return j.ops.server.Stats(), j.Close()
}

// Serving has an aggregation server's number and addresses in its job.
type Serving struct {
	Index, Servers int // number of this server, and of servers
	Rank           int // number among all members, as in errors
	Trainers       int // ranks
}

// serve runs an aggregation server until all ranks have left.
func (j *Job) serve() error {
	j.SetStatus(fmt.Sprintf("server %d", j.rank-j.size))
	return j.ops.server.Run(j.life.ctx)
}

// Package ringo joins programs into a training job.
package ringo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/hugepage"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/transport/shm"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Version is the module's version. Ranks of different versions cannot form a job.
const Version = "0.1.0"

// Job is a rank's view of its job: its number, its connections, and the group of all ranks.
type Job struct {
	identity
	life    lifetime
	members coordination
	links   connections
	ops     operations
	servers serverAccess
	records observation
	cpus    processors
	heter   *HeterTrainer // nil in a rank and in an aggregation server
}

// identity is the place of a process in its job: its own rank, and how many ranks and servers the
// job has.
type identity struct {
	rank        int // rank; -1 in a heter-trainer; size + index in an aggregation server
	size        int // ranks
	localRank   int // among the ranks of a host
	aggregators int // aggregation servers
	launched    bool
	serversOnly bool // ranks have no connections among themselves
}

// isServer reports whether the process is an aggregation server.
func (i *identity) isServer() bool { return i.rank >= i.size }

// recordIdentity returns the name by which `ringo blackbox` finds the process's record file.
func (i *identity) recordIdentity() record.Identity {
	if i.isServer() {
		return record.Identity{Role: record.AggregationServer, Number: i.rank}
	}
	return record.Identity{Role: record.Rank, Number: i.rank}
}

// name returns the process's name in errors.
func (j *Job) name() string {
	switch {
	case j.heter != nil:
		return fmt.Sprintf("heter-trainer %d", j.heter.Index)
	case j.isServer():
		return fmt.Sprintf("server %d", j.rank-j.size)
	}
	return fmt.Sprintf("rank %d", j.rank)
}

// lifetime has the job's context and the goroutines that watch for the job's end.
type lifetime struct {
	parent   context.Context // context of Join; nil in a job of one process
	ctx      context.Context
	cancel   context.CancelCauseFunc
	watchers sync.WaitGroup
	closing  sync.Once
	closeErr error
}

func (l *lifetime) begin(ctx context.Context) { l.ctx, l.cancel = context.WithCancelCause(ctx) }

// end stops the goroutines that watch for the end of the job.
func (l *lifetime) end() {
	l.cancel(errDone)
	l.watchers.Wait()
}

// stoppedBy reports whether the caller's context ended the job, with cause.
func (l *lifetime) stoppedBy(cause error) bool {
	return l.parent != nil && context.Cause(l.parent) == cause
}

var errDone = errors.New("the job is done")

// connections carry messages and memory between the ranks.
type connections struct {
	mesh     transport.Mesh
	kind     string // TransportSHM, TransportTCP or "mem"; "" without connections among ranks
	fallback string // reason why ranks of one host do not share memory
}

// observation has a process's record of operations and its metrics.
type observation struct {
	recorder    *record.Recorder
	files       launch.RecordFiles   // files of recorder, if no launcher holds the memory
	retain      atomic.Bool          // the file stays, because the job has failed
	metrics     *metrics.RankMetrics // nil: the job is not monitored
	stopMetrics func()               // nil: metrics are not updated
	dir         *metrics.Dir         // opened by Join; nil: none, or the caller's
	columns     int                  // width of the terminal; 0: not known
}

// openMetrics opens the launcher's metrics folder, unless cfg has a folder.
func (o *observation) openMetrics(path string, cfg *Config) (err error) {
	if cfg.Metrics == nil && path != "" {
		o.dir, err = metrics.Open(path)
		cfg.Metrics = o.dir
	}
	return err
}

// close releases the recorder's memory for the next job of this process, and removes the file
// unless the job has failed.
func (o *observation) close() {
	o.recorder.Release()
	if !o.retain.Load() {
		o.files.Remove(o.recorder)
	}
}

// pendingOperations returns the number of started, unfinished operations.
func (o *observation) pendingOperations() (n int) {
	for _, e := range o.recorder.Open(nil) {
		if e.Kind == record.Operation {
			n++
		}
	}
	return n
}

// startMetrics begins this process's metrics in dir; if dir is nil, the process has no metrics.
func (j *Job) startMetrics(dir *metrics.Dir) (err error) {
	if dir == nil {
		return nil
	}
	o := &j.records
	source := metrics.Source{Waiting: func() (int, bool) { w, ok := j.ops.waiting(time.Hour); return w.Peer, ok }}
	if j.isServer() {
		source.Summed = func() metrics.AggregatorStats { return metrics.AggregatorStats(j.ops.server.Stats()) }
		o.metrics, err = dir.Aggregator(j.rank-j.size, j.size)
	} else {
		source.Sent = func() int64 { return j.Traffic().WireSent }
		source.Carried, source.Queued, source.LastHeartbeat = j.bytesCarried, o.pendingOperations, j.members.lastHeartbeat
		o.metrics, err = dir.Rank(j.rank, j.size)
	}
	if err == nil {
		o.stopMetrics = o.metrics.Follow(source)
	}
	return err
}

// processors describes the CPUs of this process.
type processors struct {
	placement string // text of Placement; "": not decided
	count     int    // CPUs for this process alone
	unbind    func() // undoes a binding; nil: not bound by Join
}

// threadsWanted returns the number of CPUs that this process requests, or 0 if it requests none.
func (c Config) threadsWanted(env launch.RankEnv) int {
	bind := cmp.Or(c.Bind, env.Bind)
	if c.serves || env.Serves() || bind == launch.BindNone && !env.Launched {
		return 0
	}
	return max(1, cmp.Or(c.Threads, env.Threads))
}

// settle returns a function that selects this rank's CPUs from a description of all processes of
// the host. A rank without a launcher binds itself to CPUs: all ranks of the host have the same
// descriptions and therefore compute the same plan.
func (p *processors) settle(env launch.RankEnv, bind launch.Bind) func([]shm.Neighbour) (shm.Settled, error) {
	return func(local []shm.Neighbour) (shm.Settled, error) {
		var ranks placement.Processes
		for _, n := range local {
			ranks = append(ranks, placement.Process{CPUs: n.CPUs, Threads: n.Threads, Near: n.Near, Me: n.Rank == env.Rank, SameProcess: n.SameProcess})
		}
		p.placement = env.Placed
		machine := placement.LocalMachine()
		if !env.Launched {
			plan, undo, err := ranks.Bind(machine, cmp.Or(bind, env.Bind))
			if err != nil {
				return shm.Settled{}, fmt.Errorf("binding this rank: %w", err)
			}
			p.placement, p.unbind = plan.String(), undo
		}
		p.count = ranks.CPUShare(machine)
		s := shm.Settled{Cores: ranks.Together(machine)}
		s.Node, s.Homed = machine.Home(placement.Allowed())
		return s, nil
	}
}

// Rank returns this rank, from 0 to Size()-1; -1 in a heter-trainer.
func (j *Job) Rank() int { return j.rank }

// Size returns the number of ranks, the world size.
func (j *Job) Size() int { return j.size }

// Servers returns the number of aggregation servers.
func (j *Job) Servers() int { return j.aggregators }

// ServersOnly reports whether the job has no connections among its ranks: see Config.ServersOnly.
func (j *Job) ServersOnly() bool { return j.serversOnly }

// LocalRank returns this rank's number on its host.
func (j *Job) LocalRank() int { return j.localRank }

// Columns returns the width, in characters, of the terminal that shows rank 0's output, even if a
// launcher forwards the output. 0 means unknown.
func (j *Job) Columns() int { return j.records.columns }

// Context returns a context that ends with the job, with the parent context, or on the loss of a
// rank. context.Cause returns the reason.
func (j *Job) Context() context.Context { return j.life.ctx }

// Placement describes the CPUs of this host's ranks: "bound to a core each", or "not bound: 3 ranks
// on 2 cores". Ranks without a placement, as in a job of one process, return "".
func (j *Job) Placement() string { return j.cpus.placement }

// Cores returns the number of CPUs of this rank, at least 1: those that the rank is bound to, or
// else its share of the CPUs of the host. All threads of the rank share these CPUs.
func (j *Job) Cores() int { return j.cpus.count }

// Recorder returns this process's recorder: the memory with its latest operations and phases, the
// source of metrics and timelines.
func (j *Job) Recorder() *record.Recorder { return j.records.recorder }

// Metrics returns this rank's metrics. It is nil, and ignores updates, if the job is not monitored.
// The job updates its metrics; the program reports steps by Metrics().Step. See Config.Metrics.
func (j *Job) Metrics() *metrics.RankMetrics { return j.records.metrics }

// Transport returns the type of connection with the ranks of the same host: TransportSHM,
// TransportTCP, "mem" inside one process, or "" without connections among ranks.
func (j *Job) Transport() string { return j.links.kind }

// Fallback names the ranks of one host that cannot share memory although the configuration requires
// it, with the reason, equal on all ranks. It returns "" if there are none. If Config.Transport is
// TransportSHM, Fallback also reports that every rank has a separate host.
func (j *Job) Fallback() string { return j.links.fallback }

// Traffic returns the number of bytes sent and received by this rank. Wire bytes include headers,
// handshakes and the control connection.
func (j *Job) Traffic() transport.Traffic {
	t := j.links.mesh.Traffic()
	if m := j.members.member(); m != nil {
		c := m.Traffic()
		t.WireSent += c.WireSent
		t.WireReceived += c.WireReceived
	}
	return t
}

// SharedMemory returns the memory shared by the ranks of this host, or nil. Collectives reduce
// operands in shared memory without a copy.
func (j *Job) SharedMemory() *transport.SharedMemory { return transport.SharedMemoryOf(j.links.mesh) }

// bytesCarried returns the number of bytes exchanged through shared memory.
func (j *Job) bytesCarried() int64 {
	if w := j.SharedMemory(); w != nil {
		return w.BytesCarried.Load()
	}
	return 0
}

// Alloc returns n zeros, aligned to 64 bytes: in the host's shared memory if it has space, else in
// ordinary memory. Operations reduce shared memory without a copy. Use it for the slice of all
// gradients (nn.Params.GradsFrom) and, if the ranks of a host divide updates, of all parameters
// (nn.Params.ArenasFrom). The slice belongs to the job: it must not be used after Close or Free.
// Alloc must not be called concurrently.
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

// Free releases x, if x is the result of the last Alloc. Any other slice stays until the job ends.
// No operation on x may be in progress.
func (j *Job) Free(x []float32) {
	if w := j.SharedMemory(); w != nil && len(x) > 0 {
		w.Return(bytesview.Bytes(x))
	}
}

// SetStatus sets this rank's activity, such as "training epoch 3" or "evaluating". A rank that
// waits for this rank includes it in its reports.
func (j *Job) SetStatus(doing string) {
	if m := j.members.member(); m != nil {
		m.SetStatus(doing)
	}
}

// Close leaves the job without an error and frees the job's resources. Later operations of other
// ranks with this rank fail.
//
// If an operation of this rank has failed, the job fails, even if the program ignored the error.
func (j *Job) Close() error {
	return j.close(j.unreportedError)
}

// close leaves the job. If unreported returns an error, close makes the job fail with it.
func (j *Job) close(unreported func() error) error {
	j.life.closing.Do(func() {
		if err := unreported(); err != nil {
			j.members.member().Fail(during{err})
		}
		j.life.closeErr = errors.Join(j.notServedError(), j.release())
	})
	return j.life.closeErr
}

// release frees the resources opened by Join, in reverse order.
func (j *Job) release() error {
	last := j.lastOperation()
	if j.members.stops != nil {
		j.members.stops.Leave(j.rank, last)
	}
	j.life.end()
	var errs []error
	if j.records.stopMetrics != nil {
		j.records.stopMetrics()
		errs = append(errs, j.records.metrics.Close())
	}
	errs = append(errs, j.ops.close())
	if j.links.mesh != nil {
		errs = append(errs, j.links.mesh.Close())
	}
	if j.members.cluster != nil {
		errs = append(errs, j.members.cluster.Leave(last))
	}
	if j.records.dir != nil {
		j.records.dir.Leave()
	}
	if j.cpus.unbind != nil {
		j.cpus.unbind()
	}
	j.heter.end()
	j.records.close()
	return errors.Join(errs...)
}

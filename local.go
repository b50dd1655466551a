package ringo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// Run joins, calls fn and leaves. When fn fails, the other ranks are told, and the error is the
// best that this rank knows: of a lost peer, who it is. See Reported for who prints it. A
// *StoppedError of fn is no failure: the rank leaves in good order. Nor is ErrHeterTrainerDone.
func Run(ctx context.Context, cfg Config, fn func(*Job) error) error {
	job, err := Join(ctx, cfg)
	if err != nil {
		return err
	}
	return job.end(panics.Do(func() error { return fn(job) }))
}

// Local runs fn on n ranks that are goroutines of this process and talk through
// memory, and returns the first fault, naming its rank. It is what tests of a
// training program need, and what `--transport mem` does. Servers, if cfg has any,
// are goroutines too. What cfg says of processes has no effect: Transport, Network,
// Times and Report.
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
	left := launch.NewRecordFiles(cfg.BlackBox, nil)
	errs := make([]error, n+cfg.Servers)
	stops := &localStoppers{ranks: make([]*Stopper, n)}
	var wg sync.WaitGroup
	for rank, mesh := range mem.New(n + cfg.Servers) {
		body := fn
		if rank >= n {
			body = (*Job).serve
		}
		wg.Go(func() { errs[rank] = runLocal(ctx, cancel, mesh, cfg, stops, left, body) })
	}
	wg.Wait()
	err := cmp.Or(errs...)
	if err == nil || stoppedBy(err) != nil || errors.Is(err, context.Canceled) {
		return err
	}
	return left.WithRecords(err, left.Files()...)
}

// runLocal is one rank of Local. It cancels with its fault before the other
// ranks can see the echo; all that fail then return the same.
func runLocal(ctx context.Context, cancel context.CancelCauseFunc, mesh transport.Mesh, cfg Config, stops *localStoppers, left launch.RecordFiles, fn func(*Job) error) error {
	j, err := local(ctx, mesh, cfg, stops, left)
	if err != nil {
		return err
	}
	if err := panics.Do(func() error { return fn(j) }); stoppedBy(err) != nil {
		return errors.Join(err, j.Close())
	} else if err != nil {
		j.yield(ctx, err)
		cancel(j.blame(err))
		_ = j.Fail(err)
		return context.Cause(ctx)
	}
	return j.Close()
}

// blame is err with the rank that it is from, unless it begins with a rank that is lost.
func (j *Job) blame(err error) error {
	if best := j.Err(err); errors.As(best, new(*transport.LostError)) {
		return best
	}
	return fmt.Errorf("%s: %w", j.name(), err)
}

// yield waits a moment for the rank that err is the echo of: what that returns itself counts.
func (j *Job) yield(ctx context.Context, err error) {
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

// local is a rank whose mesh is there already.
func local(ctx context.Context, mesh transport.Mesh, cfg Config, stops *localStoppers, left launch.RecordFiles) (*Job, error) {
	j := &Job{recordFiles: left, stops: stops, rank: mesh.Rank(), size: mesh.Size() - cfg.Servers, servers: cfg.Servers, localRank: mesh.Rank(), mesh: mesh, kind: "mem"}
	j.recorder = left.Recorder(j.process())
	j.cores = max(1, runtime.GOMAXPROCS(0)/mesh.Size())
	j.ctx, j.cancel = context.WithCancelCause(ctx)
	if err := j.start(mesh, cfg); err != nil {
		_ = j.release() // of a mesh in memory
		return nil, err
	}
	return j, nil
}

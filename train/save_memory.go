package train

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/snapshot"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// A job that continues after the loss of a rank repeats the steps since the last saved state. In
// addition to checkpoints, rank 0 therefore writes snapshots, checkpoints in the memory of the host
// (internal/snapshot), as often as their measured cost allows.

// Parameters of the schedule of snapshots.
const (
	firstSnapshot  = 4     // steps before the first snapshot
	maxShare       = 0.01  // limit of the time of snapshots, as a part of the run's time
	plannedShare   = 0.008 // part for which the interval is chosen
	settledAfter   = 3     // snapshots until the interval is final; the first two fill new memory
	mostUnsettled  = 32    // steps between the first snapshots
	minSupervised  = 4     // snapshots until a part above the limit counts
	timedSnapSteps = 64    // number of steps with the median that is the time of a step
)

// snapshots is the schedule of a run's snapshots.
type snapshots struct {
	memory *snapshot.Memory // on rank 0; nil without snapshots
	at     int              // step of the run of the next snapshot, equal on all ranks; 0 without

	// every is the interval between snapshots in steps. It and the next fields are set on rank 0
	// only; times are in seconds.
	every        int
	share        float64 // expected part of the time
	taken        int     // snapshots of the run,
	since        int     // and since the choice of the interval
	cost         float64 // least time of the first snapshots
	spent, steps float64 // times of snapshots and of steps since the choice of the interval
}

// beginSnapshots plans the first snapshot of a run that begins at a position, if rank 0 has memory
// for it. All ranks call it.
func (s *saver) beginSnapshots(at position) error {
	if s.cfg.Workers == 0 || s.cfg.Checkpoint.Dir == "" {
		return nil
	}
	n := &s.snapshots
	first := []int64{0}
	if s.job.Rank() == 0 {
		if n.memory = snapshot.From(s.ctx); n.memory != nil {
			first[0] = int64(s.runStep(at) + cmp.Or(n.memory.Steps, firstSnapshot))
		}
	}
	err := collective.Broadcast(s.job.Group(), first, 0)
	n.at = int(first[0])
	return err
}

// openLast opens the newer of the folder's last checkpoint and the job's last snapshot.
func (e *runEnv) openLast() (checkpointInfo, error) {
	head, err := openSaved(e.cfg.Checkpoint.Dir)
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return head, err
	}
	path, step := snapshot.From(e.ctx).Latest()
	if path == "" || err == nil && head.Step >= step {
		return head, err
	}
	saved := head.Step
	if err == nil {
		_ = head.file.Close() // read only
	}
	head, err = openSaved(path)
	head.File, head.OnDisk = snapshot.Name, saved
	return head, err
}

// pauses reports whether a checkpoint or a snapshot follows a step of the run.
func (s *saver) pauses(step int) bool { return s.due(step, false) || step == s.snapshots.at }

// after returns the functions that save the run in the middle of an epoch.
func (s *saver) after(p *position) (out []func(position) error) {
	step := s.runStep(*p)
	if !s.cut && s.due(step, false) {
		out = append(out, s.save)
	}
	if !s.cut && step == s.snapshots.at {
		out = append(out, s.snapshot)
	}
	return out
}

// snapshot saves the run in memory and plans the next snapshot. All ranks call it.
func (s *saver) snapshot(p position) error {
	defer s.during(record.Checkpoint)()
	start, n := time.Now(), &s.snapshots
	state, err := s.collect(p)
	if err != nil {
		return err
	}
	next := []int64{0}
	if s.job.Rank() != 0 {
		err = s.sendLocal()
	} else if err = n.write(state); err == nil {
		if len(s.reports.stepS) > 0 && n.plan(time.Since(start).Seconds(), s.recentStep()) {
			s.remark(s.epochOf(p), "%s every %s: %s %% of the time", snapshot.Name, quantity.Count(n.every, "step"), quantity.FloatDigits(100*n.share, 1))
		}
		next[0] = int64(s.runStep(p) + cmp.Or(n.memory.Steps, n.every))
	} else if why := n.memory.Short(); why != nil {
		n.memory.Clear()
		s.remark(s.epochOf(p), "no snapshots in memory, which is short: %v: after the loss of a rank the job goes on from its last checkpoint", why)
		err = nil
	}
	if err == nil {
		err = collective.Broadcast(s.job.Group(), next, 0)
	}
	n.at = int(next[0])
	return err
}

// write writes a snapshot. Being in memory, it needs no checkpoint.Written.Finish.
func (n *snapshots) write(state checkpoint.State) error {
	state.Create = n.memory.Create
	if _, err := checkpoint.Write(snapshot.Dir, state); err != nil {
		return err
	}
	return n.memory.Commit()
}

// plan computes the next interval from took, the duration of a snapshot, and step, the duration of
// a step. It reports whether to print the interval: the first one that is final, and all later
// intervals.
func (n *snapshots) plan(took, step float64) (final bool) {
	n.taken, n.since = n.taken+1, n.since+1
	n.spent, n.steps = n.spent+took, n.steps+float64(n.every)*step
	switch {
	case n.taken <= settledAfter:
		if n.cost == 0 || took < n.cost {
			n.cost = took
		}
		n.every = int(math.Ceil(n.cost / (plannedShare * step)))
		n.share = n.cost / (n.cost + float64(n.every)*step)
		if n.taken < settledAfter { // a slow one must not delay the next
			n.every = min(n.every, mostUnsettled)
		}
	case n.since >= minSupervised && n.spent > maxShare*(n.spent+n.steps):
		n.every, n.share = 2*n.every, n.spent/(n.spent+2*n.steps)
	default:
		return false
	}
	n.since, n.spent, n.steps = 0, 0, 0
	return n.taken >= settledAfter
}

// recentStep returns the time of a step in seconds.
func (s *saver) recentStep() float64 {
	last := s.reports.stepS
	return median.Of(slices.Clone(last[max(0, len(last)-timedSnapSteps):]))
}

package train

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// A full disk is no reason to lose what a run has computed: it goes on, says what is missing, and tries again. Only the
// last checkpoint must be written, for which it waits within a bound.

// DefaultFullWait is how long a run waits at its end for room on a full disk.
const DefaultFullWait = 5 * time.Minute

// fullWait is DiskFullWait with its default.
func (c Checkpoint) fullWait() time.Duration {
	if c.DiskFullWait == 0 {
		return DefaultFullWait
	}
	return max(0, c.DiskFullWait)
}

// pause is the time from one trial to the next at first. It doubles up to fullWait.
func (c Checkpoint) pause() time.Duration { return c.fullWait() / 30 }

// diskState is how a run stands with its disk.
type diskState struct {
	// retryStep is after which step of the run it tries again, the same on all ranks; 0: the disk
	// was not full.
	retryStep int
	// pause is about how long that takes. Only rank 0 knows.
	pause time.Duration
	// failed is how many trials found no room, the same on all ranks.
	failed int
	// saved is the step of the last checkpoint; 0: there is none. Only rank 0 knows.
	saved int64
}

// What rank 0 makes of a trial to save, and tells all.
const (
	verdictSaved = iota
	verdictLater // after so many steps
	verdictWait  // so many microseconds, and try again now
)

// save saves the run, or where the disk is full lets it go on and try again later. The last time
// it waits for room, as long as Checkpoint.DiskFullWait says. It is a collective call.
func (r *run) save(p position) error {
	last, waiting := p.epoch > r.cfg.Epochs || r.ended != "", false
	for until := time.Now().Add(r.cfg.Checkpoint.fullWait()); ; {
		verdict := []int64{verdictSaved, 0}
		err := r.write(p)
		if r.job.Rank() == 0 && dirlock.Full(err) {
			if left := time.Until(until); !last {
				verdict[0], verdict[1] = verdictLater, r.later(p, err)
			} else if left > 0 {
				if !waiting { // else it has been said
					r.reportDiskFull(p, err, fmt.Sprintf("the run waits for it for %s", quantity.Duration(left)))
				}
				waiting, r.room.pause = true, min(left, r.cfg.Checkpoint.pause())
				verdict[0], verdict[1] = verdictWait, r.room.pause.Microseconds()
			} else {
				return fmt.Errorf("the last checkpoint could not be written, and what was trained since step %d is lost: %w", r.room.saved, err)
			}
		} else if err != nil {
			return err
		}
		if err := collective.Broadcast(r.job.Group(), verdict, 0); err != nil {
			return fmt.Errorf("learning whether rank 0 has saved the run: %w", err)
		}
		if verdict[0] == verdictSaved {
			r.checkpointWritten(p)
			return r.afterCheckpoint(r.stepsDone(p))
		}
		if r.room.failed++; verdict[0] == verdictLater {
			r.room.retryStep = r.runStep(p) + int(verdict[1])
			return nil
		}
		if err := sleep(r.job.Context(), time.Duration(verdict[1])*time.Microsecond); err != nil {
			return err
		}
	}
}

// runStep is how many steps of the run are done at a position, as due counts them.
func (r *run) runStep(p position) int { return (p.epoch-1)*r.steps + p.step }

// later tells that the run goes on without having been saved, and returns after how many steps it tries again.
func (r *run) later(p position, fault error) (steps int64) {
	r.room.pause = min(max(2*r.room.pause, r.cfg.Checkpoint.pause()), r.cfg.Checkpoint.fullWait())
	steps = 1
	if step := r.stepTime(); step > 0 {
		steps = max(1, int64(r.room.pause.Seconds()/step))
	}
	steps = min(steps, int64(max(1, r.steps*r.cfg.Epochs-r.runStep(p))))
	r.reportDiskFull(p, fault, fmt.Sprintf("the run goes on and tries again after step %d", int64(r.runStep(p))+steps))
	return steps
}

// stepTime is about how long a step takes, in seconds; 0 where it is not known.
func (r *run) stepTime() float64 {
	sum := 0.0
	for _, s := range r.stepS {
		sum += s
	}
	if sum == 0 {
		return 0
	}
	return sum / float64(len(r.stepS)*len(r.workers))
}

// reportDiskFull tells what to do.
func (r *run) reportDiskFull(p position, fault error, then string) {
	has, needs := fmt.Sprintf("the last one is of step %d", r.room.saved), ""
	if r.room.saved == 0 {
		has = "there is none yet"
	}
	if w := new(checkpoint.WriteError); errors.As(fault, &w) {
		needs = " of " + quantity.Bytes(w.Bytes)
	}
	cause := fault
	if e := syscall.Errno(0); errors.As(fault, &e) {
		cause = e
	}
	r.remark(r.epochOf(p), "no room for the checkpoint of step %d%s: %v: make room in %s: %s; %s", r.stepsDone(p), needs, cause, r.cfg.Checkpoint.Dir, then, has)
}

// epochOf is the epoch whose steps were done last.
func (r *run) epochOf(p position) int {
	if p.step == 0 {
		return p.epoch - 1
	}
	return p.epoch
}

// checkpointWritten notes a checkpoint.
func (r *run) checkpointWritten(p position) {
	if r.room.pause > 0 && r.job.Rank() == 0 {
		r.remark(r.epochOf(p), "the checkpoint of step %d found room on the disk", r.stepsDone(p))
	}
	r.room.retryStep, r.room.pause, r.room.saved = 0, 0, r.stepsDone(p)
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

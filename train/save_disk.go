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
func (s *saver) save(p position) error {
	last, waiting := p.epoch > s.cfg.Epochs || s.ended != "", false
	for until := time.Now().Add(s.cfg.Checkpoint.fullWait()); ; {
		verdict := []int64{verdictSaved, 0}
		err := s.write(p)
		if s.job.Rank() == 0 && dirlock.Full(err) {
			if left := time.Until(until); !last {
				verdict[0], verdict[1] = verdictLater, s.later(p, err)
			} else if left > 0 {
				if !waiting { // else it has been said
					s.reportDiskFull(p, err, fmt.Sprintf("the run waits for it for %s", quantity.Duration(left)))
				}
				waiting, s.room.pause = true, min(left, s.cfg.Checkpoint.pause())
				verdict[0], verdict[1] = verdictWait, s.room.pause.Microseconds()
			} else {
				return fmt.Errorf("the last checkpoint could not be written, and what was trained since step %d is lost: %w", s.room.saved, err)
			}
		} else if err != nil {
			return err
		}
		if err := collective.Broadcast(s.job.Group(), verdict, 0); err != nil {
			return fmt.Errorf("learning whether rank 0 has saved the run: %w", err)
		}
		if verdict[0] == verdictSaved {
			s.checkpointWritten(p)
			return s.afterCheckpoint(s.resumption.stepsDone(p))
		}
		if s.room.failed++; verdict[0] == verdictLater {
			s.room.retryStep = s.runStep(p) + int(verdict[1])
			return nil
		}
		if err := sleep(s.job.Context(), time.Duration(verdict[1])*time.Microsecond); err != nil {
			return err
		}
	}
}

// runStep is how many steps of the run are done at a position, as due counts them.
func (s *saver) runStep(p position) int { return (p.epoch-1)*s.data.steps + p.step }

// later tells that the run goes on without having been saved, and returns after how many steps it tries again.
func (s *saver) later(p position, fault error) (steps int64) {
	s.room.pause = min(max(2*s.room.pause, s.cfg.Checkpoint.pause()), s.cfg.Checkpoint.fullWait())
	steps = 1
	if step := s.reports.stepTime(); step > 0 {
		steps = max(1, int64(s.room.pause.Seconds()/step))
	}
	steps = min(steps, int64(max(1, s.data.steps*s.cfg.Epochs-s.runStep(p))))
	s.reportDiskFull(p, fault, fmt.Sprintf("the run goes on and tries again after step %d", int64(s.runStep(p))+steps))
	return steps
}

// reportDiskFull tells what to do.
func (s *saver) reportDiskFull(p position, fault error, then string) {
	has, needs := fmt.Sprintf("the last one is of step %d", s.room.saved), ""
	if s.room.saved == 0 {
		has = "there is none yet"
	}
	if w := new(checkpoint.WriteError); errors.As(fault, &w) {
		needs = " of " + quantity.Bytes(w.Bytes)
	}
	cause := fault
	if e := syscall.Errno(0); errors.As(fault, &e) {
		cause = e
	}
	s.remark(s.epochOf(p), "no room for the checkpoint of step %d%s: %v: make room in %s: %s; %s", s.resumption.stepsDone(p), needs, cause, s.cfg.Checkpoint.Dir, then, has)
}

// epochOf is the epoch whose steps were done last.
func (s *saver) epochOf(p position) int {
	if p.step == 0 {
		return p.epoch - 1
	}
	return p.epoch
}

// checkpointWritten notes a checkpoint.
func (s *saver) checkpointWritten(p position) {
	if s.room.pause > 0 && s.job.Rank() == 0 {
		s.remark(s.epochOf(p), "the checkpoint of step %d found room on the disk", s.resumption.stepsDone(p))
	}
	s.room.retryStep, s.room.pause, s.room.saved = 0, 0, s.resumption.stepsDone(p)
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

// A checkpoint holds steps as long as its arrays take to be copied into the system's memory. That they come to the disk, which may take many
// times as long, and get the file's name is waited for by the next checkpoint, and by the end of the run.

// pendingCheckpoint is a checkpoint on its way to the disk, on rank 0.
type pendingCheckpoint struct {
	step, before int64 // of this one, and of the one before it
	done         chan struct{}
	err          error // once it is done
}

// finish has a checkpoint finished, beside the steps that follow unless somebody is told that it is there.
func (s *saver) finish(p position, w *checkpoint.Written) error {
	f := &pendingCheckpoint{step: s.resumption.stepsDone(p), before: s.room.saved, done: make(chan struct{})}
	dir, start := s.cfg.Checkpoint.Dir, s.cfg.Servers.Start
	do := func() {
		defer close(f.done)
		if _, f.err = w.Finish(); f.err == nil {
			f.err = dropAttempts(dir, start)
		}
	}
	if s.lastSave(p) || s.ownLoop || s.cfg.AfterCheckpoint != nil {
		do()
		return f.err
	}
	s.finishing = f
	go do()
	return nil
}

// lastSave says that none follows by itself.
func (s *saver) lastSave(p position) bool { return p.epoch > s.cfg.Epochs || s.ended != "" || s.cut }

// finished waits for the checkpoint before. One for which a full disk had no room after all is lost: the next one is written.
func (s *saver) finished(p position) error {
	f := s.finishing
	if f == nil {
		return nil
	}
	<-f.done
	s.finishing = nil
	if dirlock.Full(f.err) {
		s.room.saved = f.before
		s.remark(s.epochOf(p), "the checkpoint of step %d found no room when it came to the disk: make room in %s: that of step %d is tried now", f.step, s.cfg.Checkpoint.Dir, s.resumption.stepsDone(p))
		return nil
	}
	return f.err
}

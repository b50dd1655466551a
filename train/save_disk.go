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

// A full disk does not stop a run: it continues, reports the missing space, and tries again. Only
// the last checkpoint must be written; the run waits for it up to a limit.

// DefaultFullWait is the default of Checkpoint.DiskFullWait.
const DefaultFullWait = 5 * time.Minute

func (c Checkpoint) fullWait() time.Duration {
	if c.DiskFullWait == 0 {
		return DefaultFullWait
	}
	return max(0, c.DiskFullWait)
}

// pause returns the first pause between two attempts. It doubles up to fullWait.
func (c Checkpoint) pause() time.Duration { return c.fullWait() / 30 }

// diskState is the state of failed attempts to save.
type diskState struct {
	// retryStep is the run's step of the next attempt to save, equal on all ranks; 0 if the disk
	// was not full.
	retryStep int
	pause     time.Duration // approximate time until then, on rank 0
	failed    int           // number of failed attempts, equal on all ranks
	missing   []int64       // steps of the run without a checkpoint, equal on all ranks
	saved     int64         // step of the last checkpoint, on rank 0; 0 without one
}

// Results of an attempt to save, which rank 0 broadcasts.
const (
	verdictSaved = iota
	verdictLater // argument: steps
	verdictWait  // argument: microseconds
)

// save saves the run; if the disk is full, the run continues and tries again later. The last save
// waits for space, up to Checkpoint.DiskFullWait. The call is collective.
func (s *saver) save(p position) error {
	last, waiting := p.epoch > s.cfg.Epochs || s.ended != "", false
	for until := time.Now().Add(s.cfg.Checkpoint.fullWait()); ; {
		verdict := []int64{verdictSaved, 0}
		err := s.write(p)
		if s.job.Rank() == 0 && dirlock.Full(err) {
			if left := time.Until(until); !last {
				verdict[0], verdict[1] = verdictLater, s.later(p, err)
			} else if left > 0 {
				if !waiting { // reported once
					s.reportDiskFull(p, err, fmt.Sprintf("the run waits for space for %s", quantity.Duration(left)))
				}
				waiting, s.room.pause = true, min(left, s.cfg.Checkpoint.pause())
				verdict[0], verdict[1] = verdictWait, s.room.pause.Microseconds()
			} else {
				return fmt.Errorf("the last checkpoint could not be written; training after step %d is lost: %w", s.room.saved, err)
			}
		} else if err != nil {
			return err
		}
		if err := collective.Broadcast(s.job.Group(), verdict, 0); err != nil {
			return fmt.Errorf("receiving the result of the save from rank 0: %w", err)
		}
		if verdict[0] == verdictSaved {
			s.checkpointWritten(p)
			return s.afterCheckpoint(s.resumption.stepsDone(p))
		}
		if s.room.failed++; verdict[0] == verdictLater {
			s.room.retryStep, s.room.missing = s.runStep(p)+int(verdict[1]), append(s.room.missing, s.resumption.stepsDone(p))
			return nil
		}
		if err := sleep(s.job.Context(), time.Duration(verdict[1])*time.Microsecond); err != nil {
			return err
		}
	}
}

// runStep returns the number of steps of the run at a position, as due counts them.
func (s *saver) runStep(p position) int { return (p.epoch-1)*s.data.steps + p.step }

// later reports to the user that the run continues without a save, and returns the number of steps
// until the next attempt.
func (s *saver) later(p position, fault error) (steps int64) {
	s.room.pause = min(max(2*s.room.pause, s.cfg.Checkpoint.pause()), s.cfg.Checkpoint.fullWait())
	steps = 1
	if step := s.reports.stepTime(); step > 0 {
		steps = max(1, int64(s.room.pause.Seconds()/step))
	}
	steps = min(steps, int64(max(1, s.data.steps*s.cfg.Epochs-s.runStep(p))))
	s.reportDiskFull(p, fault, fmt.Sprintf("the run continues and tries again after step %d", int64(s.runStep(p))+steps))
	return steps
}

func (s *saver) reportDiskFull(p position, fault error, then string) {
	has, needs := fmt.Sprintf("the last one is of step %d", s.room.saved), ""
	if s.room.saved == 0 {
		has = "no checkpoint exists yet"
	}
	if w := new(checkpoint.WriteError); errors.As(fault, &w) {
		needs = " of " + quantity.Bytes(w.Bytes)
	}
	cause := fault
	if e := syscall.Errno(0); errors.As(fault, &e) {
		cause = e
	}
	s.remark(s.epochOf(p), "no space for the checkpoint of step %d%s: %v: free space in %s: %s; %s", s.resumption.stepsDone(p), needs, cause, s.cfg.Checkpoint.Dir, then, has)
}

// epochOf returns the epoch of the last finished step.
func (s *saver) epochOf(p position) int {
	if p.step == 0 {
		return p.epoch - 1
	}
	return p.epoch
}

func (s *saver) checkpointWritten(p position) {
	if s.room.pause > 0 && s.job.Rank() == 0 {
		s.remark(s.epochOf(p), "the checkpoint of step %d is written: the disk has space again", s.resumption.stepsDone(p))
	}
	s.room.retryStep, s.room.pause, s.room.saved = 0, 0, s.resumption.stepsDone(p)
}

// sleep waits, or returns the cause of ctx's end.
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

// A checkpoint delays steps only while its arrays are copied into the system's memory. To write
// them to the disk may take many times as long and happens during the next steps; the next
// checkpoint, and the end of the run, wait for the finished file.

// pendingCheckpoint is a checkpoint that rank 0 writes to the disk.
type pendingCheckpoint struct {
	step, before int64 // steps of this checkpoint, and of the one before
	done         chan struct{}
	err          error // valid after done
}

// finish waits for the disk in the background, during the next steps; for the last save, or if a
// caller observes checkpoints, before it returns.
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

// lastSave reports whether no save follows.
func (s *saver) lastSave(p position) bool { return p.epoch > s.cfg.Epochs || s.ended != "" || s.cut }

// finished waits until the checkpoint before is on the disk. If the disk was full, that checkpoint
// is lost, and the run writes the next one.
func (s *saver) finished(p position) error {
	f := s.finishing
	if f == nil {
		return nil
	}
	<-f.done
	s.finishing = nil
	if dirlock.Full(f.err) {
		s.room.saved = f.before
		s.remark(s.epochOf(p), "the checkpoint of step %d is lost, because the disk was full: free space in %s; the checkpoint of step %d is tried now", f.step, s.cfg.Checkpoint.Dir, s.resumption.stepsDone(p))
		return nil
	}
	return f.err
}

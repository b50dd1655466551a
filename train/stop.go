package train

import (
	"errors"
	"time"

	"github.com/ringo-ml/ringo"
)

// A run that is told to end, and that has a folder of checkpoints, stops between two steps, the same two on all ranks, and saves a last
// checkpoint: it is what a checkpoint after that step would have been. See ringo.Job.Stoppable.

// epochStep is where in a run something was done.
type epochStep struct{ epoch, step int }

// stoppable makes the run, which begins at a position, one that can be stopped.
func (l *epochLoop) stoppable(at position) {
	l.saver.saved, l.saver.room.saved = epochStep{at.epoch, at.step}, l.resumption.found.Step // where it was resumed, or nothing to save
	if dir := l.cfg.Checkpoint.Dir; dir != "" {
		l.stops = l.job.Stoppable(dir, int64((at.epoch-1)*l.data.steps+at.step))
	}
}

// checkStop returns a *ringo.StoppedError if all ranks stop before the next n steps of an epoch.
func (l *epochLoop) checkStop(epoch, step, n int) error {
	return l.stops.BeginMany(int64((epoch-1)*l.data.steps+step), int64(n))
}

// stopped reports whether err says that the run was told to end.
func stopped(err error) bool {
	var s *ringo.StoppedError
	return errors.As(err, &s)
}

// saveLast saves a run whose training clock started at start and that was stopped, unless it has just been
// saved there, and returns why: a *ringo.StoppedError.
func (s *saver) saveLast(at *position, start time.Time, why error) error {
	if s.saved == (epochStep{at.epoch, at.step}) {
		return why
	}
	if _, err := s.saveMidEpoch(at, start); err != nil {
		return err
	}
	return why
}

// leaveStopped ends a run that was stopped, with err: what servers have is theirs no longer.
func (l *epochLoop) leaveStopped(err error) error {
	return errors.Join(err, l.replica.params.leave())
}

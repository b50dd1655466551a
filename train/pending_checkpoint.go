package train

import (
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/dirlock"
)

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

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
func (r *run) finish(p position, w *checkpoint.Written) error {
	f := &pendingCheckpoint{step: r.stepsDone(p), before: r.room.saved, done: make(chan struct{})}
	dir, start := r.cfg.Checkpoint.Dir, r.cfg.Servers.Start
	do := func() {
		defer close(f.done)
		if _, f.err = w.Finish(); f.err == nil {
			f.err = dropAttempts(dir, start)
		}
	}
	if r.lastSave(p) || r.loop || r.cfg.AfterCheckpoint != nil {
		do()
		return f.err
	}
	r.finishing = f
	go do()
	return nil
}

// lastSave says that none follows by itself.
func (r *run) lastSave(p position) bool { return p.epoch > r.cfg.Epochs || r.ended != "" || r.cut }

// finished waits for the checkpoint before. One for which a full disk had no room after all is lost: the next one is written.
func (r *run) finished(p position) error {
	f := r.finishing
	if f == nil {
		return nil
	}
	<-f.done
	r.finishing = nil
	if dirlock.Full(f.err) {
		r.room.saved = f.before
		r.remark(r.epochOf(p), "the checkpoint of step %d found no room when it came to the disk: make room in %s: that of step %d is tried now", f.step, r.cfg.Checkpoint.Dir, r.stepsDone(p))
		return nil
	}
	return f.err
}

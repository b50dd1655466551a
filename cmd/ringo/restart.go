package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/snapshot"
)

// maxSameStart limits the starts of a job from one checkpoint: a job that ends each time before the
// next checkpoint would never be done.
const maxSameStart = 3

// untilDone repeats start, which runs a job of virtual workers, while a rank is lost: each time
// with a rank less, at least f.MinRanks, from the last checkpoint or snapshot. The result has the
// same bits. A rank that reports an error ends the job, because the error would come again.
func (f *jobFlags) untilDone(cmd *cobra.Command, start func() error) error {
	memory, err := snapshot.Create()
	if err != nil {
		tells(cmd)(fmt.Sprintf("no snapshots in memory: %v: after the loss of a rank the job goes on from its last checkpoint", err))
	} else {
		f.snapshots = memory
		defer memory.Close()
	}
	from, starts := f.lastState(), 1
	for {
		err := start()
		var lost *launch.LostProcessError
		if !errors.As(err, &lost) || lost.Failed != "" || cmd.Context().Err() != nil {
			return err
		}
		at := f.lastState()
		if starts++; at != from {
			from, starts = at, 2
		}
		if starts > maxSameStart {
			return fmt.Errorf("%w\n%d starts of the job from %s have ended before the next checkpoint or snapshot", err, maxSameStart, from)
		}
		f.Ranks, f.restarted = max(f.Ranks-1, f.MinRanks), true
		line := fmt.Sprintf("%s is lost (%s): the job goes on with %s from %s", lost.Name, lost.ExitStatus, quantity.Count(f.Ranks, "rank"), from)
		tells(cmd)(line)
		f.hub.AddEvent(line)
	}
}

// restartFault reports a job whose ranks this command cannot start again.
func (f *jobFlags) restartFault() error {
	if f.MinRanks == 0 || f.part == nil && f.Hosts == "" && !f.ByHand() && !f.InProcess() {
		return nil
	}
	return setting.Errorf("job.min-ranks", "%d: only ranks that this command starts as processes of this host can be started again: leave %v, %v, %v mem and other launchers out, and use at least two ranks or %v shm",
		f.MinRanks, setting.Path("job.hosts"), setting.Path("job.rank"), setting.Path("job.transport"), setting.Path("job.transport"))
}

// lastState returns the state from which the ranks continue, as text: the newer of the job's last
// checkpoint and its last snapshot. A damaged last file, which the ranks report, counts.
func (f *jobFlags) lastState() string {
	name, step := "the beginning", int64(-1)
	if all, err := checkpoint.Steps(f.Train.Checkpoint.Dir); err == nil && len(all) > 0 {
		name, step = checkpoint.PathOf(f.Train.Checkpoint.Dir, all[0]), all[0]
	}
	if path, at := f.snapshots.Latest(); path != "" && at > step {
		name, step = snapshot.Name, at
	}
	if step < 0 {
		return name
	}
	return fmt.Sprintf("step %d (%s)", step, name)
}

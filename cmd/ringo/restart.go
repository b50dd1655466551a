package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// maxSameStart limits the starts of a job from one checkpoint: a job that ends each time before the
// next checkpoint would never be done.
const maxSameStart = 3

// untilDone repeats start, which runs a job of virtual workers, while a rank is lost: each time
// with a rank less, at least f.MinRanks, from the last checkpoint. The result has the same bits. A
// rank that reports an error ends the job, because the error would come again.
func (f *jobFlags) untilDone(cmd *cobra.Command, start func() error) error {
	from, starts := f.lastCheckpoint(), 1
	for {
		err := start()
		var lost *launch.LostProcessError
		if !errors.As(err, &lost) || lost.Failed != "" || cmd.Context().Err() != nil {
			return err
		}
		at := f.lastCheckpoint()
		if starts++; at != from {
			from, starts = at, 2
		}
		if starts > maxSameStart {
			return fmt.Errorf("%w\n%d starts of the job from %s have ended before the next checkpoint", err, maxSameStart, startName(from))
		}
		f.Ranks, f.restarted = max(f.Ranks-1, f.MinRanks), true
		line := fmt.Sprintf("%s is lost (%s): the job goes on with %s from %s", lost.Name, lost.ExitStatus, quantity.Count(f.Ranks, "rank"), startName(from))
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

// lastCheckpoint returns the file of the job's last checkpoint, "" for none, or the folder if its
// last file is damaged, which the ranks report.
func (f *jobFlags) lastCheckpoint() string {
	file, err := checkpoint.Locate(f.Train.Checkpoint.Dir)
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return f.Train.Checkpoint.Dir
	}
	return file
}

func startName(file string) string {
	if file == "" {
		return "the beginning"
	}
	return file
}

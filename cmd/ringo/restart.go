package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/job"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/snapshot"
)

// maxSameStart limits the starts of a job from one checkpoint: a job that ends each time before the
// next checkpoint would never be done.
const maxSameStart = 3

// continueOnLoss makes a job of virtual workers continue from its last checkpoint or snapshot when
// a rank is lost. The result has the same bits. limited explains the error of a job with too many
// losses.
func (f *jobFlags) continueOnLoss(cmd *cobra.Command, cfg *launch.Config, ranks func() launch.Role) (limited func(error) error) {
	memory, err := snapshot.Create()
	if err != nil {
		tells(cmd)(fmt.Sprintf("no snapshots in memory: %v: after the loss of a rank the job goes on from its last checkpoint", err))
	} else {
		f.snapshots, cfg.Snapshots = memory, memory
	}
	from, starts, changes, all := f.lastState(), 1, 0, f.Ranks
	cfg.MinRanks = f.MinRanks
	cfg.Continue = func(losses []*launch.LostProcessError, n int) (launch.Role, string, bool) {
		at := f.lastState()
		if changes++; changes == 1 || changes > all { // losses until all ranks have joined are of one start
			starts++
		}
		if at != from {
			from, starts = at, 1
		}
		if starts > maxSameStart {
			return launch.Role{}, "", false
		}
		f.Ranks, f.restarted, f.lost = n, true, job.Losses{At: time.Now()}
		for _, l := range losses {
			f.lost.Ranks = append(f.lost.Ranks, fmt.Sprintf("%s is lost (%s)", l.Name, l.ExitStatus))
		}
		spec, err := f.handed(cmd, f.progress)
		return ranks(), spec, err == nil
	}
	cfg.OnContinue = func(after time.Duration) {
		changes = 0
		line := fmt.Sprintf("%s: the job goes on with %s from %s, after %v", strings.Join(f.lost.Ranks, ", "), quantity.Count(f.Ranks, "rank"), f.lastState(), quantity.Duration(after))
		tells(cmd)(line)
		f.hub.AddEvent(line)
	}
	return func(err error) error {
		memory.Close()
		if starts > maxSameStart {
			err = fmt.Errorf("%w\n%d starts of the job from %s have ended before the next checkpoint or snapshot", err, maxSameStart, from)
		}
		return err
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

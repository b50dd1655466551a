package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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
		lost := slices.ContainsFunc(losses, func(l *launch.LostProcessError) bool { return l.Leaves == "" })
		if changes++; lost && (changes == 1 || changes > all) { // losses until all ranks have joined are of one start
			starts++
		}
		if at != from {
			from, starts = at, 1
		}
		if starts > maxSameStart {
			return launch.Role{}, "", false
		}
		f.Ranks, f.restarted, f.lost = n, true, job.Losses{At: time.Now(), Ranks: named(losses)}
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

// settled is the time without losses after which the next one does not count for maxSameStart, in a
// job without checkpoints.
const settled = 10 * time.Second

// continueProgram makes a job of a program that can continue (ringo.torch.reform) do so when a rank
// is lost, with the state of the other ranks. explained explains the error of a job that cannot.
func (f *jobFlags) continueProgram(cmd *cobra.Command, cfg *launch.Config, ranks func() launch.Role) (explained func(error) error) {
	var lost []*launch.LostProcessError // since all ranks had last joined
	joined, early := time.Now(), 0
	ended := func(l *launch.LostProcessError) bool { return strings.HasPrefix(l.ExitStatus, "exit status") }
	cfg.MinRanks, cfg.Stateful = f.MinRanks, true
	cfg.Continue = func(losses []*launch.LostProcessError, n int) (launch.Role, string, bool) {
		if early++; n > f.MinRanks || len(lost) == 0 && time.Since(joined) > settled {
			early = 0
		}
		lost, f.Ranks = slices.Clone(losses), n
		if i := slices.IndexFunc(lost, func(l *launch.LostProcessError) bool { return !ended(l) }); i > 0 {
			lost[0], lost[i] = lost[i], lost[0] // the cause
		}
		spec, err := f.handed(cmd, f.progress)
		return ranks(), spec, err == nil && early < maxSameStart && !slices.ContainsFunc(losses, ended)
	}
	cfg.OnContinue = func(after time.Duration) {
		line := fmt.Sprintf("%s: the job goes on with %s, after %v", strings.Join(named(lost), ", "), quantity.Count(f.Ranks, "rank"), quantity.Duration(after))
		tells(cmd)(line)
		f.hub.AddEvent(line)
		joined, lost = time.Now(), nil
	}
	return func(err error) error {
		switch {
		case err == nil || len(lost) == 0:
			return err
		case early >= maxSameStart:
			return fmt.Errorf("%w\n%d losses within %v each: the job does not go on", lost[0], early, settled)
		case len(lost) > 1:
			err = errors.New(strings.Join(named(lost[1:]), ", "))
		}
		return fmt.Errorf("%w\nthe other ranks did not go on: %v: a program continues by ringo.torch.reform (docs/python.md)", lost[0], err)
	}
}

// named returns the ranks that are lost or leave, with the reasons.
func named(losses []*launch.LostProcessError) (out []string) {
	for _, l := range losses {
		if l.Leaves != "" {
			out = append(out, fmt.Sprintf("%s leaves (%s)", l.Name, l.Leaves))
			continue
		}
		out = append(out, fmt.Sprintf("%s is lost (%s)", l.Name, cmp.Or(l.ExitStatus, l.Failed)))
	}
	return out
}

// restartFault reports a job whose ranks this command cannot start again.
func (f *jobFlags) restartFault() error {
	if f.MinRanks > 0 && !f.anyProgram && (f.Train.Workers == 0 || f.Train.Checkpoint.Dir == "") {
		return setting.Errorf("job.min-ranks", "has no effect: it needs %v and %v", setting.Path("job.workers"), setting.Path("checkpoint.dir"))
	}
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

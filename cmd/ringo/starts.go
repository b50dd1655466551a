package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/folder"
	"github.com/ringo-ml/ringo/ps/saved"
	"github.com/ringo-ml/ringo/ps/tables"
	"github.com/ringo-ml/ringo/train"
)

// wholeFlags say how servers that keep parameters take part in the checkpoints of their job. A launcher tells them.
type wholeFlags struct {
	dir     string // of the checkpoints, "": there are none
	start   int    // to a rank: which start of the job this is
	job     string // to a server: its name
	step    uint   // to a server: of the checkpoint that it begins with, 0: it has none
	numbers []uint // by server, of their parts
}

// registerRank registers what a launcher tells a rank.
func (f *wholeFlags) registerRank(fs *pflag.FlagSet) {
	fs.IntVar(&f.start, "ps-start", 0, "which `start` of the job this is")
	_ = fs.MarkHidden("ps-start") // it is there
}

// registerServer registers what a launcher tells a server.
func (f *wholeFlags) registerServer(fs *pflag.FlagSet) {
	fs.StringVar(&f.job, "ps-job", "", "the `name` of a job whose trainers order checkpoints")
	fs.UintVar(&f.step, "ps-from-step", 0, "the `step` of the checkpoint to begin with")
	fs.UintSliceVar(&f.numbers, "ps-from-numbers", nil, "`numbers` of the parts of it, by server")
	for _, name := range []string{"ps-job", "ps-from-step", "ps-from-numbers"} {
		_ = fs.MarkHidden(name) // it is there
	}
}

// checkWhole finds whether the job is saved as a whole, and reports what does not go with it.
func (f *psFlags) checkWhole(cmd *cobra.Command, byHand bool, faults *faultList) {
	dir := cmd.Flags().Lookup("checkpoint")
	if dir == nil || !f.keeps() {
		return
	}
	if f.whole.dir = dir.Value.String(); f.whole.dir == "" {
		return
	}
	if byHand {
		faults.add("--checkpoint with --ps-mode %s and ranks that are started by hand: their servers would not be of the same moment: start all with one command, or let servers save theirs (ringo server --durability)", f.mode)
	}
	if f.dir != "" {
		faults.add("--ps-dir %q with --checkpoint %q: servers keep what they have in the folder of the checkpoints: leave it out", f.dir, f.whole.dir)
	}
	if f.durability == string(tables.Checkpoint) {
		faults.add("--durability %s with --checkpoint: the job's checkpoints hold what servers have: leave it out, or use wal", f.durability)
	}
	if f.goesOn() {
		faults.add("--checkpoint with --ps-lost %s: ranks that go on without each other have no step in common to save at: use --ps-lost %s", lostGoesOn, lostEnds)
	}
}

// jobStart is a job that is started, perhaps not for the first time.
type jobStart struct {
	lock *folder.Lock
	dir  string
	n    int

	from *saved.Job // nil: it begins
	step int64
	part train.ServersPart
}

// beginStart takes the folder of a job's checkpoints and, to resume, finds the last one and looks that all its parts are
// there.
func beginStart(dir string, resume bool) (s *jobStart, err error) {
	s = &jobStart{dir: dir}
	if s.lock, err = folder.Take(dir); err != nil {
		return nil, fmt.Errorf("the folder of the checkpoints, where another job may save: %w", err)
	}
	if resume {
		err = s.find()
	}
	var all []int
	if err == nil {
		all, err = train.Starts(dir)
	}
	if err != nil {
		return nil, errors.Join(err, s.lock.Release())
	}
	s.n = 1 + slices.Max(append(all, 0))
	return s, nil
}

// find finds the last checkpoint, if there is one.
func (s *jobStart) find() error {
	file, step, part, err := train.LastServers(s.dir)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("resuming: %w", err)
	}
	if s.from, err = saved.At(train.StartDir(s.dir, part.Start), uint64(step), part.Numbers); err != nil {
		return fmt.Errorf("resuming: what servers have saved for %s is not whole: %w; remove that file to go on from an earlier one", file, err)
	}
	s.step, s.part = step, part
	return nil
}

// release lets the folder go.
func (s *jobStart) release() { _ = s.lock.Release() } // the process ends

// rank is what ranks are told.
func (s *jobStart) rank() []string { return []string{"--ps-start=" + strconv.Itoa(s.n)} }

// server is what servers are told, in place of what the command line says of their folders.
func (s *jobStart) server() []string {
	out := []string{"--ps-dir=" + train.StartDir(s.dir, s.n), "--ps-job=" + train.JobName(s.n, s.step)}
	if s.from == nil {
		return out
	}
	out = append(out, "--ps-from="+s.from.Dir, fmt.Sprintf("--ps-from-step=%d", s.step))
	for _, n := range s.part.Numbers {
		out = append(out, fmt.Sprintf("--ps-from-numbers=%d", n))
	}
	return out
}

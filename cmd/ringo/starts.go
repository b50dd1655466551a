package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringo-ml/ringo/checkpoint"
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
	dir string
	n   int

	from *saved.Job // nil: it begins
	step int64
	part train.ServersPart
}

// beginStart finds, to resume, the last checkpoint of a job's folder and looks that all its parts are there, and makes
// the folder of this start's servers. Rank 0 takes the folder of the checkpoints for as long as it runs; here that is done for
// a moment, so that what is found is of no job that still saves.
func beginStart(dir string, resume bool) (s *jobStart, err error) {
	hold, _, err := checkpoint.Take(dir, !resume) // rank 0 tells what is to be told
	if err != nil {
		return nil, err
	}
	s = &jobStart{dir: dir}
	if resume {
		err = s.find()
	}
	if err == nil {
		err = s.claim()
	}
	return s, errors.Join(err, hold.Release())
}

// claim makes the folder of a start that nobody else has.
func (s *jobStart) claim() error {
	all, err := train.Starts(s.dir)
	if err != nil {
		return err
	}
	for s.n = 1 + slices.Max(append(all, 0)); ; s.n++ {
		if err := os.Mkdir(train.StartDir(s.dir, s.n), 0o777); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
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

package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/ps/offline"
	"github.com/ringo-ml/ringo/train"
)

// Attempt is one start of a job whose servers are saved together with its ranks. A launcher tells
// it to all processes.
type Attempt struct {
	// Number counts the starts of a folder of checkpoints, from 1: see train.AttemptDir.
	Number int
	// Dir is where the servers of this start save.
	Dir string
	// Name is train.JobName, by which ranks and servers of other starts refuse each other.
	Name string
	// Step is that of the checkpoint to begin with, 0 without one.
	Step int64
	// From is the folder of the servers that have saved that checkpoint; empty: there is none.
	From string
	// Parts are the numbers of the servers' parts of it, by server.
	Parts []uint64
}

// Begin finds, to resume, the last checkpoint of a job's folder and looks that all its parts are there, and makes
// the folder of this start's servers. Rank 0 takes the folder of the checkpoints for as long as it runs; here that is done for
// a moment, so that what is found is of no job that still saves.
func Begin(dir string, resume bool) (*Attempt, error) {
	hold, _, err := checkpoint.Take(dir, !resume) // rank 0 tells what is to be told
	if err != nil {
		return nil, err
	}
	s := &Attempt{}
	if resume {
		err = s.find(dir, dir)
	}
	if err == nil {
		err = s.claim(dir)
	}
	return s, errors.Join(err, hold.Release())
}

// Look finds the parts of a checkpoint, or of a folder's last one, for servers that only read them: they save nothing, and what they
// write while they run goes to scratch.
func Look(path, scratch string) (*Attempt, error) {
	file, err := checkpoint.Of(path)
	if err != nil {
		return nil, err
	}
	s := &Attempt{Dir: scratch}
	if err := s.find(file, filepath.Dir(file)); err != nil {
		return nil, err
	}
	all, err := train.Attempts(filepath.Dir(file))
	s.Number = 1 + slices.Max(append(all, 0)) // that of no other start that has been
	s.Name = train.JobName(s.Number, s.Step)
	return s, err
}

// find finds a checkpoint, or a folder's last one, if there is one; the servers' parts lie in dir.
func (s *Attempt) find(path, dir string) error {
	file, step, part, err := train.LastServerParts(path)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("resuming: %w", err)
	}
	from, err := offline.At(train.AttemptDir(dir, part.Start), uint64(step), part.Numbers)
	if err != nil {
		return fmt.Errorf("resuming: what servers have saved for %s is not whole: %w; remove that file to go on from an earlier one", file, err)
	}
	s.From, s.Step, s.Parts = from.Dir, step, part.Numbers
	return nil
}

// claim makes the folder of a start that nobody else has.
func (s *Attempt) claim(dir string) error {
	all, err := train.Attempts(dir)
	if err != nil {
		return err
	}
	for s.Number = 1 + slices.Max(append(all, 0)); ; s.Number++ {
		s.Dir, s.Name = train.AttemptDir(dir, s.Number), train.JobName(s.Number, s.Step)
		if err := os.Mkdir(s.Dir, 0o777); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

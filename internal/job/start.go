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

// Attempt is one start of a job with checkpoints of servers and ranks. A launcher sends the attempt
// to all processes.
type Attempt struct {
	// Number is the attempt's number in a checkpoint folder, from 1: see train.AttemptDir.
	Number int `json:"number"`
	// Dir is the folder in which the servers of this attempt save.
	Dir string `json:"dir"`
	// Name is train.JobName. Ranks and servers reject processes of other attempts by name.
	Name string `json:"name"`
	// Step is the step of the initial checkpoint, or 0.
	Step int64 `json:"step"`
	// From is the folder of the servers' parts of that checkpoint, or empty.
	From string `json:"from"`
	// Parts are the numbers of the servers' parts, by server.
	Parts []uint64 `json:"parts"`
}

// Begin creates the folder of a new attempt's servers. If resume is set, Begin first finds the last
// checkpoint of dir and checks that all parts exist. Begin holds the lock of the checkpoint folder
// until it returns, so that no other running job saves there; later rank 0 holds the lock.
func Begin(dir string, resume bool) (*Attempt, error) {
	hold, _, err := checkpoint.Take(dir, !resume) // rank 0 prints the messages
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

// Look finds the parts of a checkpoint, or of a folder's last checkpoint, for servers that only
// read. Such servers save no checkpoint, and write their temporary files to scratch.
func Look(path, scratch string) (*Attempt, error) {
	file, err := checkpoint.Locate(path)
	if err != nil {
		return nil, err
	}
	s := &Attempt{Dir: scratch}
	if err := s.find(file, filepath.Dir(file)); err != nil {
		return nil, err
	}
	all, err := train.Attempts(filepath.Dir(file))
	s.Number = 1 + slices.Max(append(all, 0)) // a new number
	s.Name = train.JobName(s.Number, s.Step)
	return s, err
}

// find fills s from a checkpoint, or from a folder's last checkpoint if one exists. dir has the
// servers' parts.
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
		return fmt.Errorf("resuming: the servers' checkpoints for %s are incomplete: %w; remove %s to continue from an earlier checkpoint", file, err, file)
	}
	s.From, s.Step, s.Parts = from.Dir, step, part.Numbers
	return nil
}

// claim creates the folder of a new attempt, with a number that no other process has.
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

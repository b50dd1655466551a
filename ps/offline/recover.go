package offline

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/tiers"
)

// Recovery configures Recover.
type Recovery struct {
	// MemoryBytes limits the rows in memory, for one server at a time; DiskBytes limits all other
	// rows, which are in files in the server's folder. 0: no limit.
	MemoryBytes, DiskBytes int64
	// Report receives a line for each server. It may be nil.
	Report func(line string)
}

// Recover writes checkpoints of a job's servers, which have ended or were killed, from their logs,
// and reports where and why each log ends. If a log has changes after the newest checkpoint,
// Recover opens the server's tables as a restart does, and saves them. Running servers are an error
// (dirlock.ErrHeld). In bsp, steps that a trainer has not clocked are not applied.
func Recover(ctx context.Context, dir string, r Recovery) error {
	if r.Report == nil {
		r.Report = func(string) {}
	}
	j, err := Open(dir)
	if err != nil {
		return err
	}
	if err := j.reportEnds(r.Report); err != nil {
		return err
	}
	for _, s := range j.Servers {
		name := s.name()
		if s.UncheckpointedRecords == 0 {
			if s.hasLog() {
				r.Report(fmt.Sprintf("%s: its checkpoint %d has all", name, s.newest().Number))
			}
			continue
		}
		done, err := s.recover(ctx, r)
		if err != nil {
			return err
		}
		r.Report(fmt.Sprintf("%s: checkpoint %d has %d records of the log more", name, done.Number, s.UncheckpointedRecords))
	}
	return nil
}

// reportEnds reports where every log ends. Its error lists all changes that are lost.
func (j *Job) reportEnds(report func(line string)) error {
	var errs []error
	for _, s := range j.Servers {
		switch {
		case s.Lost != nil:
			errs = append(errs, fmt.Errorf("%s: %w", s.name(), s.Lost))
		case !s.hasLog():
			report(fmt.Sprintf("%s: it has no log any more: whether anything came after its checkpoint %d cannot be known", s.name(), s.newest().Number))
		case s.Log.Path != "":
			report(fmt.Sprintf("%s: its log %s", s.name(), s.Log))
		}
	}
	return errors.Join(errs...)
}

// hasLog reports whether the log exists, or the server never had a log.
func (s *Server) hasLog() bool { return s.About.Record == 0 || s.Log.Path != "" }

func (s *Server) name() string { return fmt.Sprintf("server %d of %d", s.About.Index, s.About.Servers) }

func (s *Server) recover(ctx context.Context, r Recovery) (done engine.Saved, err error) {
	below := tiers.Config{Deltas: true} // saves usage, as servers do
	if r.MemoryBytes > 0 {
		below.Dir, below.MemoryBytes, below.DiskBytes = Below(s.Dir), r.MemoryBytes, r.DiskBytes
	}
	if below.TableAdmission, err = s.admissions(); err != nil {
		return done, err
	}
	t, err := tiers.Open(below, s.About.Layout)
	if err != nil {
		return done, err
	}
	id := s.About.Identity
	e, err := engine.Open(engine.Config{
		Job: id.Job, Index: id.Index, Servers: id.Servers, Trainers: id.Trainers, Sessions: id.Sessions, Mode: id.Mode, Durability: id.Durability,
		Dir: s.Dir, Make: t.Make,
	}, s.About.Layout)
	if err != nil {
		return done, errors.Join(err, t.Close())
	}
	done, err = e.Save(ctx, false)
	return done, errors.Join(err, e.Close(), t.Close())
}

func (s *Server) admissions() (map[string]shard.Admission, error) {
	out := map[string]shard.Admission{}
	for i, t := range s.About.Layout.Sparse {
		dir, of, err := engine.TableDir(s.newest(), i)
		if err != nil {
			return nil, err
		}
		about, err := shard.Describe(dir, of)
		if err != nil {
			return nil, err
		}
		out[t.Name] = about.Admission
	}
	return out, nil
}

// Below returns the folder for rows that are not in memory, in a server's folder.
func Below(serverDir string) string { return filepath.Join(serverDir, "below") }

// Package offline reads the checkpoints of a job's servers without a server: to inspect
// checkpoints, to export embeddings for serving, and to start another job. Servers of package
// internal/server, with tables of internal/server/tiers, have a folder each in a common directory.
package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/shard"
	"github.com/ringo-ml/ringo/internal/server/snapshot"
	"github.com/ringo-ml/ringo/internal/server/wal"
)

const prefix = "server-"

// ServerDir returns the folder of a server in a job's directory.
func ServerDir(dir string, index int) string {
	return filepath.Join(dir, prefix+strconv.Itoa(index))
}

// Job has the checkpoints of all servers of a job.
type Job struct {
	Dir     string
	Servers []Server // servers by index
}

// Server has the checkpoint of a server.
type Server struct {
	Dir   string
	About engine.About
	// Chain is the requested checkpoint, or the newest: a full checkpoint, and the later
	// checkpoints with changes only (deltas).
	Chain []*snapshot.Snapshot
	// UncheckpointedRecords is the number of log records after the checkpoint, for a running or
	// killed server; 0 after a normal end.
	UncheckpointedRecords uint64
	// Log describes the end of the log, and Lost is an error if acknowledged changes are missing.
	Log  wal.End
	Lost error
}

// Open finds the newest checkpoints of all servers of a job in its directory, and checks that the
// set is complete and consistent; contents are checked when read. Open returns all errors together.
func Open(dir string) (*Job, error) {
	j := &Job{Dir: dir}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: want the folder of a job's servers, which is start-1 and so on in its folder of checkpoints where it has one", err)
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		digits, is := strings.CutPrefix(e.Name(), prefix)
		index, err := strconv.Atoi(digits)
		if !is || err != nil || !e.IsDir() || e.Name() != prefix+strconv.Itoa(index) {
			continue
		}
		s, err := openServer(ServerDir(dir, index), index, 0)
		if err != nil {
			errs = append(errs, err)
		}
		j.Servers = append(j.Servers, s)
	}
	if len(j.Servers) == 0 {
		return nil, fmt.Errorf("%s has no folder server-0: want the folder of a job's servers, not that of one of them: it is start-1 and so on in the job's folder of checkpoints where it has one", dir)
	}
	return j.whole(errs)
}

// At is Open for the checkpoint of the whole job that was saved after a step; numbers has the
// number of each server's part. Newer changes, also in logs, are ignored.
func At(dir string, step uint64, numbers []uint64) (*Job, error) {
	j := &Job{Dir: dir}
	var errs []error
	for i, n := range numbers {
		s, err := openServer(ServerDir(dir, i), i, n)
		if err == nil && s.About.Step != step {
			err = fmt.Errorf("%s is of step %d of its run, not of step %d", s.newest().Dir, s.About.Step, step)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("server %d of %d: %w", i, len(numbers), err))
		}
		j.Servers = append(j.Servers, s)
	}
	if len(numbers) == 0 {
		errs = append(errs, fmt.Errorf("%s: checkpoints of no servers", dir))
	}
	return j.whole(errs)
}

// whole checks that all servers were opened.
func (j *Job) whole(errs []error) (*Job, error) {
	if len(errs) == 0 {
		slices.SortFunc(j.Servers, func(a, b Server) int { return cmp.Compare(a.About.Index, b.About.Index) })
		errs = j.complete()
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return j, nil
}

// openServer opens a server's checkpoint by number, or the newest for 0.
func openServer(dir string, index int, number uint64) (s Server, err error) {
	s.Dir = dir
	id, err := engine.IdentityOf(dir)
	if err != nil {
		return s, fmt.Errorf("%s is no server's folder: %w", dir, err)
	}
	if id.Index != index {
		return s, fmt.Errorf("%s is the folder of server %d: it was renamed", dir, id.Index)
	}
	if s.Chain, err = snapshot.Chain(engine.CheckpointDir(dir), id.Owner(), number); err != nil {
		return s, err
	}
	if s.About, err = engine.AboutOf(s.newest()); err != nil {
		return s, err
	}
	for _, c := range s.Chain {
		a, err := engine.AboutOf(c)
		if err != nil {
			return s, err
		}
		if a.Identity != id {
			return s, fmt.Errorf("%s and %s are of different servers, or one of them is damaged: %+v and %+v", c.Dir, engine.IdentityPath(dir), a.Identity, id)
		}
	}
	if number != 0 {
		return s, nil
	}
	s.Log, err = engine.LogEnd(dir, id)
	if lost := (*wal.LostError)(nil); errors.As(err, &lost) {
		s.Lost, err = lost, nil
	}
	has := s.About.Last + 1 // a checkpoint adds a record
	switch {
	case err != nil || s.About.Record == 0 || s.Log.Path == "" || s.Lost != nil:
	case s.Log.Last < has:
		s.Lost = fmt.Errorf("%s: the log ends with record %d, but had %d when checkpoint %d was written: it has lost its end; bring it back from a copy, or move it away to go on with the checkpoint alone",
			engine.LogDir(dir), s.Log.Last, has, s.newest().Number)
	default:
		s.UncheckpointedRecords = s.Log.Last - has
	}
	return s, err
}

func (s *Server) newest() *snapshot.Snapshot { return s.Chain[len(s.Chain)-1] }

// complete returns errors for servers that are missing, or of another job.
func (j *Job) complete() (errs []error) {
	first := j.Servers[0].About.Identity
	there := map[int]bool{}
	for _, s := range j.Servers {
		there[s.About.Index] = true
		same := first
		if same.Index, same.Folder = s.About.Index, s.About.Folder; s.About.Identity != same || s.About.Index >= first.Servers {
			errs = append(errs, fmt.Errorf("%s is of server %d of %d of job %s, %s of server %d of %d of job %s: want one job's", j.Servers[0].Dir, first.Index, first.Servers, first.Job, s.Dir, s.About.Index, s.About.Servers, s.About.Job))
		}
	}
	for i := range first.Servers {
		if !there[i] && len(errs) == 0 {
			errs = append(errs, fmt.Errorf("%s is missing: the job had %d servers, and each has a part of all tables", ServerDir(j.Dir, i), first.Servers))
		}
	}
	return errs
}

// Dirs returns the servers' folders, for engine.Config.From.
func (j *Job) Dirs() (out []string) {
	for _, s := range j.Servers {
		out = append(out, s.Dir)
	}
	return out
}

// Begin is Open for a job that starts from the checkpoints. If a log has changes after its
// checkpoint, it returns an error, because these changes would be lost.
func Begin(dir string) (*Job, error) {
	j, err := Open(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range j.Servers {
		if s.Lost != nil {
			errs = append(errs, s.Lost)
		} else if s.UncheckpointedRecords > 0 {
			errs = append(errs, fmt.Errorf("the log in %s is %d records ahead of its newest checkpoint: `ringo ps recover %s` writes a checkpoint with them, once the job's servers have ended", s.Dir, s.UncheckpointedRecords, dir))
		}
	}
	return j, errors.Join(errs...)
}

// Steps returns the lowest and the highest step of the servers, which differ after a kill. A
// server's step is that of a job checkpoint, or else the last step applied in bsp, or else the last
// step that any trainer has ended.
func (j *Job) Steps() (least, most uint64) {
	for i, s := range j.Servers {
		step := s.About.Highest
		if s.About.Mode == engine.BSP {
			step = s.About.Applied
		}
		if s.About.Step > 0 {
			step = s.About.Step
		}
		if i == 0 {
			least = step
		}
		least, most = min(least, step), max(most, step)
	}
	return least, most
}

// Table finds a table by name; "" means the only table.
func (j *Job) Table(name string) (int, error) {
	var names []string
	for i, t := range j.Servers[0].About.Layout.Sparse {
		if t.Name == name {
			return i, nil
		}
		names = append(names, strconv.Quote(t.Name))
	}
	switch {
	case len(names) == 0:
		return 0, fmt.Errorf("%s has no tables, arrays only", j.Dir)
	case name != "":
		return 0, fmt.Errorf("%s has no table %q: it has %s", j.Dir, name, strings.Join(names, ", "))
	case len(names) > 1:
		return 0, fmt.Errorf("%s has the tables %s: name one (--table)", j.Dir, strings.Join(names, ", "))
	}
	return 0, nil
}

// Rows returns the approximate number of rows of a table on all servers when they were saved.
func (j *Job) Rows(table int) (n int64) {
	for _, s := range j.Servers {
		n += s.About.Rows[table]
	}
	return n
}

// Each passes the keys and weights of a table's rows to do, in batches, in no order; see
// shard.Scan.
func (j *Job) Each(ctx context.Context, table int, do func(keys []uint64, weights []float32) error) error {
	for _, s := range j.Servers {
		dirs, of, err := s.folders(table)
		if err == nil {
			err = shard.Scan(ctx, dirs, of, do)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Array reads a whole array into values, of the array's length.
func (j *Job) Array(ctx context.Context, array int, values []float32) error {
	have := 0
	for _, s := range j.Servers {
		if n := len(s.About.Layout.Dense); array >= n {
			return fmt.Errorf("%s has %d arrays, not number %d", s.Dir, n, array)
		}
		n, err := engine.ReadArray(ctx, s.newest(), array, values)
		if err != nil {
			return fmt.Errorf("%s: %w", s.newest().Dir, err)
		}
		have += n
	}
	if have != len(values) {
		return fmt.Errorf("%s has %d values of an array of %d", j.Dir, have, len(values))
	}
	return nil
}

// folders returns a table's folders (full checkpoint, deltas) and their files' owner strings.
func (s *Server) folders(table int) (dirs, of []string, err error) {
	for _, c := range slices.Backward(s.Chain) {
		dir, owner, err := engine.TableDir(c, table)
		if err != nil {
			return nil, nil, err
		}
		about, err := shard.Describe(dir, owner)
		if err != nil {
			return nil, nil, err
		}
		if dirs, of = append(dirs, dir), append(of, owner); !about.Delta {
			break
		}
	}
	slices.Reverse(dirs)
	slices.Reverse(of)
	return dirs, of, nil
}

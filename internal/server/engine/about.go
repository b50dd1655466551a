package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/server/snapshot"
	"github.com/ringo-ml/ringo/internal/server/wal"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Identity identifies the server to which a directory belongs.
type Identity struct {
	Job        string     `json:"job"`
	Schema     string     `json:"schema"` // hash
	Index      int        `json:"index"`
	Servers    int        `json:"servers"`
	Trainers   int        `json:"trainers"`
	Sessions   int        `json:"sessions"`
	Mode       Mode       `json:"mode"`
	Durability Durability `json:"durability"`
	// Folder is a random name, drawn when the directory is created, unique across all jobs.
	Folder string `json:"folder"`
}

func (id Identity) logOwner() string {
	job := id.Job
	if len(job) > 40 {
		job = job[:37] + "..."
	}
	return fmt.Sprintf("server %d of %d, job %s, folder %s", id.Index, id.Servers, job, id.Folder)
}

// LogEnd finds the end of the log in a server's directory; see wal.Ends.
func LogEnd(dir string, id Identity) (wal.End, error) { return wal.Ends(LogDir(dir), id.logOwner()) }

// of returns a text that names a checkpoint's file and its owner; the file contains it.
func (id Identity) of(what string, number uint64) string {
	return fmt.Sprintf("%s, checkpoint %d, %s", id.Owner(), number, what)
}

// Owner returns the owner string of the server's checkpoints: see snapshot.Chain.
func (id Identity) Owner() string {
	return fmt.Sprintf("job %s (folder %s), server %d of %d", id.Job, id.Folder, id.Index, id.Servers)
}

// IdentityPath returns the path of the Identity in a server's directory.
func IdentityPath(dir string) string { return filepath.Join(dir, jobFile) }

const maxIdentity = 1 << 20

// IdentityOf reads the Identity of a server's directory. The error is fs.ErrNotExist if the
// directory belongs to no server.
func IdentityOf(dir string) (id Identity, err error) {
	path := IdentityPath(dir)
	b, err := pathname.Read(path, maxIdentity)
	if err != nil {
		return id, err
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return id, fmt.Errorf("%s: %w", path, err)
	}
	if id.Folder == "" {
		return id, fmt.Errorf("%s: an earlier version of ringo began this folder, whose files do not state what they belong to: go on with the program that wrote it", path)
	}
	return id, nil
}

// About describes a checkpoint without its files.
type About struct {
	Identity
	// Layout has the tables and arrays with their rules.
	Layout schema.Schema `json:"layout"`
	// Rows is the approximate number of the server's rows by table.
	Rows []int64 `json:"rows"`
	// Record is the first log record to replay, Last the last record at the checkpoint; 0: no log.
	Record uint64 `json:"record"`
	Last   uint64 `json:"last"`
	// Highest is the last step that any trainer had clocked, Applied the last step with all pushes
	// applied (bsp).
	Highest uint64 `json:"highest"`
	Applied uint64 `json:"applied"`
	// Step is the step of the run for a checkpoint of the whole job (Engine.SaveStep), counted
	// across jobs of the run; 0: a checkpoint of this server alone.
	Step uint64 `json:"step,omitempty"`
}

// AboutOf decodes a checkpoint's manifest.
func AboutOf(s *snapshot.Snapshot) (a About, err error) {
	if err = json.Unmarshal(s.Meta, &a); err == nil {
		if err = a.Layout.Validate(); err == nil && len(a.Rows) != len(a.Layout.Sparse) {
			err = fmt.Errorf("rows of %d tables of %d", len(a.Rows), len(a.Layout.Sparse))
		}
	}
	if err != nil {
		return a, fmt.Errorf("%s: its manifest: %w", s.Dir, err)
	}
	return a, nil
}

// TableDir returns the folder of a table in a checkpoint, and the owner string of its files.
func TableDir(s *snapshot.Snapshot, table int) (dir, of string, err error) {
	a, err := AboutOf(s)
	if err == nil {
		dir, err = s.Folder(tableFolder(table))
	}
	return dir, a.of(tableFolder(table), s.Number), err
}

// CheckpointDir returns the checkpoint folder of a server's directory.
func CheckpointDir(dir string) string { return filepath.Join(dir, "checkpoints") }

// LogDir returns the log folder of a server's directory.
func LogDir(dir string) string { return filepath.Join(dir, "log") }

// fitting returns an error if the tables of another job cannot be the initial tables of this job.
// Settings of update rules may differ.
func fitting(has, want schema.Schema) error {
	if len(has.Sparse) != len(want.Sparse) || len(has.Dense) != len(want.Dense) {
		return fmt.Errorf("it has %d tables and %d arrays, this job %d and %d", len(has.Sparse), len(has.Dense), len(want.Sparse), len(want.Dense))
	}
	var errs []error
	for i, w := range want.Sparse {
		if h := has.Sparse[i]; h.Name != w.Name || h.Dim != w.Dim || h.Rule.Name != w.Rule.Name || h.Seed != w.Seed || h.Init != w.Init {
			errs = append(errs, fmt.Errorf("it has table %q with rows of %d, rule %s, seed %d, first values %v; this job %q, %d, %s, %d, %v",
				h.Name, h.Dim, h.Rule.Name, h.Seed, h.Init, w.Name, w.Dim, w.Rule.Name, w.Seed, w.Init))
		}
	}
	for i, w := range want.Dense {
		if h := has.Dense[i]; h.Name != w.Name || h.Len != w.Len || h.Rule.Name != w.Rule.Name {
			errs = append(errs, fmt.Errorf("it has array %q of %d values, rule %s; this job %q, %d, %s", h.Name, h.Len, h.Rule.Name, w.Name, w.Len, w.Rule.Name))
		}
	}
	return errors.Join(append(errs, sameInputs(has.Inputs, want.Inputs))...)
}

// sameInputs returns an error if the order of the inputs differs. Unnamed inputs match by position.
func sameInputs(has, want []string) error {
	if len(has) == 0 || len(want) == 0 || slices.Equal(has, want) {
		return nil
	}
	i := 0
	for i < min(len(has), len(want)) && has[i] == want[i] {
		i++
	}
	at := func(all []string) string {
		if i < len(all) {
			return fmt.Sprintf("%q", all[i])
		}
		return "none"
	}
	return fmt.Errorf("its inputs are others: number %d of %d is %s, this job's of %d %s: give the data the same columns in the same order, or begin with a checkpoint of the ranks (training.init-from), which goes by names",
		i+1, len(has), at(has), len(want), at(want))
}

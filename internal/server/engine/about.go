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

// Identity is what a server's directory belongs to.
type Identity struct {
	Job        string     `json:"job"`
	Schema     string     `json:"schema"` // hash
	Index      int        `json:"index"`
	Servers    int        `json:"servers"`
	Trainers   int        `json:"trainers"`
	Sessions   int        `json:"sessions"`
	Mode       Mode       `json:"mode"`
	Durability Durability `json:"durability"`
	// Folder is drawn when the directory is made: no other one has it, of whichever job.
	Folder string `json:"folder"`
}

// logOwner is the owner of the server's log.
func (id Identity) logOwner() string {
	job := id.Job
	if len(job) > 40 {
		job = job[:37] + "..."
	}
	return fmt.Sprintf("server %d of %d, job %s, folder %s", id.Index, id.Servers, job, id.Folder)
}

// LogEnd finds where the log of a server's directory ends; see wal.Ends.
func LogEnd(dir string, id Identity) (wal.End, error) { return wal.Ends(LogDir(dir), id.logOwner()) }

// of names what a file of a checkpoint belongs to.
func (id Identity) of(what string, number uint64) string {
	return fmt.Sprintf("%s, checkpoint %d, %s", id.Owner(), number, what)
}

// Owner is the owner of the server's checkpoints: see snapshot.Chain.
func (id Identity) Owner() string {
	return fmt.Sprintf("job %s (folder %s), server %d of %d", id.Job, id.Folder, id.Index, id.Servers)
}

// IdentityPath is the file in which a server's directory says what it belongs to.
func IdentityPath(dir string) string { return filepath.Join(dir, jobFile) }

// maxIdentity is how many bytes an Identity may have as text, names included.
const maxIdentity = 1 << 20

// IdentityOf reads what a server's directory belongs to. An error of a directory that
// is no server's is fs.ErrNotExist.
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

// About is what a checkpoint says of itself, besides its files.
type About struct {
	Identity
	// Layout are the tables and arrays with their rules.
	Layout schema.Schema `json:"layout"`
	// Rows are those of each table of the server, about when it was written.
	Rows []int64 `json:"rows"`
	// Record is where in the log the replay begins, Last the last record when it was written; 0: there is
	// no log.
	Record uint64 `json:"record"`
	Last   uint64 `json:"last"`
	// Highest is the last step that any trainer had ended, Applied that up to which bsp had applied
	// all pushes.
	Highest uint64 `json:"highest"`
	Applied uint64 `json:"applied"`
	// Step is after which step of its run, of which there may have been others before this job, a checkpoint of
	// the whole job was made (Engine.SaveStep); 0: it is of this server alone.
	Step uint64 `json:"step,omitempty"`
}

// AboutOf reads what a checkpoint says of itself.
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

// TableDir is the folder of a table in a checkpoint, and what its files say that they belong to.
func TableDir(s *snapshot.Snapshot, table int) (dir, of string, err error) {
	a, err := AboutOf(s)
	if err == nil {
		dir, err = s.Folder(tableFolder(table))
	}
	return dir, a.of(tableFolder(table), s.Number), err
}

// CheckpointDir is where a server's directory has its checkpoints.
func CheckpointDir(dir string) string { return filepath.Join(dir, "checkpoints") }

// LogDir is where a server's directory has its log.
func LogDir(dir string) string { return filepath.Join(dir, "log") }

// fitting reports what keeps the tables of another job from being the beginning of this one's. Rates and
// settings of rules may differ.
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

// sameInputs reports inputs whose places in the tables differ. A job whose inputs have no names
// takes them by place.
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

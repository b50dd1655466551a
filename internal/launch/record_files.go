package launch

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/watch/blackbox"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// RecordFiles is where the processes of a job leave what they record which no launcher has started,
// so that nobody holds their memory: each a file in a folder of its host, which is there as long as
// the process works, and afterwards if its job has failed. The next job with the same ticket takes
// their places.
type RecordFiles struct {
	folder, job string
}

// keptJobs is the number of jobs whose files a folder keeps, and freshLeft the age below which a
// file is kept in any case: its process may not hold it yet.
const (
	keptJobs  = 20
	freshLeft = time.Minute
)

// leftName matches the name of a file that a process has left, with the job in parentheses.
var leftName = regexp.MustCompile(`^ringo-record-([0-9a-f]{12})-(?:rank|server|ps)-[0-9]+$`)

// NewRecordFiles makes one; an empty folder: nothing is left. All processes of a job have its
// ticket; nil: of a job of one process.
func NewRecordFiles(folder string, ticket transport.Ticket) RecordFiles {
	if len(ticket) == 0 {
		ticket = make(transport.Ticket, 16)
		_, _ = rand.Read(ticket) // never fails
	}
	sum := sha256.Sum256(append([]byte("ringo black box"), ticket...)) // which tells nothing of the ticket
	return RecordFiles{folder, hex.EncodeToString(sum[:6])}
}

// pattern matches the files of the job on this host.
func (l RecordFiles) pattern() string { return filepath.Join(l.folder, "ringo-record-"+l.job+"-*") }

// Recorder is that of a process, in memory of its own where no file can be made.
func (l RecordFiles) Recorder(who record.Identity) *record.Recorder {
	var r *record.Recorder
	if l.folder != "" {
		role := map[record.Role]string{record.Rank: "rank", record.AggregationServer: "server", record.ParameterServer: "ps"}[who.Role]
		l.prune()
		r, _ = record.InFile(filepath.Join(l.folder, fmt.Sprintf("ringo-record-%s-%s-%d", l.job, role, who.Number)), record.Config{})
	}
	if r == nil {
		r = record.New(record.Config{})
	}
	r.SetProcess(who)
	return r
}

// prune removes the files of all jobs but this one and the keptJobs newest. A job of which one
// process works on this host keeps all of its files.
func (l RecordFiles) prune() {
	entries, err := os.ReadDir(l.folder)
	if err != nil {
		return
	}
	files, newest := map[string][]string{}, map[string]time.Time{}
	for _, e := range entries {
		name := leftName.FindStringSubmatch(e.Name())
		info, err := e.Info()
		if name == nil || err != nil || name[1] == l.job {
			continue
		}
		files[name[1]] = append(files[name[1]], filepath.Join(l.folder, e.Name()))
		if at := info.ModTime(); at.After(newest[name[1]]) {
			newest[name[1]] = at
		}
	}
	jobs := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(newest[b].Compare(newest[a]), cmp.Compare(a, b))
	})
	for _, job := range jobs[min(len(jobs), keptJobs):] {
		if time.Since(newest[job]) > freshLeft {
			dirlock.RemoveUnheld(files[job])
		}
	}
}

// Remove removes the file of a process whose job has ended well.
func (l RecordFiles) Remove(r *record.Recorder) {
	if r.File() != "" {
		_ = os.Remove(r.File()) // it tells of nothing
	}
}

// Files are those of the job on this host.
func (l RecordFiles) Files() []string {
	if l.folder == "" {
		return nil
	}
	paths, _ := filepath.Glob(l.pattern()) // a folder with an asterisk in its name has none
	return paths
}

// WithRecords adds to why a job has failed what its processes on this host have recorded, and where
// that is. Where it shows nothing the files that are the caller's own go.
func (l RecordFiles) WithRecords(err error, own ...string) error {
	paths := l.Files()
	if len(paths) == 0 {
		return err
	}
	box, fault := blackbox.Gather(paths)
	if fault != nil { // another process is removing its own, or beginning
		return &RecordedError{Err: err, File: l.pattern()}
	}
	if finding := box.Find(); finding != nil {
		return &RecordedError{Err: err, Finding: finding, File: l.pattern()}
	}
	for _, path := range own {
		_ = os.Remove(path) // it tells of nothing
	}
	return err
}

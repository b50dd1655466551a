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

// RecordFiles stores the records of processes without a launcher that holds their memory: a file
// per process in a folder of its host. The file exists while the process works, and remains if the
// job fails. The next job with the same ticket overwrites the files.
type RecordFiles struct {
	folder, job string
}

// keptJobs is the maximum number of jobs with files in a folder. Files younger than freshLeft are
// always kept: their process may not hold them open yet.
const (
	keptJobs  = 20
	freshLeft = time.Minute
)

// leftName matches the name of a record file, with the job in parentheses.
var leftName = regexp.MustCompile(`^ringo-record-([0-9a-f]{12})-(?:rank|server|ps)-[0-9]+$`)

// NewRecordFiles returns the RecordFiles of a job; an empty folder stores none. All processes of a
// job share its ticket; nil means a job of one process.
func NewRecordFiles(folder string, ticket transport.Ticket) RecordFiles {
	if len(ticket) == 0 {
		ticket = make(transport.Ticket, 16)
		_, _ = rand.Read(ticket) // never fails
	}
	sum := sha256.Sum256(append([]byte("ringo black box"), ticket...)) // does not reveal the ticket
	return RecordFiles{folder, hex.EncodeToString(sum[:6])}
}

func (l RecordFiles) pattern() string { return filepath.Join(l.folder, "ringo-record-"+l.job+"-*") }

// Recorder returns the recorder of a process, with private memory if no file can be created.
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

// prune removes files of all jobs but this one, the keptJobs newest and those with a local process.
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

// Remove removes the file of a process of a successful job.
func (l RecordFiles) Remove(r *record.Recorder) {
	if r.File() != "" {
		_ = os.Remove(r.File()) // a remaining file is harmless
	}
}

// Files returns the paths of the job's files on this host.
func (l RecordFiles) Files() []string {
	if l.folder == "" {
		return nil
	}
	paths, _ := filepath.Glob(l.pattern()) // a folder name with an asterisk matches no files
	return paths
}

// WithRecords adds to a job's error the finding from the records of its processes on this host, and
// the records' paths. Without a finding WithRecords removes the caller's own files.
func (l RecordFiles) WithRecords(err error, own ...string) error {
	paths := l.Files()
	if len(paths) == 0 {
		return err
	}
	box, fault := blackbox.Gather(paths)
	if fault != nil { // another process is creating or removing its file
		return &RecordedError{Err: err, File: l.pattern()}
	}
	if finding := box.Find(); finding != nil {
		return &RecordedError{Err: err, Finding: finding, File: l.pattern()}
	}
	for _, path := range own {
		_ = os.Remove(path) // uninformative
	}
	return err
}

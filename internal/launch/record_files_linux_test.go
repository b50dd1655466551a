package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Processes of one ticket find what the others have left, and those of another do not; the error says what that shows.
func TestLeft(t *testing.T) {
	folder, ticket := t.TempDir(), transport.NewTicket()
	var recs [2]*record.Recorder
	for rank := range recs {
		l := NewRecordFiles(folder, ticket) // each process makes its own
		recs[rank] = l.Recorder(record.Identity{Role: record.Rank, Number: rank})
		defer recs[rank].Close()
	}
	l, fault := NewRecordFiles(folder, ticket), errors.New("it failed")
	if other := NewRecordFiles(folder, transport.NewTicket()).Files(); len(l.Files()) != 2 || len(other) > 0 || strings.Contains(l.pattern(), ticket.String()[:12]) {
		t.Errorf("files %v, of another ticket %v", l.Files(), other)
	}
	recs[0].Begin(&record.Event{Kind: record.Operation, Name: recs[0].Name("allreduce"), Seq: 0, Bucket: -1, Other: -1, Peer: -1, Begun: 1}).Wait().For(1, 2)
	var told *RecordedError
	if err := l.WithRecords(fault, recs[0].File()); !errors.As(err, &told) || !errors.Is(err, fault) || told.Finding == nil || told.Finding.Missing[0].Rank != "rank 1" ||
		!strings.HasSuffix(err.Error(), "ringo blackbox "+l.pattern()) {
		t.Errorf("%v", err)
	}
	l.Remove(recs[0])
	if err := l.WithRecords(fault, recs[1].File()); err != fault || len(l.Files()) > 0 { // nothing is under way any more
		t.Errorf("%v, left: %v", err, l.Files())
	}
	if none := NewRecordFiles("", ticket); none.Recorder(record.Identity{}).File() != "" || none.WithRecords(fault) != fault {
		t.Error("without a folder something is left")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v: %v", err, left)
	}
}

// TestLeftFilesOfDeadJobsArePruned removes the files of the oldest jobs, and none of a job that works or that has just begun.
func TestLeftFilesOfDeadJobsArePruned(t *testing.T) {
	folder := t.TempDir()
	old := time.Now().Add(-time.Hour)
	working := NewRecordFiles(folder, transport.NewTicket())
	r := working.Recorder(record.Identity{Role: record.Rank})
	defer r.Close()
	dead := filepath.Join(folder, "ringo-record-"+working.job+"-rank-1") // of the job that works
	paths := []string{r.File(), dead, filepath.Join(folder, "ringo-record-mine"), filepath.Join(folder, "ringo-blackbox-1.json")}
	for i := range keptJobs + 3 {
		paths = append(paths, filepath.Join(folder, fmt.Sprintf("ringo-record-%012x-rank-0", i)), filepath.Join(folder, fmt.Sprintf("ringo-record-%012x-ps-1", i)))
	}
	for i, path := range paths {
		if i > 0 {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, time.Time{}, old.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	begun := filepath.Join(folder, "ringo-record-ffffffffffff-rank-0") // whose process holds it in a moment
	if err := os.WriteFile(begun, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next := NewRecordFiles(folder, transport.NewTicket())
	n := next.Recorder(record.Identity{Role: record.Rank})
	defer n.Close()
	removed := 0
	for i, path := range append(paths, begun, n.File()) {
		_, err := os.Stat(path)
		if oldest := i >= 4 && i < 4+2*4; (err != nil) != oldest {
			t.Errorf("file %d, %s: %v", i, filepath.Base(path), err)
		}
		if err != nil {
			removed++
		}
	}
	if removed != 8 {
		t.Errorf("%d files are removed, want those of 4 jobs", removed)
	}
}

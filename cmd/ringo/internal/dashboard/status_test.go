package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"net"
	"net/http"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// What ranks tell over the job's socket, and what their recorders hold, is one status, and the page answers the same.
func TestStatus(t *testing.T) {
	leakcheck.Check(t)
	h := NewHub()
	serve(t, h)
	path := filepath.Join(t.TempDir(), "answers")
	l, err := net.Listen("unix", path)
	must(t, err)
	h.Answer(l)
	rec := record.New(record.Config{})
	rec.BeginStep(41)
	waits := rec.Begin(&record.Event{Kind: record.Operation, Name: rec.Name("allreduce"), Label: rec.Name("bucket 3"), Bucket: 3, Peer: -1, Other: -1, Begun: rec.Now()})
	waits.Wait().For(1, rec.Now())
	looks := 0
	h.Identify("4711-abcd", "ringo train", func() []launch.ProcessInfo {
		looks++
		return []launch.ProcessInfo{{Name: "rank 0", Role: "rank", PID: 5, Glance: glanceAt(rec)}, {Name: "rank 1", Role: "rank", Index: 1, Ended: true, ExitStatus: "exit status 3"},
			{Name: "parameter server 0", Role: "server", Serves: true, Restarts: 2}}
	})
	f := Dial(h.Address())
	for _, line := range told(t, 1) {
		f.Record(json.RawMessage(line))
	}
	f.Close()
	s := h.Status()
	if s.Job != "4711-abcd" || s.Ranks < 2 || s.Servers != 1 || len(s.Figures) == 0 || s.State != "training" || !(s.Step.StepMS > 0) {
		t.Errorf("status: %+v", s)
	}
	by := map[string]ProcessStatus{}
	for _, p := range s.Processes {
		by[p.Name] = p
	}
	if p := by["rank 0"]; p.Doing != "allreduce of bucket 3" || p.WaitsFor != "rank 1" || p.Steps != 41 || p.PID != 5 || !(p.WaitsS >= 0) || !(p.StepMS > 0) {
		t.Errorf("rank 0: %+v", p)
	}
	if p := by["rank 1"]; p.Ended != "exit status 3" || p.Doing != "" {
		t.Errorf("rank 1: %+v", p)
	}
	if p := by["parameter server 0"]; p.Rank != -1 || p.Restarts != 2 || p.Steps != -1 {
		t.Errorf("server: %+v", p)
	}
	client := &http.Client{Transport: hubAt(path)}
	defer client.CloseIdleConnections()
	answered := func(url string) (got Status) {
		res, err := client.Get(url)
		must(t, err)
		defer res.Body.Close()
		must(t, json.NewDecoder(res.Body).Decode(&got))
		return got
	}
	_, body, _ := get(t, h.url()+"status", nil)
	var page Status
	must(t, json.Unmarshal([]byte(body), &page))
	over := answered("http://job/status")
	if fmt.Sprint(page.Figures, page.Step) != fmt.Sprint(over.Figures, over.Step) || over.Job != s.Job || len(page.Processes) != len(over.Processes) {
		t.Errorf("the page answers %s, the socket %+v", body, over)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { h.Status() })
	}
	all.Wait()
	if looks > 5 { // freshFor is long
		t.Errorf("%d who asked at the same time made the job be looked at %d times", 24, looks)
	}
	h.Close(errors.New("lost"))
	if s := h.Status(); s.State != "failed" || s.Faults[len(s.Faults)-1].Text != "lost" {
		t.Errorf("after the end: %s, %v", s.State, s.Faults)
	}
}

// A job of 64 ranks is told of in little time, without what the launcher reads of their recorders.
func BenchmarkStatus(b *testing.B) {
	h := newHub(time.Now)
	for _, line := range told(b, 10) {
		h.Add([]byte(line))
	}
	for rank := range 64 {
		for i := range mostBeats {
			h.Add(encoded(stepStats{Event: "beat", Rank: rank, Step: i + 1, StepMS: 1, ComputeMS: 1}))
		}
	}
	for b.Loop() {
		encoded(h.Status())
	}
}

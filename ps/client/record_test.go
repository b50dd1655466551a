package client

import (
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/service"
	"github.com/ringo-ml/ringo/internal/server/service/fake"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// awaitEvent polls until an event under way is as wanted.
func awaitEvent(t *testing.T, rec *record.Recorder, what string, wanted func(record.Event) bool) record.Event {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, e := range rec.Open(nil) {
			if wanted(e) {
				return e
			}
		}
	}
	t.Fatalf("%s is not recorded: %+v", what, rec.Open(nil))
	return record.Event{}
}

// Both ends record a request, the same one, and for whom it waits: the trainer for the server, the server for another trainer. When it has
// ended nothing is under way.
func TestRequestsAreRecorded(t *testing.T) {
	leakcheck.Check(t)
	sc := testSchema()
	ends := [2]*record.Recorder{record.New(record.Config{}), record.New(record.Config{})} // trainer 0's and the server's
	j := newJob(t, 1, 2, 1, func(e *fake.Config) { e.Bounded = true }, func(s *service.Config) { s.Record = ends[1] })
	a, b := j.dial(0, func(c *Config) { c.Record = ends[0] }), j.dial(1, nil)
	must(t, a.Session(0).Clock(1, 0))
	p, err := a.Session(0).PullRows(0, 2, []uint64{4, 5}, make([]float32, 2*sc.Sparse[0].Dim))
	must(t, err)
	pulls := func(peer int32) func(record.Event) bool {
		return func(e record.Event) bool { return e.Step == 2 && e.Peer == peer && e.Kind == record.Request }
	}
	asked := awaitEvent(t, ends[0], "the trainer's wait", pulls(0))
	parked := awaitEvent(t, ends[1], "the server's wait", pulls(1))
	for i, e := range []record.Event{asked, parked} {
		if ends[i].Text(e.Name) != "pull of rows" || ends[i].Text(e.Label) != sc.Sparse[0].Name || e.Seq != 1 || e.Sig != 2 || e.Other != 0 || e.Since < e.Begun {
			t.Errorf("end %d: %+v", i, e)
		}
	}
	must(t, b.Session(0).Clock(1, 0))
	must(t, p.Wait())
	must(t, a.meets(b))
	for i, rec := range ends {
		kinds := map[string]int{}
		for _, e := range rec.Recent(nil, 100) {
			if e.Failed || e.Peer >= 0 {
				t.Errorf("end %d: %+v has failed", i, e)
			}
			kinds[rec.Text(e.Name)]++
		}
		if kinds["pull of rows"] != 1 || kinds["clock"] != 1+i || kinds["meeting"] != 1+i {
			t.Errorf("end %d: %v", i, kinds)
		}
	}
}

// meets has two trainers meet.
func (c *Client) meets(other *Client) error {
	met := make(chan error, 1)
	go func() {
		_, err := other.AllGather(nil)
		met <- err
	}()
	if _, err := c.AllGather(nil); err != nil {
		return err
	}
	return <-met
}

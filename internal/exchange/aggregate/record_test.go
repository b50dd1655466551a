package aggregate

import (
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// Trainers and servers record each exchange once, by the same number.
func TestExchangesAreRecorded(t *testing.T) {
	const exchanges = 3
	recs := map[int]*record.Recorder{}
	meshes := mem.New(3)
	cfg := Config{Trainers: 2}
	for r := range meshes {
		recs[r] = record.New(record.Config{})
	}
	label := recs[0].Name("bucket 0 (a)")
	server, err := NewServer(meshes[2], Config{Trainers: 2, Record: recs[2]})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	go func() { ended <- server.Run(t.Context()) }()
	for r := range 2 {
		own := cfg
		own.Record = recs[r]
		c, err := NewClient(meshes[r], own)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			op := exchange.Request{X: make([]float32, 100), Bucket: exchange.BucketInfo{First: "a", Last: "a", Label: label}}
			for range exchanges {
				if err := reduce(c, &op); err != nil {
					ended <- err
					return
				}
			}
			ended <- c.Close()
		}()
	}
	for range 3 {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	sig := uint64(0)
	for r, rec := range recs {
		got := rec.Recent(nil, 100)
		if len(got) != exchanges || len(rec.Open(nil)) > 0 {
			t.Fatalf("member %d: %+v", r, got)
		}
		for i, e := range got {
			want := record.Operation
			if r == 2 {
				want = record.Request
			} else if sig == 0 {
				sig = e.Sig
			}
			if e.Kind != want || e.Seq != uint32(i) || e.Group != record.AggregationGroup || e.Size != 400 || e.Failed || e.Peer >= 0 || e.Done < e.Begun || r < 2 && (e.Sig != sig || e.Label != label) {
				t.Errorf("member %d: %+v", r, e)
			}
		}
	}
	for _, m := range meshes {
		m.Close()
	}
}

// A server that waits for a trainer whom another waits for says so.
func TestServersRecordWhomTheyWaitFor(t *testing.T) {
	meshes, rec := mem.New(3), record.New(record.Config{})
	server, err := NewServer(meshes[2], Config{Trainers: 2, Record: rec})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(t.Context()) }()
	c, err := NewClient(meshes[0], Config{Trainers: 2})
	if err != nil {
		t.Fatal(err)
	}
	op := exchange.Request{X: make([]float32, 10)}
	c.Start(&op)
	for server.wait.peer.Load() == 0 { // within headLook
		time.Sleep(time.Millisecond)
	}
	if open := rec.Open(nil); len(open) != 1 || open[0].Peer != 1 || open[0].Kind != record.Request {
		t.Errorf("%+v", open)
	}
	for _, m := range meshes {
		m.Abort(transport.ErrClosed)
	}
	<-ended
	if got := rec.Recent(nil, 9); len(got) != 1 || !got[0].Failed || got[0].Peer != 1 {
		t.Errorf("after the fault: %+v", got)
	}
	_ = c.Close()
}

package collective

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/transport"
)

// recordedBy are the operations of a group in a snapshot, by number, in words.
func recordedBy(s *record.Snapshot) (out []string) {
	for _, e := range s.Operations {
		text := fmt.Sprintf("%v %d: %s of %d bytes", e.Kind, e.Seq, s.Text(e.Name), e.Size)
		if e.Bucket >= 0 {
			text += fmt.Sprintf(", bucket %d %s", e.Bucket, s.Text(e.Label))
		}
		if e.Other >= 0 {
			text += fmt.Sprintf(" with %d", e.Other)
		}
		if e.Failed {
			text += " failed"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// Every operation is recorded once, on every way that it may go: on its caller's goroutine and on a worker's, short and long, of all ranks and of two.
func TestOperationsAreRecorded(t *testing.T) {
	const long = shortBytes / 4
	want := []string{
		"message 0: send of 4 bytes with 1", // of rank 0
		"message 1: send of 65536 bytes with 1",
		"operation 0: allreduce of 4 bytes",
		"operation 1: allreduce of 65536 bytes, bucket 7 fc",
		"operation 2: allreduce of 4 bytes, bucket 8 conv",
		"operation 3: broadcast of 8 bytes with 1",
		"operation 4: barrier of 0 bytes",
	}
	for name, meshes := range map[string][]transport.Mesh{"messages": mem.New(2), "shared": mem.NewShared(2, testArena)} {
		var recorders [2]*record.Recorder
		for r := range recorders {
			recorders[r] = record.New(record.Config{})
		}
		body := func(g *Group) error {
			x, s := make([]float32, long), g.scribe.rec
			work := func() error {
				s.BeginStep(5)
				if err := AllReduce(g, x[:1], Sum); err != nil {
					return err
				}
				g.For(7, s.Name("fc"))
				first := StartAllReduce(g, x, Sum)
				g.For(8, s.Name("conv"))
				second := StartAllReduce(g, make([]float32, 1), Sum)
				g.For(-1, 0)
				return errors.Join(first.Wait(), second.Wait(), Broadcast(g, x[:2], 1), Barrier(g))
			}
			talk := func() error {
				for _, n := range []int{1, long} {
					var err error
					if g.Rank() == 0 {
						err = Send(g, x[:n], 1)
					} else {
						err = Receive(g, x[:n], 0)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}
			return errors.Join(work(), talk())
		}
		if err := onRecorded(meshes, recorders[:], body); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mine, theirs := recorders[0].Snapshot(), recorders[1].Snapshot()
		if got := recordedBy(mine); !slices.Equal(got, want) {
			t.Errorf("%s: rank 0 has recorded\n%q, want\n%q", name, got, want)
		}
		for _, e := range mine.Operations {
			if e.Step != 5 || e.Done == 0 || e.Size >= shortBytes && (e.Begun <= 0 || e.Done < e.Begun) {
				t.Errorf("%s: %+v", name, e)
			}
			if e.Kind == record.Operation && !slices.ContainsFunc(theirs.Operations, func(o record.Event) bool { return o.Seq == e.Seq && o.Sig == e.Sig }) {
				t.Errorf("%s: rank 1 has nothing like %+v", name, e)
			}
		}
		if len(mine.Open)+len(theirs.Open) != 0 {
			t.Errorf("%s: %+v and %+v go on", name, mine.Open, theirs.Open)
		}
	}
}

// onRecorded runs body as the ranks of meshes, each with its recorder.
func onRecorded(meshes []transport.Mesh, recorders []*record.Recorder, body func(*Group) error) error {
	errs := make(chan error)
	for r, m := range meshes {
		go func() {
			g, err := New(m, Config{Record: recorders[r]})
			if err == nil {
				err = errors.Join(body(g), g.Close())
			}
			errs <- err
		}()
	}
	var all []error
	for range meshes {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// An operation that waits is seen to, with its peer, and one that fails keeps whom it waited for then.
func TestWaitsAreRecorded(t *testing.T) {
	for name, meshes := range map[string][]transport.Mesh{"messages": mem.New(2), "shared": mem.NewShared(2, testArena)} {
		cause, lost := errors.New("enough"), int32(-1) // of which one says who is lost
		if name == "messages" {
			cause, lost = fmt.Errorf("enough: %w", &transport.LostError{Rank: 5}), 5
		}
		rec := record.New(record.Config{})
		g, err := New(meshes[0], Config{Record: rec})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- AllReduce(g, make([]float32, 3), Sum) }()
		var open []record.Event
		for len(open) == 0 || open[0].Peer < 0 {
			time.Sleep(50 * time.Microsecond)
			open = rec.Open(open[:0])
		}
		if open[0].Peer != 1 || open[0].Since <= 0 || open[0].Size != 12 {
			t.Errorf("%s: %+v", name, open[0])
		}
		if wait, ok := g.Waiting(); !ok || wait.Peer != 1 || wait.Op != "allreduce" {
			t.Errorf("%s: waiting %v, %v", name, wait, ok)
		}
		_ = g.Fail(cause)
		<-ended
		s := rec.Snapshot()
		at := slices.IndexFunc(s.Operations, func(e record.Event) bool { return e.Kind == record.Operation })
		if at < 0 || !s.Operations[at].Failed || s.Operations[at].Peer != 1 || s.Operations[at].Begun <= 0 || len(s.Open) != 0 {
			t.Errorf("%s: ended %+v, going on %+v", name, s.Operations, s.Open)
		}
		if !slices.ContainsFunc(s.Operations, func(e record.Event) bool { return e.Kind == record.Fault && e.Other == lost }) {
			t.Errorf("%s: no fault that says who is lost in %+v", name, s.Operations)
		}
		g.Close()
		for _, m := range meshes {
			m.Close()
		}
	}
}

// Groups that were closed give their lanes back; those that have none record all the same.
func TestGroupsShareARecorder(t *testing.T) {
	recorders := []*record.Recorder{record.New(record.Config{Lanes: 1}), record.New(record.Config{Lanes: 1})}
	for round := range 3 {
		err := onRecorded(mem.New(2), recorders, func(g *Group) error {
			b, err := g.Dup()
			if err != nil {
				return err
			}
			defer b.Close()
			if g.scribe.lane == nil || b.scribe.lane != nil {
				return fmt.Errorf("round %d: lanes %v and %v", round, g.scribe.lane, b.scribe.lane)
			}
			err = errors.Join(Barrier(g), Barrier(b))
			if round < 2 {
				return err
			}
			rec := g.cfg.Record
			err = errors.Join(err, b.Close(), g.Close())
			c, errNew := New(g.mesh, Config{ID: 100, Record: rec})
			if errNew != nil {
				return errNew
			}
			defer c.Close()
			if _ = g.Close(); c.scribe.lane == nil || rec.Lane(new(sync.Mutex)) != nil {
				return errors.New("a group that is closed twice gives back the lane of another")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := recordedBy(recorders[0].Snapshot()); len(got) != 6 {
		t.Errorf("six barriers: %q", got)
	}
}

// What recording adds to a short operation, beside the two locks that it takes in any case.
func BenchmarkScribe(b *testing.B) {
	g, err := New(mem.NewShared(2, testArena)[0], Config{Record: record.New(record.Config{})})
	if err != nil {
		b.Fatal(err)
	}
	w := g.share.quick
	w.kind, w.elem, w.x = kindAllReduce, float32s, make([]byte, 4)
	for _, off := range []bool{true, false} {
		b.Run(map[bool]string{true: "locks", false: "recorded"}[off], func(b *testing.B) {
			for b.Loop() {
				w.seq++
				g.mu.Lock()
				if !off {
					g.scribe.begin(w, true)
				}
				g.mu.Unlock()
				if !off {
					g.scribe.stop(w)
				}
				g.mu.Lock()
				if !off {
					g.scribe.ended(w)
				}
				g.mu.Unlock()
			}
		})
	}
}

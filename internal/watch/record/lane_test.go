package record

import (
	"slices"
	"sync"
	"testing"
)

// begin is Begin of an event.
func begin(l *OpRing, e *Event) Op {
	d := e.Draft()
	return l.Begin(&d)
}

// What is recorded in a lane is seen while it goes on and after, in memory, too, with the times that are known.
func TestLane(t *testing.T) {
	r := New(small)
	r.BeginStep(6)
	var mu sync.Mutex
	lane := r.Lane(&mu)
	e := operation(1)
	e.Begun = 0
	first := begin(lane, e)
	first.Wait().For(3, 44)
	if open := r.Open(nil); len(open) != 1 || open[0].Seq != 1 || open[0].Peer != 3 || open[0].Since != 44 || open[0].Begun != 0 || open[0].Step != 6 {
		t.Errorf("open: %+v", open)
	}
	if s := decoded(t, r); !slices.Equal(seqs(s.Open), []uint32{1}) || len(s.Operations) != 0 {
		t.Errorf("in memory: %+v", s)
	}
	first.Began(43)
	first.Wait().Clear()
	first.End(50, 8, false)
	e.Seq = 2
	second := begin(lane, e)
	second.Wait().For(1, 60)
	second.End(Unknown, -1, true)
	want := *e
	want.Step, want.Failed, want.Done, want.Peer, want.Since = 6, true, Unknown, 1, 60
	for kind, got := range map[string][]Event{"recent": r.Recent(nil, 9), "snapshot": r.Snapshot().Operations, "memory": decoded(t, r).Operations} {
		if !slices.Equal(seqs(got), []uint32{1, 2}) || got[0].Begun != 43 || got[0].Done != 50 || got[0].Sent != 8 || got[1] != want {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

// The last events are kept, and those that go on, however many others begin.
func TestLaneKeepsWhatGoesOn(t *testing.T) {
	r := New(small)
	lane := r.Lane(new(sync.Mutex))
	stuck := begin(lane, operation(0))
	for i := range uint32(20) {
		begin(lane, operation(1+i)).End(Unknown, -1, false)
	}
	for kind, s := range map[string]*Snapshot{"snapshot": r.Snapshot(), "memory": decoded(t, r)} {
		if !slices.Equal(seqs(s.Open), []uint32{0}) || !slices.Equal(seqs(s.Operations), []uint32{18, 19, 20}) {
			t.Errorf("%s: %v, %v", kind, seqs(s.Open), seqs(s.Operations))
		}
	}
	if got := seqs(r.Recent(nil, 2)); !slices.Equal(got, []uint32{19, 20}) {
		t.Errorf("the last two: %v", got)
	}
	more := []Op{begin(lane, operation(30)), begin(lane, operation(31)), begin(lane, operation(32))}
	if none := begin(lane, operation(33)); none.Recorded() || none.Wait() != nil {
		t.Error("five operations go on in a lane of four")
	}
	stuck.End(1, 1, false)
	if again := begin(lane, operation(34)); !again.Recorded() {
		t.Error("the place of one that has ended is not used again")
	}
	if got := seqs(r.Open(nil)); !slices.Equal(slices.Sorted(slices.Values(got)), []uint32{30, 31, 32, 34}) {
		t.Errorf("open: %v", got)
	}
	for _, op := range more {
		op.End(Unknown, -1, false)
	}
}

// Lanes are given to one writer at a time, and what the last one left is still read.
func TestLanesAreFew(t *testing.T) {
	r := New(small)
	locks := make([]sync.Mutex, 4)
	one, two := r.Lane(&locks[0]), r.Lane(&locks[1])
	if one == nil || two == nil || one == two || r.Lane(&locks[2]) != nil {
		t.Fatal("want two lanes")
	}
	var none *OpRing
	if begin(none, operation(1)).Recorded() {
		t.Error("something began in no lane")
	}
	begin(one, operation(5)).End(Unknown, -1, false)
	locks[0].Lock() // as the writer does who is the last to end
	one.Free()
	locks[0].Unlock()
	if got := seqs(r.Recent(nil, 9)); !slices.Equal(got, []uint32{5}) {
		t.Errorf("recent: %v", got)
	}
	if r.Lane(&locks[2]) != one || r.Lane(&locks[3]) != nil {
		t.Error("want the lane that was given back, once")
	}
}

// Readers never see half an event of a lane: with the race detector on, that nothing is read while it is written.
func TestLanesAreReadMeanwhile(t *testing.T) {
	r := New(small)
	var writers sync.WaitGroup
	for range 2 {
		mu := new(sync.Mutex)
		lane := r.Lane(mu)
		writers.Go(func() {
			for i := range uint32(500) {
				e := operation(i)
				e.Sig = uint64(i)
				mu.Lock()
				op := begin(lane, e)
				mu.Unlock()
				op.Wait().For(1, 5)
				op.Wait().Clear()
				mu.Lock()
				op.End(Unknown, -1, false)
				mu.Unlock()
			}
		})
	}
	for range 200 {
		s := r.Snapshot()
		for _, e := range append(s.Open, s.Operations...) {
			if uint64(e.Seq) != e.Sig {
				t.Fatalf("an event of two: %+v", e)
			}
		}
	}
	writers.Wait()
}

// A short operation under a lock that its writer holds anyway, which is not counted.
func BenchmarkLane(b *testing.B) {
	lane := New(Config{}).Lane(new(sync.Mutex))
	seq, d := uint32(0), operation(0).Draft()
	b.ReportAllocs()
	for b.Loop() {
		seq++
		d.Seq(seq)
		lane.Begin(&d).End(Unknown, -1, false)
	}
}

// A lane that was freed keeps nothing of its writer, can be read, and is another's.
func TestFreeLaneHoldsNothing(t *testing.T) {
	r := New(small)
	mu := new(sync.Mutex)
	lane := r.Lane(mu)
	mu.Lock() // of a writer that is no more, and may never unlock it
	begin(lane, operation(4)).End(9, 1, false)
	lane.Free()
	if got := r.Recent(nil, 9); !slices.Equal(seqs(got), []uint32{4}) || lane.lock.Load() != nil {
		t.Errorf("%+v", got)
	}
	var other sync.Mutex
	if again := r.Lane(&other); again != lane {
		t.Error("the lane is nobody's, and was not given away")
	}
}

// Requests say themselves of which step they are; a phase is of the step under way.
func TestStepsOfRequests(t *testing.T) {
	r := New(small)
	r.BeginStep(3)
	e := operation(1)
	e.Kind, e.Step = Request, 8
	r.Add(e)
	r.Begin(e).End(5, 0, false)
	r.BeginPhase(Update, 1).End(2, -1, false)
	s := r.Snapshot()
	if len(s.Operations) != 2 || s.Operations[0].Step != 8 || s.Operations[1].Step != 8 || len(s.Phases) != 1 || s.Phases[0].Step != 3 || s.Phases[0].Phase != Update {
		t.Errorf("%+v", s)
	}
}

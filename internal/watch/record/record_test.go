package record

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// small has room for four operations.
var small = Config{Operations: 4, Phases: 8, Open: 3, Lanes: 2, Names: 64}

func operation(seq uint32) *Event {
	return &Event{Kind: Operation, Seq: seq, Bucket: -1, Other: -1, Peer: -1, Sent: -1, Begun: int64(seq) + 1}
}

func seqs(events []Event) (out []uint32) {
	for _, e := range events {
		out = append(out, e.Seq)
	}
	return out
}

// full has every field different from its zero value.
func full(r *Recorder) Event {
	return Event{
		Kind: Message, Phase: Update, Failed: true, Name: r.Name("receive"), Algorithm: r.Name("ring"), Bucket: 70000, Label: r.Name("bucket"),
		Step: 1 << 40, Group: 1<<30 - 1, Seq: 1<<32 - 1, Other: 65534, Peer: 63, Since: 5, Size: 1 << 50, Sent: 1 << 49, Sig: 1<<64 - 1, Begun: 8, Done: 9,
	}
}

// What is recorded is read again, by a reader, of a snapshot, and out of the bytes of the memory.
func TestEveryFieldIsKept(t *testing.T) {
	r := New(small)
	want := full(r)
	r.BeginStep(want.Step)
	reader := r.Follow()
	r.Add(&want)
	got := make([]Event, 9)
	if n, missed := reader.Next(got); n != 1 || missed != 0 || got[0] != want {
		t.Errorf("a reader got %d events (%d missed), %+v, want %+v", n, missed, got[0], want)
	}
	for kind, s := range map[string]*Snapshot{"snapshot": r.Snapshot(), "memory": decoded(t, r)} {
		if len(s.Operations) != 1 || s.Operations[0] != want {
			t.Errorf("%s: %+v", kind, s.Operations)
		}
		if s.Text(want.Name) != "receive" || s.Text(want.Algorithm) != "ring" || s.Text(99) != "" || s.Text(0) != "" {
			t.Errorf("%s: names %q", kind, s.names)
		}
		if !s.Epoch.Equal(time.Unix(0, r.epoch.UnixNano())) || s.Step != want.Step || s.Process == 0 {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}

func decoded(t *testing.T, r *Recorder) *Snapshot {
	t.Helper()
	s, err := Decode(r.bytes())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpenUntilTheEnd(t *testing.T) {
	r := New(small)
	reader := r.Follow()
	first, second := r.Begin(operation(7)), r.Begin(operation(8))
	first.Wait().For(3, 44)
	second.Wait().Start(50)
	second.Wait().Continue(1)
	open := r.Open(nil)
	slices.SortFunc(open, func(a, b Event) int { return int(a.Seq) - int(b.Seq) })
	if !slices.Equal(seqs(open), []uint32{7, 8}) || open[0].Peer != 3 || open[0].Since != 44 || open[1].Peer != 1 || open[1].Since != 50 {
		t.Errorf("open: %+v", open)
	}
	if s := decoded(t, r); !slices.Equal(seqs(s.Open), []uint32{7, 8}) || s.Open[0].Peer != 3 {
		t.Errorf("in memory: %+v", s.Open)
	}
	if n, _ := reader.Next(make([]Event, 4)); n != 0 {
		t.Errorf("a reader gets %d events that have not ended", n)
	}
	second.End(60, 8, true)
	first.Wait().Clear()
	first.End(61, 4, false)
	if got := r.Recent(nil, 9); !slices.Equal(seqs(got), []uint32{8, 7}) || !got[0].Failed || got[0].Peer != 1 || got[0].Done != 60 ||
		got[1].Failed || got[1].Peer != -1 || got[1].Sent != 4 {
		t.Errorf("ended: %+v", got)
	}
	if open := r.Open(nil); len(open) != 0 {
		t.Errorf("still open: %+v", open)
	}
}

// A table that is full loses nothing but what is under way beyond it.
func TestTableIsFull(t *testing.T) {
	r := New(small)
	var ops []Op
	for i := range uint32(5) {
		ops = append(ops, r.Begin(operation(i)))
	}
	if len(r.Open(nil)) != 3 || ops[4].Wait() != nil || decoded(t, r).Dropped != 2 {
		t.Errorf("%d open, %d unseen", len(r.Open(nil)), decoded(t, r).Dropped)
	}
	for _, op := range ops {
		op.End(1, 0, false)
	}
	r.Begin(operation(9)).End(1, 0, false)
	if got := seqs(r.Recent(nil, 9)); !slices.Equal(got, []uint32{0, 1, 2, 9}) {
		t.Errorf("ended: %v", got)
	}
}

// Each ring keeps its last events, whatever the other has to keep.
func TestRingsKeepTheLast(t *testing.T) {
	r := New(small)
	reader, late := r.Follow(), r.Follow()
	for i := range uint32(6) {
		r.Add(operation(i))
		r.BeginStep(int64(i))
		for range 3 {
			r.Span(Forward, 0, 1, 2)
		}
	}
	if got := seqs(r.Recent(nil, 3)); !slices.Equal(got, []uint32{3, 4, 5}) {
		t.Errorf("the last three: %v", got)
	}
	s := decoded(t, r)
	if !slices.Equal(seqs(s.Operations), []uint32{2, 3, 4, 5}) || len(s.Phases) != 8 || s.Phases[7].Step != 5 || s.OperationsEnded != 6 || s.PhasesEnded != 18 {
		t.Errorf("in memory: %+v", s)
	}
	got := make([]Event, 3)
	n, missed := reader.Next(got)
	if n != 3 || missed != 2 || !slices.Equal(seqs(got), []uint32{2, 3, 4}) {
		t.Errorf("%d events, %d missed: %v", n, missed, seqs(got))
	}
	n, missed = reader.Next(got)
	if n != 3 || missed != 10 || got[0].Seq != 5 || got[1].Kind != PhaseKind || got[1].Step != 3 {
		t.Errorf("then %d, %d missed: %+v", n, missed, got)
	}
	reader.Close()
	reader.Close()
	if all := make([]Event, 99); true {
		if n, missed := late.Next(all); n != 12 || missed != 12 {
			t.Errorf("who reads late gets %d and misses %d", n, missed)
		}
	}
	if len(r.readers) != 1 {
		t.Errorf("%d readers after one was closed", len(r.readers))
	}
}

func TestReadersAreWoken(t *testing.T) {
	r := New(Config{Operations: 8, Phases: 8, Open: 1, Lanes: 1, Names: 8})
	reader := r.Follow()
	woken := func() bool {
		select {
		case <-reader.Ready():
			return true
		default:
			return false
		}
	}
	r.Add(operation(0))
	if woken() {
		t.Error("woken by one event of eight")
	}
	r.Add(operation(1))
	r.Add(operation(2))
	if !woken() || woken() {
		t.Error("want to be woken once by a quarter of the ring")
	}
	r.Add(&Event{Kind: Fault})
	if !woken() {
		t.Error("a fault wakes nobody")
	}
}

func TestNames(t *testing.T) {
	r := New(small)
	if r.Name("") != 0 || r.Name("a") != 1 || r.Name("b") != 2 || r.Name("a") != 1 {
		t.Error("names have other numbers")
	}
	if id := r.Name(strings.Repeat("x", 60)); id != 0 {
		t.Errorf("a name without room is %d", id)
	}
	if r.Text(2) != "b" || r.Text(3) != "" {
		t.Errorf("%q, %q", r.Text(2), r.Text(3))
	}
	long := New(Config{})
	if got := long.Text(long.Name(strings.Repeat("ä", maxName))); len(got) != maxName {
		t.Errorf("a long name has %d bytes", len(got))
	}
}

func TestNilRecordsNothing(t *testing.T) {
	var r *Recorder
	r.BeginStep(3)
	op := r.Begin(operation(1))
	if op.Wait() != nil {
		t.Error("somebody would see the wait of an operation that nobody records")
	}
	op.End(1, 1, false)
	Op{}.End(1, 1, false)
	r.Add(operation(1))
	r.Span(Data, 0, 1, 2)
	reader := r.Follow()
	if n, missed := reader.Next(make([]Event, 1)); n != 0 || missed != 0 {
		t.Error("a reader of nothing got something")
	}
	reader.Close()
	lane := r.Lane(new(sync.Mutex))
	begin(lane, operation(1)).Began(4)
	lane.Free()
	if r.Step() != -1 || r.Now() != 0 || r.At(time.Now()) != 0 || !r.Time(1).IsZero() || r.Name("x") != 0 || r.Text(1) != "" || r.Snapshot() != nil || r.Close() != nil ||
		len(r.Open(nil))+len(r.Recent(nil, 1)) != 0 {
		t.Error("a nil recorder has something to say")
	}
}

// Many write, wait and read at once.
func TestManyGoroutines(t *testing.T) {
	r := New(Config{Operations: 64, Phases: 64, Open: 8})
	reader := r.Follow()
	done := make(chan int64)
	stop := make(chan struct{})
	go func() {
		var buf [16]Event
		seen := int64(0)
		for last := false; ; {
			n, missed := reader.Next(buf[:])
			for _, e := range buf[:n] {
				if e.Kind == Operation && uint64(e.Seq) != e.Sig {
					t.Errorf("an event of two: %+v", e)
				}
			}
			if seen += int64(n) + missed; n > 0 {
				continue
			}
			if last {
				done <- seen
				return
			}
			select {
			case <-reader.Ready():
			case <-stop:
				last = true
			}
		}
	}()
	var writers sync.WaitGroup
	for g := range uint32(4) {
		writers.Go(func() {
			for i := range uint32(300) {
				e := operation(1000*g + i)
				e.Sig = uint64(e.Seq)
				op := r.Begin(e)
				op.Wait().For(int(g), int64(i)) // 4 of 8 places: never nil
				r.Open(nil)
				op.End(r.Now(), 1, false)
				r.Span(Forward, r.Name(fmt.Sprint(i%7)), r.Now(), r.Now())
			}
		})
	}
	writers.Wait()
	close(stop)
	if got := <-done; got != 4*300*2 {
		t.Errorf("read and missed %d events of %d", got, 4*300*2)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	r := New(small)
	r.Follow()
	var buf [8]Event
	reader := r.Follow()
	if n := testing.AllocsPerRun(100, func() {
		op := r.Begin(&Event{Kind: Operation, Begun: r.Now()})
		op.Wait().For(1, r.Now())
		op.End(r.Now(), 1, false)
		r.Span(Forward, 0, 1, 1)
		reader.Next(buf[:])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	err := Config{Operations: 3, Phases: maxKept * 2, Open: -1, Lanes: 65, Names: -8}.Validate()
	for _, want := range []string{"3 operations", "2097152 phases", "-1 open", "65 lanes", "-8 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestNamesOfKindsAndPhases(t *testing.T) {
	seen := map[string]bool{}
	for k := Operation; k < kinds; k++ {
		seen[k.String()] = true
	}
	for p := range phases {
		seen[p.String()] = true
	}
	if want := int(kinds-1) + int(phases); len(seen) != want || Kind(99).String() != "Kind(99)" || Phase(99).String() != "Phase(99)" {
		t.Errorf("%d names, want %d different ones: %v", len(seen), want, seen)
	}
}

func BenchmarkSpan(b *testing.B) {
	r := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		begun := r.Now()
		r.Span(Forward, 0, begun, r.Now())
	}
}

// An operation, from its beginning to its end, with its two looks at the clock and one wait.
func BenchmarkOperation(b *testing.B) {
	r := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		now := r.Now()
		op := r.Begin(&Event{Kind: Operation, Begun: now})
		op.Wait().For(1, now)
		op.Wait().Clear()
		op.End(r.Now(), 1, false)
	}
}

// The same without looks at the clock.
func BenchmarkWriting(b *testing.B) {
	r := New(Config{})
	e := operation(1)
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			r.Add(e)
		}
	})
	b.Run("begin and end", func(b *testing.B) {
		for b.Loop() {
			r.Begin(e).End(1, 1, false)
		}
	})
}

// What rests records nothing that begins, and what had begun ends.
func TestRest(t *testing.T) {
	r := New(Config{})
	before := r.BeginPhase(Forward, r.Now())
	r.SetPaused(true)
	before.End(r.Now(), -1, false)
	r.Span(Backward, 0, 1, 2)
	if r.BeginPhase(Update, r.Now()).Recorded() {
		t.Error("a recorder that rests has recorded a beginning")
	}
	var lock sync.Mutex
	lane := r.Lane(&lock)
	lock.Lock()
	if lane.Begin(new(Draft)).Recorded() {
		t.Error("so has its lane")
	}
	lock.Unlock()
	r.SetPaused(false)
	r.Span(Exchange, 0, 3, 4)
	s := r.Snapshot()
	if len(s.Phases) != 2 || s.Phases[0].Phase != Forward || s.Phases[1].Phase != Exchange || len(s.Open) != 0 {
		t.Errorf("recorded %+v, under way %+v", s.Phases, s.Open)
	}
	(*Recorder)(nil).SetPaused(true)
}

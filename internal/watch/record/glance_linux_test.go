package record

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
)

// A glance at another process's memory, and at one's own, shows the last phases as a whole snapshot does.
func TestGlance(t *testing.T) {
	f, err := Create(Config{Phases: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s, err := RecentSnapshot(f, 8); s != nil || err != nil {
		t.Errorf("before anything was recorded: %v, %v", s, err)
	}
	r, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 100 {
		r.BeginStep(int64(i / 3))
		r.Span(Exchange, r.Name(fmt.Sprintf("bucket %d", i%5)), int64(i), int64(2*i))
		if i%9 > 0 && i != 63 && i != 64 {
			continue
		}
		want, err := Read(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 7, 63, 64, 1000} {
			events := want.Phases[len(want.Phases)-min(n, len(want.Phases)):]
			for name, glance := range map[string]func() (*Snapshot, error){
				"of another": func() (*Snapshot, error) { return RecentSnapshot(f, n) },
				"own":        func() (*Snapshot, error) { return r.Glance(n), nil },
			} {
				// The oldest event of a full ring may be overwritten while another process reads it.
				least := events
				if name == "of another" && n >= 64 && i >= 63 {
					least = events[1:]
				}
				got, err := glance()
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Phases, events) && !slices.Equal(got.Phases, least) {
					t.Fatalf("%s, %d of %d: %d events, want %d", name, n, i+1, len(got.Phases), len(events))
				}
				if got.Step != want.Step || !got.Epoch.Equal(want.Epoch) || got.PhasesEnded != want.PhasesEnded || got.Process != os.Getpid() || got.Text(1) != "bucket 0" {
					t.Fatalf("%s: %+v, want %+v", name, got, want)
				}
			}
		}
	}
	var none *Recorder
	if none.Glance(3) != nil {
		t.Error("a nil recorder has recorded something")
	}
}

// A glance at another process's memory, and at one's own, shows what is under way as a whole snapshot does, in the table and in lanes,
// whatever has ended meanwhile.
func TestGlanceShowsWhatIsOpen(t *testing.T) {
	f, err := Create(Config{Operations: 8, Phases: 8, Open: 5, Lanes: 3, Names: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	lanes, random := []*OpRing{r.Lane(new(sync.Mutex)), r.Lane(new(sync.Mutex))}, rand.New(rand.NewPCG(1, 2))
	var open []Op
	for i := range uint32(1000) {
		if len(open) < 4 && random.IntN(2) == 0 {
			e := operation(i)
			e.Begun, e.Peer = int64(random.IntN(3)*int(i)), int32(random.IntN(3))-1
			ops := []func() Op{func() Op { return r.Begin(e) }, func() Op { return begin(lanes[0], e) }, func() Op { return begin(lanes[1], e) }}
			open = append(open, ops[random.IntN(len(ops))]())
		} else if len(open) > 0 {
			at := random.IntN(len(open))
			open[at].End(int64(i)+1, 1, false)
			open = slices.Delete(open, at, at+1)
		}
		want, err := Read(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := RecentSnapshot(f, 0)
		if err != nil || !slices.Equal(got.Open, want.Open) || len(got.Open) != len(open) || got.OperationsEnded != want.OperationsEnded {
			t.Fatalf("%v: open are %+v, want %+v", err, got.Open, want.Open)
		}
		own := r.Glance(0).Open
		if slices.SortFunc(own, bySeq); !slices.Equal(own, slices.SortedFunc(slices.Values(want.Open), bySeq)) {
			t.Fatalf("open of one's own are %+v, want %+v", own, want.Open)
		}
	}
}

func bySeq(a, b Event) int { return cmp.Compare(a.Seq, b.Seq) }

// While its process records, a glance shows whole events alone, each as it was written.
func TestGlanceWhileRecording(t *testing.T) {
	f, err := Create(Config{Phases: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stop := make(chan struct{})
	var writer sync.WaitGroup
	mu := new(sync.Mutex)
	lane := r.Lane(mu)
	writer.Go(func() {
		for i := int64(1); ; i++ {
			select {
			case <-stop:
				return
			default:
				r.Add(&Event{Kind: PhaseKind, Size: i, Sent: i, Begun: i, Done: i})
				first, second := r.Begin(&Event{Kind: Operation, Size: i, Sent: i, Begun: i}), Op{}
				mu.Lock()
				second = begin(lane, &Event{Kind: Operation, Size: i, Sent: i, Begun: i})
				mu.Unlock()
				first.End(i, i, false)
				mu.Lock()
				second.End(i, i, false)
				mu.Unlock()
			}
		}
	})
	seen, open := 0, 0
	for range 300 {
		s, err := RecentSnapshot(f, 32)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Open {
			if open++; e.Size != e.Sent || e.Size != e.Begun {
				t.Fatalf("torn: %+v", s.Open)
			}
		}
		for i, e := range s.Phases {
			if seen++; e.Size != e.Sent || e.Size != e.Begun || e.Size != e.Done || i > 0 && e.Size <= s.Phases[i-1].Size {
				t.Fatalf("torn: %+v", s.Phases)
			}
		}
	}
	close(stop)
	writer.Wait()
	t.Logf("%d events seen, %d of them under way", seen, open)
}

// Memory that is none, is cut, or lies about itself gives an error, and takes no memory.
func TestGlanceRefuses(t *testing.T) {
	r := New(Config{Phases: 8, Names: 64})
	r.Span(Forward, r.Name("x"), 1, 2)
	var whole []byte
	for _, w := range r.memory.head {
		for i := range 8 {
			whole = append(whole, byte(w>>(8*i)))
		}
	}
	changed := func(at int, to byte) []byte {
		b := slices.Clone(whole)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{"empty": nil, "cut": whole[:100], "no mark": changed(0, 1), "another version": changed(8, 9), "huge": changed(8*headPhases+5, 1), "a head alone": whole} {
		if s, err := RecentSnapshot(bytes.NewReader(b), 1<<30); s != nil || err == nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if _, err := RecentSnapshot(io.NewSectionReader(bytes.NewReader(whole), 0, 8*headWords), 4); !errors.Is(err, io.EOF) {
		t.Errorf("of a head alone: %v", err)
	}
}

// BenchmarkRead reads all that another process has recorded in full rings, and glances at it: at what is under way, and at 512 phases, too.
func BenchmarkRead(b *testing.B) {
	f, err := Create(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r, err := Map(f)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	lane := r.Lane(new(sync.Mutex))
	for i := range 5000 {
		r.Span(Exchange, r.Name(fmt.Sprintf("bucket %d", i%20)), 1, 2)
		r.Add(operation(uint32(i)))
		begin(lane, operation(uint32(i))).End(Unknown, 1, false)
	}
	for range 4 {
		r.Begin(operation(1))
	}
	for name, read := range map[string]func() (*Snapshot, error){
		"all":       func() (*Snapshot, error) { return Read(f) },
		"under way": func() (*Snapshot, error) { return RecentSnapshot(f, 0) },
		"512":       func() (*Snapshot, error) { return RecentSnapshot(f, 512) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	if s, err := Glance(f, 8); s != nil || err != nil {
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
				"of another": func() (*Snapshot, error) { return Glance(f, n) },
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
	writer.Go(func() {
		for i := int64(1); ; i++ {
			select {
			case <-stop:
				return
			default:
				r.Add(&Event{Kind: PhaseKind, Size: i, Sent: i, Begun: i, Done: i})
			}
		}
	})
	seen := 0
	for range 2000 {
		s, err := Glance(f, 32)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range s.Phases {
			if seen++; e.Size != e.Sent || e.Size != e.Begun || e.Size != e.Done || i > 0 && e.Size <= s.Phases[i-1].Size {
				t.Fatalf("torn: %+v", s.Phases)
			}
		}
	}
	close(stop)
	writer.Wait()
	t.Logf("%d events seen", seen)
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
		if s, err := Glance(bytes.NewReader(b), 1<<30); s != nil || err == nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if _, err := Glance(io.NewSectionReader(bytes.NewReader(whole), 0, 8*headWords), 4); !errors.Is(err, io.EOF) {
		t.Errorf("of a head alone: %v", err)
	}
}

// BenchmarkGlance looks at 512 events of another process.
func BenchmarkGlance(b *testing.B) {
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
	for i := range 5000 {
		r.Span(Exchange, r.Name(fmt.Sprintf("bucket %d", i%20)), 1, 2)
	}
	for b.Loop() {
		if _, err := Glance(f, 512); err != nil {
			b.Fatal(err)
		}
	}
}

package metrics

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// get is a value of figures; NaN where there is none.
func get(f *RankMetrics, id ID, label string) float64 {
	for _, v := range f.Values() {
		if v.ID == id && v.Label == label {
			return v.Value
		}
	}
	return math.NaN()
}

func TestFigures(t *testing.T) {
	f := New(1, 3)
	f.Step(Step{Whole: 20 * time.Millisecond, Samples: 64, Epoch: 2, Loss: 0.5, Density: 0.25, Phases: [UpdatePhase + 1]time.Duration{ComputePhase: 9 * time.Millisecond, UpdatePhase: time.Second}})
	f.Step(Step{Whole: 30 * time.Millisecond, Samples: 60, Epoch: 2, Loss: -0.25, Density: 0.5})
	f.Spent(PhaseTime, ComputePhase, 1500*time.Millisecond)
	f.Spent(WaitTime, 2, 250*time.Millisecond)
	f.Add(Samples, 0, -5) // counters never fall
	f.Put(SentBytes, TCP, 1<<40)
	for _, want := range []struct {
		id    ID
		label string
		value float64
	}{
		{Samples, "", 124}, {Epoch, "", 2}, {Loss, "", -0.25}, {Density, "", 0.5}, {PhaseTime, "compute", 1.509}, {PhaseTime, "update", 1}, {PhaseTime, "data", 0},
		{WaitTime, "2", 0.25}, {SentBytes, "tcp", 1 << 40}, {StepDuration, "", 0.05},
	} {
		if got := get(f, want.id, want.label); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.id.Row().Name, want.label, got, want.value)
		}
	}
	for _, unknown := range []struct {
		id    ID
		label string
	}{{ResidualNorm, ""}, {WaitTime, "0"}, {LastHeartbeat, ""}, {Up, ""}} {
		if got := get(f, unknown.id, unknown.label); got == got {
			t.Errorf("%s is %v before anybody has said so", unknown.id.Row().Name, got)
		}
	}
}

// The words of rows do not overlap, whatever the job's size.
func TestRowsHaveWordsOfTheirOwn(t *testing.T) {
	for _, size := range []int{1, 2, 64} {
		f := New(0, size)
		n := int64(0)
		for _, id := range OfRole(OfRank) {
			for i := range id.Row().words(size) {
				n++
				f.Put(id, i, n)
			}
		}
		if int(n)+headWords != len(f.words) {
			t.Errorf("%d words are written, there are %d and a head of %d", n, len(f.words), headWords)
		}
		n = 0
		for _, id := range OfRole(OfRank) {
			for i := range id.Row().words(size) {
				if n++; f.words[f.at[id]+i] != uint64(n) {
					t.Errorf("of %d ranks: word %d of %s is another's", size, i, id.Row().Name)
				}
			}
		}
	}
}

// Buckets are those of a count by hand.
func TestHistogram(t *testing.T) {
	f := New(0, 1)
	var all []time.Duration
	for i := range 400 {
		d := time.Duration(math.Pow(1.04, float64(i))) * time.Microsecond
		all = append(all, d, time.Duration(1e9*Bounds[i%len(Bounds)]))
	}
	for _, d := range all {
		f.Observe(StepDuration, d)
	}
	h := f.histogram(StepDuration)
	if len(h.Buckets) != len(Bounds) || h.Count != uint64(len(all)) {
		t.Fatalf("%d buckets of %d durations", len(h.Buckets), h.Count)
	}
	for bound, got := range h.Buckets {
		want := uint64(0)
		for _, d := range all {
			if d.Seconds() <= bound {
				want++
			}
		}
		if got != want {
			t.Errorf("%d durations up to %v s, want %d", got, bound, want)
		}
	}
}

func TestNobodyCounts(t *testing.T) {
	var f *RankMetrics
	f.Step(Step{Samples: 1})
	f.Set(Loss, 0, 1)
	f.Put(Epoch, 0, 1)
	f.Follow(Source{})()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// Many goroutines lose nothing, and nothing is allocated.
func TestCountingTogether(t *testing.T) {
	f := New(0, 4)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				f.Step(Step{Whole: time.Millisecond, Samples: 2})
			}
		})
	}
	wg.Wait()
	if got := get(f, Samples, ""); got != 8000 {
		t.Errorf("%v samples, want 8000", got)
	}
	if n := testing.AllocsPerRun(100, func() { f.Step(Step{Whole: time.Millisecond, Samples: 2}) }); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

// Names keep to Prometheus's conventions, beyond what its linter knows.
func TestNames(t *testing.T) {
	var names []string
	for _, r := range Table() {
		names = append(names, r.Name)
		if !strings.HasPrefix(r.Name, "ringo_") || strings.HasPrefix(r.Name, "ringo_ps_") != (r.Role == OfParameterServer) {
			t.Errorf("%s of a %s: want the prefix ringo_, and ringo_ps_ of servers alone", r.Name, r.Role)
		}
		if strings.HasSuffix(r.Name, "_total") != (r.Type == Counter) {
			t.Errorf("%s is a %s", r.Name, r.Type)
		}
		if r.unit == nanoseconds && !strings.Contains(r.Name, "_seconds") {
			t.Errorf("%s is told in seconds", r.Name)
		}
		if r.Help == "" || r.From == "" || !strings.HasSuffix(r.Help, ".") || strings.Contains(r.Help, "\n") {
			t.Errorf("%s: help %q, from %q", r.Name, r.Help, r.From)
		}
		if r.Label == "" != (r.Values == nil && !r.ofPeer && !slices.Contains([]string{"version", "table"}, r.Label)) {
			t.Errorf("%s: label %q with values %q", r.Name, r.Label, r.Values)
		}
	}
	slices.Sort(names)
	if n := len(slices.Compact(names)); n != int(ids) {
		t.Errorf("%d names of %d rows", n, ids)
	}
}

func BenchmarkStep(b *testing.B) {
	f := New(0, 8)
	for range b.N {
		f.Step(Step{Whole: 20 * time.Millisecond, Samples: 64, Epoch: 1, Loss: 1, Density: 1})
	}
}

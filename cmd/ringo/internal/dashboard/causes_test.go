package dashboard

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// slowedHub has two ranks that have told of ten beats each, of which change makes what it likes.
func slowedHub(t *testing.T, change func(rank int, b *stepStats)) (h *Collector, now *time.Time) {
	at := time.Unix(1000, 0)
	h = newHub(func() time.Time { return at })
	for _, line := range told(t, 0) {
		h.Add([]byte(line))
	}
	for range 10 {
		at = at.Add(250 * time.Millisecond)
		for rank := range h.last().Info.NP {
			b := stepStats{Event: "beat", Rank: rank, Steps: 10, StepMS: 10, ComputeMS: 7, CompressMS: 0.5, UpdateMS: 0.5, ExposedCommMS: 2}
			change(rank, &b)
			h.Add(encoded(b))
		}
	}
	return h, &at
}

// What slows the job is on the page and in the status, and gone when it has gone.
func TestCause(t *testing.T) {
	h, _ := slowedHub(t, func(int, *stepStats) {})
	if s := h.Status(); s.Cause != nil || h.show(panels[1]).Kind != "none" {
		t.Errorf("of a job that nothing slows: %+v", s.Cause)
	}
	h, _ = slowedHub(t, func(rank int, b *stepStats) {
		if rank == 1 {
			b.ComputeMS, b.StepMS = 12, 15
		}
	})
	s := h.Status()
	if s.Cause == nil || s.Cause.Kind != steptrace.SlowRank || s.Cause.Rank != 1 || len(s.Stragglers) != 1 {
		t.Fatalf("%+v, %+v", s.Cause, s.Stragglers)
	}
	if f := h.show(panels[1]); f.Kind != "list" || !strings.Contains(f.Rows[0][1], "rank 1 holds up the others") {
		t.Errorf("%+v", f)
	}
}

// Ranks tell once a second, with a page four times. Either way a cause is looked for among their last ten seconds, once they have told of
// two: what was before is not seen any more, and what has just begun not yet.
func TestBeatIntervals(t *testing.T) {
	for every, s := range map[time.Duration]*site{slowBeat: nil, beatEvery: {}} {
		at := time.Unix(1000, 0)
		h := newHub(func() time.Time { return at })
		for _, line := range told(t, 0) {
			h.Add([]byte(line))
		}
		h.site = s
		beats := func(n int, slow bool) {
			for range n {
				at = at.Add(every)
				for rank := range h.last().Info.NP {
					b := stepStats{Event: "beat", Rank: rank, Steps: 10, StepMS: 10, ComputeMS: 7, ExposedCommMS: 2}
					if slow && rank == 1 {
						b.ComputeMS, b.StepMS = 12, 15
					}
					h.Add(encoded(b))
				}
			}
		}
		named := func() bool { _, ok := h.bottleneck(); return ok }
		least := max(leastBeats, int(2*time.Second/every))
		beats(least-1, true)
		if h.every() != every || named() {
			t.Errorf("told every %v, want %v; with %d beats a cause is named: %v", h.every(), every, least-1, named())
		}
		if beats(1, true); !named() {
			t.Errorf("every %v: %d beats of a slow rank name no cause", every, least)
		}
		if beats(int(lastly/every), false); named() {
			t.Errorf("every %v: what was ten seconds ago is named", every)
		}
	}
}

// Exchanges that were seen lately count, and those of before do not.
func TestSlowLink(t *testing.T) {
	h, now := slowedHub(t, func(_ int, b *stepStats) { b.StepMS, b.ExposedCommMS = 30, 22 })
	if c, ok := h.bottleneck(); ok {
		t.Errorf("%+v, of no exchange", c)
	}
	var all []*record.Snapshot
	for range h.last().Info.NP {
		rec := record.New(record.Config{Epoch: time.Unix(1000, 0)})
		for step := range int64(3) {
			rec.BeginStep(step)
			rec.Span(record.Forward, 0, 30e6*step, 30e6*step+4e6)
			begun := 30e6*step + 8e6
			rec.Add(&record.Event{Kind: record.PhaseKind, Phase: record.Exchange, Name: rec.Name("bucket 0"), Bucket: 0, Other: -1, Peer: -1, Sent: 220e3, Begun: begun, Done: begun + 22e6})
			rec.Span(record.Exposed, 0, begun, begun+22e6)
		}
		all = append(all, rec.Glance(512))
	}
	if whole, exchanged := h.saw(all); !whole || !exchanged {
		t.Fatal("no step was seen")
	}
	if c, ok := h.bottleneck(); !ok || c.Kind != steptrace.SlowLink || !strings.Contains(c.Text, "10 MB/s") {
		t.Errorf("%+v, %v", c, ok)
	}
	*now = now.Add(time.Minute)
	if c, ok := h.bottleneck(); ok {
		t.Errorf("%+v, of a minute ago", c)
	}
}

func TestForeign(t *testing.T) {
	at := time.Unix(1000, 0)
	var p processors
	if p.foreign() != 0 {
		t.Error("others had processors that nobody looked at")
	}
	p.samples = []sample{{at, 100, map[int]float64{1: 10, 2: 20}}, {at.Add(4 * time.Second), 110, map[int]float64{1: 12, 2: 22, 3: 2}}}
	if got := p.foreign(); got != 1 {
		t.Errorf("others had %v processors, want 1", got)
	}
	p.look(at.Add(5 * time.Second))
	for i := range 20 {
		p.look(at.Add(time.Duration(10+2*i) * time.Second))
	}
	if len(p.samples) != lastSamples {
		t.Errorf("%d samples", len(p.samples))
	}
}

// What ranks wait for each other by turns is nobody's, and what the one waits longer than the other is.
func TestTogether(t *testing.T) {
	at := time.Unix(1000, 0)
	l := &stepSampler{}
	l.exchanges = append(l.exchanges, looked{at, steptrace.Last{Waits: []steptrace.RankWait{{Rank: 0, For: 0, MS: 4}, {Rank: 0, For: 1, MS: 3}, {Rank: 1, For: 0, MS: 1}, {Rank: 1, For: 1, MS: 2}}}})
	j := steptrace.Job{Ranks: make([]steptrace.RankTimes, 2)}
	if l.addRecent(&j, at); math.Abs(j.Together-0.8) > 1e-9 {
		t.Errorf("%v of the waits are nobody's, want 0.8", j.Together)
	}
}

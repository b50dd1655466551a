package steptrace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// phase is one that a rank records in a test, in ms.
type phase struct {
	of         record.Phase
	name       string
	begun, end float64
}

// recorder is a rank's that has recorded steps, one after the other, a step earlier than epoch by its clock.
func recorder(epoch time.Time, steps ...[]phase) *record.Recorder {
	r := record.New(record.Config{Epoch: epoch, Operations: 8, Phases: 64, Open: 4, Lanes: 1, Names: 512})
	for i, all := range steps {
		r.BeginStep(int64(i))
		for _, p := range all {
			r.Add(&record.Event{Kind: record.PhaseKind, Phase: p.of, Name: r.Name(p.name), Bucket: -1, Other: -1, Peer: -1, Sent: -1, Begun: int64(p.begun * 1e6), Done: int64(p.end * 1e6)})
		}
	}
	return r
}

// more are the first events of another step, which end the one before.
var more = []phase{{record.Forward, "", 1000, 1001}}

// The wait of a rank is for the last that begins the exchange which ends first, and from then on for the exchange itself.
func TestLastStepWaits(t *testing.T) {
	epoch := time.Unix(1000, 0)
	of := func(shift float64, phases ...phase) *record.Snapshot {
		for i := range phases { // the same times by a clock that began earlier
			phases[i].begun, phases[i].end = phases[i].begun+shift, phases[i].end+shift
		}
		return recorder(epoch.Add(-time.Duration(shift*1e6)), phases, more).Glance(WholeStepEvents)
	}
	all := []*record.Snapshot{
		of(0, phase{record.Exchange, "a", 2, 12}, phase{record.Exchange, "b", 5, 20}, phase{record.Exposed, "", 6, 20}),
		of(50, phase{record.Exchange, "a", 10, 12}, phase{record.Exchange, "b", 11, 20}, phase{record.Exposed, "", 11.5, 20}),
		of(7, phase{record.Exchange, "a", 4, 12}, phase{record.Exchange, "b", 15, 20}, phase{record.Exposed, "", 16, 20}),
		nil, // a rank that is not known
	}
	last, ok := LastStep(all)
	got := last.Waits
	want := []RankWait{
		{0, 0, 7}, {0, 1, 4}, {0, 2, 3}, // 6 to 10 for rank 1, to 12 a, to 15 for rank 2, to 20 b
		{1, 1, 5.5}, {1, 2, 3}, // to 12 a, to 15 for rank 2, to 20 b
		{2, 2, 4},
	}
	if !ok || last.Done != 0 || len(got) != len(want) {
		t.Fatalf("%+v, %v", last, ok)
	}
	for i, w := range want {
		if g := got[i]; g.Rank != w.Rank || g.For != w.For || math.Abs(g.MS-w.MS) > 1e-6 {
			t.Errorf("%+v, want %+v", g, w)
		}
	}
	for name, few := range map[string][]*record.Snapshot{
		"none": nil, "one": all[:1], "nothing": {nil, nil}, "no exchange": {of(0, phase{record.Forward, "", 1, 2}), of(0, phase{record.Forward, "", 1, 2})},
		"apart": {all[0], recorder(epoch, nil, more).Glance(WholeStepEvents)},
	} {
		if got, ok := LastStep(few); ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Waits of random steps are as a naive twin finds them, which looks at every microsecond.
func TestLastStepWaitsByMoments(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	epoch := time.Unix(1000, 0)
	for range 200 {
		ranks, buckets := 2+rng.IntN(4), 1+rng.IntN(4)
		begun := make([][]float64, ranks)
		exposed := make([][2]float64, ranks)
		ends := make([]float64, buckets)
		for k := range ends {
			for r := range begun {
				begun[r] = append(begun[r], float64(rng.IntN(60))/1e3)
				ends[k] = max(ends[k], begun[r][k])
			}
			ends[k] += float64(1+rng.IntN(30)) / 1e3
		}
		var all []*record.Snapshot
		for r := range begun {
			var phases []phase
			for k, b := range begun[r] {
				phases = append(phases, phase{record.Exchange, fmt.Sprint(k), b, ends[k]})
			}
			exposed[r] = [2]float64{slices.Max(begun[r]), slices.Max(ends)} // a rank has begun all of its own
			phases = append(phases, phase{record.Exposed, "", exposed[r][0], exposed[r][1]})
			all = append(all, recorder(epoch, phases, more).Glance(WholeStepEvents))
		}
		got, ok := LastStep(all)
		if !ok {
			t.Fatal("nothing is seen")
		}
		want := map[[2]int]float64{}
		for r := range begun {
			for at := exposed[r][0] + 0.0005; at < exposed[r][1]; at += 0.001 {
				first := -1
				for k, end := range ends {
					if end > at && (first < 0 || end < ends[first]) {
						first = k
					}
				}
				by := r
				for o := range begun {
					if o != r && begun[o][first] > at && (by == r || begun[o][first] > begun[by][first]) {
						by = o
					}
				}
				want[[2]int{r, by}] += 0.001
			}
		}
		for _, w := range got.Waits {
			at := [2]int{w.Rank, w.For}
			if math.Abs(w.MS-want[at]) > 1e-4 {
				t.Fatalf("%+v, want %v: begun %v, ends %v, exposed %v", w, want[at], begun, ends, exposed)
			}
			delete(want, at)
		}
		for at, ms := range want {
			if ms > 1e-4 {
				t.Fatalf("rank %d waits for %d for %v ms, which is not seen", at[0], at[1], ms)
			}
		}
	}
}

// A step is shown when it is whole: its first events are there, and the next one has begun.
func TestStepOf(t *testing.T) {
	step := []phase{{record.Data, "", 8, 9}, {record.Forward, "", 10, 12}, {record.Compress, "bucket 0: x", 13, 14}, {record.Backward, "", 12, 16}, {record.Exchange, "bucket 0: x", 14, 20}, {record.Update, "", 20, 21}, {record.Evaluation, "", 22, 90}}
	r := recorder(time.Unix(5, 0), step, step, more)
	got, ok := StepOf(3, r.Glance(WholeStepEvents))
	want := []Bar{{"data wait", "", -2, -1, 0}, {"forward", "", 0, 2, 0}, {"backward", "", 2, 6, 0}, {"compress", "bucket 0: x", 3, 4, 0}, {"exchange", "bucket 0: x", 4, 10, 0}, {"update", "", 10, 11, 0}}
	if !ok || got.Rank != 3 || got.Done != 2 || !slices.Equal(got.Bars, want) {
		t.Errorf("%+v, %v", got, ok)
	}
	for n := range 2 + len(step) { // the first events of the step may lie before what was read
		if _, ok := StepOf(0, r.Glance(n)); ok {
			t.Errorf("a step is whole in %d events", n)
		}
	}
	if got, ok := StepOf(0, r.Glance(2+len(step))); !ok || got.Done != 2 {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := StepOf(0, nil); ok {
		t.Error("nothing is a step")
	}
	if _, ok := StepOf(0, recorder(time.Unix(5, 0), step[6:], more).Glance(9)); ok {
		t.Error("an evaluation is a step")
	}
}

// An exchange takes from when all have begun it and the one before it has ended.
func TestLastStepExchanges(t *testing.T) {
	epoch := time.Unix(1000, 0)
	a := recorder(epoch, []phase{{record.Exchange, "a", 2, 12}, {record.Exchange, "b", 5, 20}, {record.Exchange, "c", 6, 20.5}, {record.Exposed, "", 6, 21}}, more)
	b := recorder(epoch, []phase{{record.Exchange, "a", 10, 13}, {record.Exchange, "b", 11, 20}, {record.Exchange, "c", 18, 20.5}, {record.Exposed, "", 11.5, 21}}, more)
	got, _ := LastStep([]*record.Snapshot{a.Glance(WholeStepEvents), nil, b.Glance(WholeStepEvents)})
	want := []ExchangeTime{{0, 2}, {0, 8}, {0, 0.5}, {0, 3}, {0, 7}, {0, 0.5}}
	if !slices.Equal(got.Exchanges, want) {
		t.Errorf("%v, want %v", got.Exchanges, want)
	}
	if got, ok := LastStep([]*record.Snapshot{a.Glance(WholeStepEvents)}); ok || got.Exchanges != nil {
		t.Errorf("%v of one rank", got)
	}
}

package steptrace

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

// drawn is a timeline of whole numbers in which ranks do what they never would.
func drawn(r *rand.Rand) *Timeline {
	t := &Timeline{names: []string{"", "a", "b", "data"}}
	for range 1 + r.IntN(4) {
		rank := Rank{ClockError: r.Int64N(3), LeftOut: max(0, r.Int64N(5)-3)}
		for range r.IntN(14) {
			start := 3 + r.Int64N(40)
			s := Span{Start: start, End: start + r.Int64N(12), Step: r.Int64N(3) - 1, Bytes: r.Int64N(50) - 1, name: 1 + r.Uint32N(2), Track: tracks[r.IntN(len(tracks))]}
			rank.Spans = append(rank.Spans, s)
		}
		slices.SortStableFunc(rank.Spans, func(a, b Span) int { return int(a.Start - b.Start) })
		t.Ranks = append(t.Ranks, rank)
	}
	return t
}

// tick is what a rank does in the time from at to at+1, found by looking at all of its spans.
func (r *Rank) tick(at int64) (k spanKind, span int, exchanging bool) {
	k, span = kindIdle, -1
	for i, s := range r.Spans {
		if s.Start > at || s.End <= at {
			continue
		}
		kind := kindOf(s.Track)
		exchanging = exchanging || kind == kindExchange
		switch {
		case kind < k, kind == k && kind != kindExchange, kind == k && s.End < r.Spans[span].End:
			k, span = kind, i
		}
	}
	return k, span, exchanging
}

// naive is a summary found tick by tick.
type naive struct {
	*Timeline
	lo, hi int64
}

func newNaive(t *Timeline) *naive {
	n := &naive{Timeline: t, lo: math.MaxInt64}
	for _, r := range t.Ranks {
		for _, s := range r.Spans {
			n.lo, n.hi = min(n.lo, s.Start), max(n.hi, s.End)
		}
	}
	if n.lo == math.MaxInt64 {
		n.lo = 0
	}
	for _, r := range t.Ranks {
		last := int64(0)
		for _, s := range r.Spans {
			last = max(last, s.End)
		}
		if r.LeftOut > 0 {
			n.hi = min(n.hi, last)
		}
	}
	n.hi = max(n.hi, n.lo)
	return n
}

// began is since when a rank does what it does before a time.
func (n *naive) began(rank int, t int64) int64 {
	k, span, _ := n.Ranks[rank].tick(t - 1)
	for t > n.lo {
		if k2, span2, _ := n.Ranks[rank].tick(t - 1); k2 != k || span2 != span {
			return t
		}
		t--
	}
	return t
}

// lastStarter is who began the same exchange last: the same one of those that a step has of a name.
func (n *naive) lastStarter(rank, span int) (who int, start int64) {
	s := n.Ranks[rank].Spans[span]
	nth := func(r Rank, until int) (count int) {
		for _, o := range r.Spans[:until] {
			if o.Track == record.Exchange && o.Step == s.Step && o.name == s.name {
				count++
			}
		}
		return count
	}
	who, start = -1, -1
	for i, r := range n.Ranks {
		for j, o := range r.Spans {
			if o.Track == record.Exchange && o.Step == s.Step && o.name == s.name && nth(r, j) == nth(n.Ranks[rank], span) && o.Start > start {
				who, start = i, o.Start
			}
		}
	}
	return who, start
}

// path goes back tick by tick, and returns the ticks by rank and kind.
func (n *naive) path() (spent map[int][kinds]int64) {
	spent = map[int][kinds]int64{}
	rank, busy := 0, int64(-1)
	for i := range n.Ranks {
		for t := n.hi; t > n.lo; t-- {
			if k, _, _ := n.Ranks[i].tick(t - 1); k != kindIdle {
				if t > busy {
					rank, busy = i, t
				}
				break
			}
		}
	}
	for t := n.hi; t > n.lo; {
		k, span, _ := n.Ranks[rank].tick(t - 1)
		from, on := n.began(rank, t), rank
		if k == kindExchange {
			who, start := n.lastStarter(rank, span)
			if who != rank && start > from+n.Ranks[rank].ClockError+n.Ranks[who].ClockError && start < t {
				from, rank = start, who
			}
		}
		v := spent[on]
		v[k] += t - from
		spent[on] = v
		t = from
	}
	return spent
}

// Whatever ranks do, shares, overlap and critical path are those that looking at every tick finds.
func TestSummaryIsThatOfItsNaiveTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 27))
	for range 3000 {
		line := drawn(r)
		n, s := newNaive(line), Summarise(line)
		whole := float64(n.hi - n.lo)
		same := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-9 {
				t.Fatalf("%s is %v, want %v, of %+v", what, got, want, line)
			}
		}
		same("the wall time", s.WallMS*1e6, whole)
		for rank := range line.Ranks {
			var times [kinds]float64
			exchange, both := 0., 0.
			for at := n.lo; at < n.hi; at++ {
				k, _, exchanging := line.Ranks[rank].tick(at)
				times[k]++
				if exchanging {
					exchange++
					if k == kindCompute {
						both++
					}
				}
			}
			for k := range kinds {
				same(fmt.Sprint(k, " of rank ", rank), s.Ranks[rank].Of(k), times[k]/max(1, whole))
			}
			same("overlap", s.Ranks[rank].Overlap, both/max(1, exchange))
		}
		onPath, ticks := n.path(), int64(0)
		var byKind [kinds]int64
		for rank := range line.Ranks {
			own := int64(0)
			for k, v := range onPath[rank] {
				byKind[k] += v
				own += v
			}
			ticks += own
			same("a rank's share of the path", s.Path.Ranks[rank], float64(own)/max(1, whole))
		}
		if float64(ticks) != whole {
			t.Fatalf("the naive path has %d ticks of %v", ticks, whole)
		}
		for k := range kinds {
			same("the path's "+spanKind(k).String(), s.Path.Of(spanKind(k)), float64(byKind[k])/max(1, whole))
		}
	}
}

// scene is two ranks of which the second reads its data slowly: the first waits for it.
func scene() *Timeline {
	ms := func(x float64) int64 { return int64(x * 1e6) }
	span := func(track record.Phase, name uint32, step int64, from, to float64) Span {
		s := Span{Start: ms(from), End: ms(to), Track: track, name: name, Step: step, Bytes: -1}
		if track == record.Exchange {
			s.how, s.Bytes = 3, 4096
		}
		return s
	}
	return &Timeline{names: []string{"", "bucket 0", "data", "ring", "x"}, Ranks: []Rank{
		{ClockError: 100, Spans: []Span{
			span(record.Data, 2, 0, 0, 1), span(record.Forward, 4, 0, 1, 3), span(record.Backward, 4, 0, 3, 8), span(record.Exchange, 1, 0, 6, 17), span(record.Update, 4, 0, 17, 18),
		}},
		{ClockError: 100, Spans: []Span{
			span(record.Data, 2, 0, 0, 9), span(record.Forward, 4, 0, 9, 11), span(record.Backward, 4, 0, 11, 16), span(record.Exchange, 1, 0, 14, 17), span(record.Update, 4, 0, 17, 18),
		}},
	}}
}

func TestWaitsNameTheirCause(t *testing.T) {
	s := Summarise(scene())
	want := []Wait{
		{Rank: 1, Step: 0, StartMS: 0, WaitMS: 9, For: "data", Cause: NoData, BytesSent: -1, LateRank: -1},
		{Rank: 0, Step: 0, StartMS: 8, WaitMS: 9, For: "bucket 0", Cause: LateRank, Algorithm: "ring", BytesSent: 4096, LateRank: 1, LateMS: 6, LateIn: "backward", LateInMS: 3},
		{Rank: 1, Step: 0, StartMS: 16, WaitMS: 1, For: "bucket 0", Cause: Transfer, Algorithm: "ring", BytesSent: 4096, LateRank: -1},
		{Rank: 0, Step: 0, StartMS: 0, WaitMS: 1, For: "data", Cause: NoData, BytesSent: -1, LateRank: -1},
	}
	slices.SortStableFunc(s.Waits, func(a, b Wait) int { return b.Rank - a.Rank })
	slices.SortStableFunc(want, func(a, b Wait) int { return b.Rank - a.Rank })
	for i := range want {
		if len(s.Waits) != len(want) || s.Waits[i] != want[i] {
			t.Fatalf("waits\n%+v, want\n%+v", s.Waits, want)
		}
	}
	if p := s.Path; p.Ranks[1] < 0.7 || p.Changes != 1 || p.Parts[0] != (PathPart{1, "data wait", 0.5}) {
		t.Errorf("the critical path is %+v", p)
	}
	if s.Steps != 1 || s.StepMS != 18 || s.Ranks[0].Overlap != 2./11 || s.Ranks[0].StepBytesSent != 4096 || s.Ranks[1].TracksMS["data wait"] != 9 {
		t.Errorf("%+v", s)
	}
}

// A wait that is shorter than clocks may be wrong is nobody's fault.
func TestClocksThatMayBeWrongBlameNobody(t *testing.T) {
	line := scene()
	line.Ranks[1].ClockError = 7e6
	for _, w := range Summarise(line).Waits {
		if w.LateRank >= 0 {
			t.Errorf("%+v", w)
		}
	}
}

func TestLongestWaitsAreKept(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 27))
	for range 300 {
		a := analyse(drawn(r))
		var all []float64
		for _, pieces := range a.pieces {
			for _, p := range pieces {
				if p.kind == kindExchange || p.kind == kindData {
					all = append(all, ms(p.end-p.start))
				}
			}
		}
		slices.Sort(all)
		slices.Reverse(all)
		got := a.waits()
		if len(got) != min(shown, len(all)) {
			t.Fatalf("%d waits of %d", len(got), len(all))
		}
		for i, w := range got {
			if w.WaitMS != all[i] {
				t.Fatalf("wait %d is of %v ms, want %v", i, w.WaitMS, all[i])
			}
		}
	}
}

func TestCompare(t *testing.T) {
	a := Summarise(scene())
	slow := scene()
	for i := range slow.Ranks {
		for j := range slow.Ranks[i].Spans {
			slow.Ranks[i].Spans[j].Start *= 2
			slow.Ranks[i].Spans[j].End *= 2
		}
	}
	rows := Compare(a, Summarise(slow))
	seen := map[string]bool{}
	for _, c := range rows {
		ratio := 2.
		if c.Unit != "ms" {
			ratio = 1
		}
		if seen[c.Name] = true; math.Abs(c.B-ratio*c.A) > 1e-9 {
			t.Errorf("%+v: want %v times as much", c, ratio)
		}
	}
	if !seen["step"] || !seen["overlap"] || !seen["exchange"] || len(seen) != len(rows) {
		t.Errorf("%+v", rows)
	}
}

func BenchmarkSummarise(b *testing.B) {
	var file bytes.Buffer
	write(b, &file, 4, 2000)
	line, err := Read(&file)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Summarise(line)
	}
}

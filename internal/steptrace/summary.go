package steptrace

import (
	"cmp"
	"slices"
)

// Shares are the shares of a time by use. The shares add up to 1, or 0 for a time of 0.
type Shares struct {
	Compute  float64 `json:"computation"`
	Exchange float64 `json:"exchange"` // exposed part only
	Data     float64 `json:"data_wait"`
	Other    float64 `json:"evaluation_checkpoint"`
	Idle     float64 `json:"idle"`
}

// Of returns the share of one kind of span.
func (s Shares) Of(k spanKind) float64 {
	return [...]float64{kindCompute: s.Compute, kindData: s.Data, kindOther: s.Other, kindExchange: s.Exchange, kindIdle: s.Idle}[k]
}

func sharesOf(t [kinds]int64) Shares {
	whole := float64(0)
	for _, v := range t {
		whole += float64(v)
	}
	whole = max(whole, 1)
	of := func(k spanKind) float64 { return float64(t[k]) / whole }
	return Shares{Compute: of(kindCompute), Exchange: of(kindExchange), Data: of(kindData), Other: of(kindOther), Idle: of(kindIdle)}
}

// Summary is the result of analysing a timeline. Times are in milliseconds.
type Summary struct {
	// WallMS is the time recorded by all ranks, Steps the number of steps in that time, and StepMS
	// the time per step without evaluations and checkpoints.
	WallMS float64 `json:"wall_ms"`
	Steps  int     `json:"steps"`
	StepMS float64 `json:"step_ms"`
	// LeftOut reports whether spans were dropped: the summary covers the time before.
	LeftOut bool `json:"spans_left_out"`
	// Ranks are all ranks in order, and Mean is their mean.
	Ranks []RankSummary `json:"ranks"`
	Mean  RankSummary   `json:"mean"`
	Path  Path          `json:"critical_path"`
	// Waits are the longest waits of all ranks, longest first.
	Waits []Wait `json:"longest_waits"`
}

// RankSummary is the use of a rank's time.
type RankSummary struct {
	Rank int `json:"rank"` // mean: -1
	Shares
	// Overlap is the share of computation in the time with exchanges; 0 without exchanges.
	Overlap float64 `json:"overlap"`
	// StepBytesSent is the number of bytes sent per step.
	StepBytesSent float64 `json:"step_bytes_sent"`
	// TracksMS is the time per step covered by each track's spans; nested spans count twice.
	TracksMS map[string]float64 `json:"tracks_ms"`
}

// shown is the number of waits in a summary.
const shown = 5

// analysis is the intermediate result for a timeline.
type analysis struct {
	*Timeline
	lo, hi int64
	pieces [][]piece // pieces by rank
	hidden []hidden
	starts map[exchangeKey]latest
	keys   []map[int]exchangeKey // keys by rank and span
}

// analyse divides the ranks' time into pieces and finds the rank that began each exchange last.
func analyse(t *Timeline) *analysis {
	a := &analysis{Timeline: t}
	a.lo, a.hi = t.window()
	for i := range t.Ranks {
		p, h := t.Ranks[i].pieces(a.lo, a.hi)
		a.pieces, a.hidden = append(a.pieces, p), append(a.hidden, h)
	}
	a.match()
	return a
}

// Summarise analyses a timeline. Cost: O(n log n) for n spans.
func Summarise(t *Timeline) Summary {
	a := analyse(t)
	s := Summary{WallMS: ms(a.hi - a.lo), Steps: a.steps(), Mean: RankSummary{Rank: -1, TracksMS: map[string]float64{}}}
	per := float64(max(1, s.Steps))
	other := float64(0)
	for i, r := range t.Ranks {
		s.LeftOut = s.LeftOut || r.LeftOut > 0
		one := a.rank(i, per)
		s.Ranks = append(s.Ranks, one)
		other += one.Other * s.WallMS / float64(len(t.Ranks))
		s.Mean.add(one, float64(len(t.Ranks)))
	}
	if s.Steps > 0 {
		s.StepMS = (s.WallMS - other) / per
	}
	s.Path = a.path()
	s.Waits = a.waits()
	return s
}

// ms converts nanoseconds to milliseconds for output.
func ms(ns int64) float64 { return float64(ns) / 1e6 }

func (m *RankSummary) add(r RankSummary, n float64) {
	m.Compute += r.Compute / n
	m.Exchange += r.Exchange / n
	m.Data += r.Data / n
	m.Other += r.Other / n
	m.Idle += r.Idle / n
	m.Overlap += r.Overlap / n
	m.StepBytesSent += r.StepBytesSent / n
	for name, v := range r.TracksMS {
		m.TracksMS[name] += v / n
	}
}

// steps returns the number of steps within the window, of the rank with the most.
func (a *analysis) steps() (most int) {
	for _, r := range a.Ranks {
		var steps []int64
		for _, s := range r.Spans {
			if s.Step >= 0 && s.Start < a.hi {
				steps = append(steps, s.Step)
			}
		}
		slices.Sort(steps)
		most = max(most, len(slices.Compact(steps)))
	}
	return most
}

func (a *analysis) rank(i int, steps float64) RankSummary {
	var times [kinds]int64
	for _, p := range a.pieces[i] {
		times[p.kind] += p.end - p.start
	}
	out := RankSummary{Rank: i, Shares: sharesOf(times), TracksMS: map[string]float64{}}
	if h := a.hidden[i]; h.exchange > 0 {
		out.Overlap = float64(h.computing) / float64(h.exchange)
	}
	// Spans of a track, such as exchanges, may overlap, and are sorted by start: time counts once.
	covered := make([]int64, len(tracks)) // end of the time covered by each track's spans
	for _, s := range a.Ranks[i].Spans {
		if s.Start >= a.hi {
			break
		}
		end := min(s.End, a.hi)
		if from := max(s.Start, covered[s.Track]); from < end {
			out.TracksMS[s.Track.String()] += ms(end-from) / steps
			covered[s.Track] = end
		}
		if s.Bytes > 0 {
			out.StepBytesSent += float64(s.Bytes) / steps
		}
	}
	return out
}

// exchangeKey identifies an exchange on all ranks. again numbers exchanges of equal step and name.
type exchangeKey struct {
	step  int64
	name  uint32
	again int32
}

// latest is the rank that began an exchange last, with the time.
type latest struct {
	rank  int
	start int64
}

// match finds the rank that began each exchange last.
func (a *analysis) match() {
	a.starts = map[exchangeKey]latest{}
	for rank, r := range a.Ranks {
		again, keys := map[exchangeKey]int32{}, map[int]exchangeKey{}
		for i, s := range r.Spans {
			if kindOf(s.Track) != kindExchange {
				continue
			}
			key := exchangeKey{step: s.Step, name: s.name}
			again[key]++
			key.again = again[key]
			keys[i] = key
			if l, ok := a.starts[key]; !ok || s.Start > l.start {
				a.starts[key] = latest{rank, s.Start}
			}
		}
		a.keys = append(a.keys, keys)
	}
}

// late returns the rank that began a piece's exchange last, if that is another rank and its begin
// is later than the begin of the wait by more than the clock error.
func (a *analysis) late(rank int, p piece) (latest, bool) {
	if p.kind != kindExchange {
		return latest{}, false
	}
	l := a.starts[a.keys[rank][p.span]]
	wrong := a.Ranks[rank].ClockError + a.Ranks[l.rank].ClockError
	return l, l.rank != rank && p.start+wrong < l.start && l.start < p.end
}

// Path is the critical path: the chain of dependent activities over all ranks that determines the
// total time. Activities outside the path could have taken longer without delaying the job.
type Path struct {
	// Shares are shares of the path's time.
	Shares
	// Ranks are the ranks' shares of the path, by rank, and Changes its changes of rank.
	Ranks   []float64 `json:"ranks"`
	Changes int       `json:"changes"`
	// Parts are the parts of the path, largest first.
	Parts []PathPart `json:"parts"`
}

// PathPart is a rank's time on the path in a track, "" while idle.
type PathPart struct {
	Rank  int     `json:"rank"`
	Track string  `json:"track"`
	Share float64 `json:"share"`
}

type leg struct {
	rank int
	piece
}

// legs returns the critical path from the end to the beginning. The path changes to another rank at
// the begin of an exchange that the other rank began late.
func (a *analysis) legs() (out []leg) {
	if len(a.Ranks) == 0 {
		return nil
	}
	rank := 0
	for i := range a.Ranks {
		if a.busyUntil(i) > a.busyUntil(rank) {
			rank = i
		}
	}
	// The loop ends: each leg is positive, and begins at one of finitely many begins.
	for t := a.hi; t > a.lo; {
		all := a.pieces[rank]
		at, _ := slices.BinarySearchFunc(all, t, func(p piece, t int64) int { return cmp.Compare(p.end, t) })
		p := all[at]
		p.end = t // the path may enter a piece in the middle, at another rank's wait
		on := rank
		if l, late := a.late(rank, p); late {
			p.start, rank = l.start, l.rank
		}
		out = append(out, leg{on, p})
		t = p.start
	}
	return out
}

// busyUntil returns the end of a rank's last piece that is not idle.
func (a *analysis) busyUntil(rank int) int64 {
	for _, p := range slices.Backward(a.pieces[rank]) {
		if p.kind != kindIdle {
			return p.end
		}
	}
	return a.lo
}

func (a *analysis) track(rank int, p piece) string {
	if p.span < 0 {
		return ""
	}
	return a.Ranks[rank].Spans[p.span].Track.String()
}

// path sums the legs by rank and track. Their times add up to the window: the path has no gaps.
func (a *analysis) path() Path {
	type key struct {
		rank  int
		track string
	}
	whole := max(1, float64(a.hi-a.lo))
	var times [kinds]int64
	parts := map[key]int64{}
	out := Path{Ranks: make([]float64, len(a.Ranks))}
	before := -1
	for _, l := range a.legs() {
		spent := l.end - l.start
		times[l.kind] += spent
		parts[key{l.rank, a.track(l.rank, l.piece)}] += spent
		out.Ranks[l.rank] += float64(spent) / whole
		if before >= 0 && l.rank != before {
			out.Changes++
		}
		before = l.rank
	}
	out.Shares = sharesOf(times)
	for k, spent := range parts {
		out.Parts = append(out.Parts, PathPart{k.rank, k.track, float64(spent) / whole})
	}
	slices.SortFunc(out.Parts, func(x, y PathPart) int {
		return cmp.Or(cmp.Compare(y.Share, x.Share), cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Track, y.Track))
	})
	return out
}

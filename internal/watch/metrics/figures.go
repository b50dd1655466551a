package metrics

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// The words of a rank's figures: a head, and those of each row in the order of the table.
const (
	magic   = 0x434952544d4e4952 // "RINMTRIC"
	version = 2

	headMagic = iota - 2 // written last
	headVersion
	headRank
	headSize // ranks of the job
	headProcess
	headRole  // a place in counting
	headWords = 8
)

// maxRanks bounds what is believed of a file.
const maxRanks = 1 << 16

// counting are the roles whose processes count in words of a board.
var counting = []Role{OfRank, OfAggregator}

// RankMetrics are those of one rank, or of a server that sums. Methods may be called from any
// goroutine, and on nil, which does nothing.
type RankMetrics struct {
	role  Role
	words []uint64 // touched by atomics alone
	at    [ids]int // where each row's begin
	size  int      // ranks of the job
	done  func() error
}

// layout is where the rows of a role's figures begin, and how many words there are.
func layout(role Role, size int) (at [ids]int, words int) {
	words = headWords
	for id := range ids {
		if table[id].Role == role {
			at[id] = words
			words += table[id].words(size)
		}
	}
	return at, words
}

// newFigures begins figures in words of a layout, which are forgotten.
func newFigures(role Role, words []uint64, rank, size, process int) *RankMetrics {
	f := &RankMetrics{role: role, words: words, size: size}
	f.at, _ = layout(role, size)
	atomic.StoreUint64(&words[headMagic], 0)
	for i := range words {
		atomic.StoreUint64(&words[i], 0)
	}
	for id := range ids {
		if r := &table[id]; r.Role == role && r.unit == floats {
			for i := range r.words(size) {
				f.Set(id, i, math.NaN())
			}
		}
	}
	for i, v := range map[int]int{headVersion: version, headRank: rank, headSize: size, headProcess: process, headRole: slices.Index(counting, role)} {
		atomic.StoreUint64(&words[i], uint64(v))
	}
	atomic.StoreUint64(&words[headMagic], magic)
	return f
}

// New makes figures of a rank in a job of so many that only this process reads.
func New(rank, size int) *RankMetrics {
	_, words := layout(OfRank, size)
	return newFigures(OfRank, make([]uint64, words), rank, size, 0)
}

// Add counts n more of a row, at a place of its label, 0 where it has none; of times n is nanoseconds.
func (f *RankMetrics) Add(id ID, label int, n int64) {
	if f != nil && n > 0 {
		atomic.AddUint64(&f.words[f.at[id]+label], uint64(n))
	}
}

// Spent counts a time of a row.
func (f *RankMetrics) Spent(id ID, label int, d time.Duration) { f.Add(id, label, int64(d)) }

// Put says what a counter that is kept elsewhere has come to, or an integer gauge is.
func (f *RankMetrics) Put(id ID, label int, n int64) {
	if f != nil {
		atomic.StoreUint64(&f.words[f.at[id]+label], uint64(n))
	}
}

// Set says what a gauge is that is no integer.
func (f *RankMetrics) Set(id ID, label int, v float64) {
	if f != nil {
		atomic.StoreUint64(&f.words[f.at[id]+label], math.Float64bits(v))
	}
}

// Observe counts a duration in a histogram.
func (f *RankMetrics) Observe(id ID, d time.Duration) {
	if f == nil {
		return
	}
	f.Add(id, bucket(d), 1)
	f.Add(id, len(Bounds)+1, int64(d))
}

// Step is what a rank tells after each of its steps.
type Step struct {
	Whole   time.Duration
	Samples int
	Epoch   int // from 1
	Loss    float64
	Density float64
	// Overlap is the share of the time of exchanges that backward hid; NaN: there were none.
	Overlap float64
	// Phases are the parts of Whole, by place.
	Phases [UpdatePhase + 1]time.Duration
}

// Step counts a step: some 13 atomic operations.
func (f *RankMetrics) Step(s Step) {
	if f == nil {
		return
	}
	f.Observe(StepDuration, s.Whole)
	f.Add(Samples, 0, int64(s.Samples))
	f.Put(Epoch, 0, int64(s.Epoch))
	f.Set(Loss, 0, s.Loss)
	f.Set(Density, 0, s.Density)
	f.Set(Overlap, 0, s.Overlap)
	for i, d := range s.Phases {
		f.Spent(PhaseTime, i, d)
	}
}

// Close says that the rank has ended. Its figures stay for who reads them.
func (f *RankMetrics) Close() error {
	if f == nil || f.done == nil {
		return nil
	}
	return f.done()
}

// Value is one of a row.
type Value struct {
	ID    ID
	Label string // of the row's label; ""
	Value float64
	// Buckets are the cumulative counts of a histogram by upper bound, and Count that of all; Value is the sum.
	Buckets map[float64]uint64
	Count   uint64
}

// Values are the figures at this moment: of peers those that were waited for, of gauges those that are known.
func (f *RankMetrics) Values() (out []Value) {
	for _, id := range OfRole(f.role) {
		r := &table[id]
		if id == Up || id == SumUp { // it is not the process that says so
			continue
		}
		if r.Type == Histogram {
			out = append(out, f.histogram(id))
			continue
		}
		for i := range r.words(f.size) {
			v := Value{ID: id, Value: f.value(id, i)}
			if r.Label != "" {
				v.Label = r.value(i)
			}
			if r.ofPeer && v.Value == 0 || math.IsNaN(v.Value) || id == LastHeartbeat && v.Value == 0 {
				continue
			}
			out = append(out, v)
		}
	}
	return out
}

func (f *RankMetrics) value(id ID, label int) float64 {
	w := atomic.LoadUint64(&f.words[f.at[id]+label])
	switch table[id].unit {
	case floats:
		return math.Float64frombits(w)
	case nanoseconds:
		return float64(w) / 1e9
	}
	return float64(w)
}

func (f *RankMetrics) histogram(id ID) Value {
	v := Value{ID: id, Buckets: map[float64]uint64{}, Value: f.value(id, len(Bounds)+1)}
	for i := range len(Bounds) + 1 {
		v.Count += atomic.LoadUint64(&f.words[f.at[id]+i])
		if i < len(Bounds) {
			v.Buckets[Bounds[i]] = v.Count
		}
	}
	return v
}

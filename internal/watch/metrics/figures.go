package metrics

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// The words of a process's metrics: a head, and the words of each row in table order.
const (
	magic   = 0x434952544d4e4952 // "RINMTRIC"
	version = 2

	headMagic = iota - 2 // written last
	headVersion
	headRank
	headSize // ranks of the job
	headProcess
	headRole  // index in counting
	headWords = 8
)

// maxRanks limits the world size accepted from a file.
const maxRanks = 1 << 16

// counting are the roles with metrics in files.
var counting = []Role{OfRank, OfAggregator}

// RankMetrics are the metrics of a rank or aggregation server. The methods are safe for concurrent
// use, and a nil RankMetrics ignores updates.
type RankMetrics struct {
	role  Role
	words []uint64 // accessed by atomics only
	at    [ids]int // start of each row
	size  int      // ranks of the job
	done  func() error
}

// layout returns the start of each of a role's rows, and the number of words.
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

// New returns the metrics of a rank in memory of this process only.
func New(rank, size int) *RankMetrics {
	_, words := layout(OfRank, size)
	return newFigures(OfRank, make([]uint64, words), rank, size, 0)
}

// Add adds n, in ns for times, to a counter at the index of its label, 0 without a label.
func (f *RankMetrics) Add(id ID, label int, n int64) {
	if f != nil && n > 0 {
		atomic.AddUint64(&f.words[f.at[id]+label], uint64(n))
	}
}

// Spent adds a duration to a time.
func (f *RankMetrics) Spent(id ID, label int, d time.Duration) { f.Add(id, label, int64(d)) }

// Put sets a counter that is maintained elsewhere, or an integer gauge.
func (f *RankMetrics) Put(id ID, label int, n int64) {
	if f != nil {
		atomic.StoreUint64(&f.words[f.at[id]+label], uint64(n))
	}
}

// Set sets a floating-point gauge.
func (f *RankMetrics) Set(id ID, label int, v float64) {
	if f != nil {
		atomic.StoreUint64(&f.words[f.at[id]+label], math.Float64bits(v))
	}
}

// Observe adds a duration to a histogram.
func (f *RankMetrics) Observe(id ID, d time.Duration) {
	if f == nil {
		return
	}
	f.Add(id, bucket(d), 1)
	f.Add(id, len(Bounds)+1, int64(d))
}

// Step is a rank's report after each step.
type Step struct {
	Whole   time.Duration
	Samples int
	Epoch   int // numbered from 1
	Loss    float64
	Density float64
	// Overlap is the share of the exchange time hidden by backward; NaN without exchanges.
	Overlap float64
	// Phases are the durations of the phases of the step, which add up to Whole.
	Phases [UpdatePhase + 1]time.Duration
}

// Step records a step: some 13 atomic operations.
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

// Close marks the rank as ended. The values stay readable.
func (f *RankMetrics) Close() error {
	if f == nil || f.done == nil {
		return nil
	}
	return f.done()
}

// Value is a value of a metric.
type Value struct {
	ID    ID
	Label string // value of the row's label, or ""
	Value float64
	// Buckets are a histogram's cumulative counts by upper bound, Count the total, Value the sum.
	Buckets map[float64]uint64
	Count   uint64
}

// Values returns the current metrics, without peers that were never awaited and unknown gauges.
func (f *RankMetrics) Values() (out []Value) {
	for _, id := range OfRole(f.role) {
		r := &table[id]
		if id == Up || id == AggregatorUp { // set by readers, not by the process
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

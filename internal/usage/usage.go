// Package usage says what this process takes of the machine: memory, processor, and
// what of these Go's garbage collector costs.
package usage

import (
	"math"
	"runtime/metrics"
)

// Resources are what the process has taken of the machine since it began. What the system or the
// runtime does not say is 0.
type Resources struct {
	ResidentBytes     int64   `json:"resident_bytes"`
	ResidentPeakBytes int64   `json:"resident_peak_bytes"`
	CPUSeconds        float64 `json:"cpu_s"` // of all its threads, the system's work for it included
	// GCSeconds are those of them that the garbage collector took, by the runtime's
	// own estimate, brought up to date at the end of each of its cycles.
	GCSeconds float64 `json:"gc_cpu_s"`
	GCCycles  uint64  `json:"gc_cycles"`
	// GCPauseUS is the longest time for which the collector stopped everything, to
	// within a sixth, rounded up.
	GCPauseUS float64 `json:"gc_longest_pause_us"`
	HeapBytes uint64  `json:"heap_bytes"` // of objects; what is mapped outside the heap is in ResidentBytes alone
	Allocs    uint64  `json:"allocs"`     // objects
}

// names are of the runtime's metrics, in the order in which Read takes them.
var names = [...]string{
	"/cpu/classes/gc/total:cpu-seconds", "/gc/cycles/total:gc-cycles", "/sched/pauses/total/gc:seconds",
	"/memory/classes/heap/objects:bytes", "/gc/heap/allocs:objects",
}

// Read returns them at this moment. It takes some 100 µs, most of them to read
// what the system says, and stops nothing.
func Read() Resources {
	var samples [len(names)]metrics.Sample
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples[:])
	f := Resources{CPUSeconds: cpuSeconds()}
	f.ResidentBytes, f.ResidentPeakBytes = resident()
	if v := samples[0].Value; v.Kind() == metrics.KindFloat64 {
		f.GCSeconds = v.Float64()
	}
	if v := samples[2].Value; v.Kind() == metrics.KindFloat64Histogram {
		f.GCPauseUS = 1e6 * longest(v.Float64Histogram())
	}
	for i, to := range map[int]*uint64{1: &f.GCCycles, 3: &f.HeapBytes, 4: &f.Allocs} {
		if v := samples[i].Value; v.Kind() == metrics.KindUint64 {
			*to = v.Uint64()
		}
	}
	return f
}

// longest is the upper end of the highest bucket that is not empty, 0 where all are.
func longest(h *metrics.Float64Histogram) float64 {
	for i := len(h.Counts) - 1; i >= 0; i-- {
		if h.Counts[i] == 0 {
			continue
		}
		if top := h.Buckets[i+1]; !math.IsInf(top, 1) {
			return top
		}
		return h.Buckets[i]
	}
	return 0
}

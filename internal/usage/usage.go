// Package usage measures this process's memory, processor time and garbage collection.
package usage

import (
	"math"
	"runtime/metrics"
)

// Resources are this process's totals since its start. Unknown values are 0.
type Resources struct {
	ResidentBytes     int64   `json:"resident_bytes"`
	ResidentPeakBytes int64   `json:"resident_peak_bytes"`
	CPUSeconds        float64 `json:"cpu_s"` // all threads, including system time
	// GCSeconds is the garbage collector's part, estimated by the runtime after each cycle.
	GCSeconds float64 `json:"gc_cpu_s"`
	GCCycles  uint64  `json:"gc_cycles"`
	// GCPauseUS is the longest pause of all goroutines, rounded up to within a sixth.
	GCPauseUS float64 `json:"gc_longest_pause_us"`
	HeapBytes uint64  `json:"heap_bytes"` // live objects; memory mapped outside the heap is only in ResidentBytes
	Allocs    uint64  `json:"allocs"`     // number of allocations
}

// names are the runtime metrics in the order of Read.
var names = [...]string{
	"/cpu/classes/gc/total:cpu-seconds", "/gc/cycles/total:gc-cycles", "/sched/pauses/total/gc:seconds",
	"/memory/classes/heap/objects:bytes", "/gc/heap/allocs:objects",
}

// Read returns the current values without stopping goroutines. Cost: some 100 µs, mostly /proc.
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

// longest returns the upper end of the highest non-empty bucket, or 0.
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

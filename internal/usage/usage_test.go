package usage

import (
	"encoding/json"
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"testing"
)

// sink keeps what the test allocates on the heap.
var sink [][]byte

// What a process does shows in its resources.
func TestRead(t *testing.T) {
	before := Read()
	const pieces, size = 64, 1 << 20
	for range pieces {
		b := make([]byte, size)
		for i := 0; i < size; i += 4096 {
			b[i] = 1
		}
		sink = append(sink, b)
	}
	runtime.GC()
	for spun := 0.0; Read().CPUSeconds <= before.CPUSeconds; spun++ {
		if math.Sqrt(spun) > 1e6 {
			t.Fatal("no time passes on the processor")
		}
	}
	after := Read()
	if got := after.Allocs - before.Allocs; got < pieces {
		t.Errorf("%d objects, want at least %d", got, pieces)
	}
	if after.HeapBytes < before.HeapBytes+pieces*size/2 {
		t.Errorf("%d bytes of objects, were %d", after.HeapBytes, before.HeapBytes)
	}
	if after.GCCycles <= before.GCCycles || after.GCSeconds <= before.GCSeconds || after.GCPauseUS <= 0 {
		t.Errorf("%+v after a collection, before it %+v", after, before)
	}
	if after.GCSeconds > after.CPUSeconds {
		t.Errorf("%v s of collecting in %v s", after.GCSeconds, after.CPUSeconds)
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the system does not say what is resident")
	}
	if grown := after.ResidentBytes - before.ResidentBytes; grown < pieces*size/2 {
		t.Errorf("%d bytes more are resident, want about %d", grown, pieces*size)
	}
	if after.ResidentPeakBytes < after.ResidentBytes-size {
		t.Errorf("a peak of %d bytes, %d are resident", after.ResidentPeakBytes, after.ResidentBytes)
	}
	sink = nil
}

func TestParseStatus(t *testing.T) {
	now, peak := parseStatus("Name:\tringo\nVmPeak:\t  9 kB\nVmHWM:\t    123 kB\nVmRSS:\t     45 kB\nThreads:\t3\n")
	if now != 45<<10 || peak != 123<<10 {
		t.Errorf("%d and %d", now, peak)
	}
	if now, peak = parseStatus("VmRSS: many kB\n"); now != 0 || peak != 0 {
		t.Errorf("%d and %d of nothing", now, peak)
	}
}

func TestLongest(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		counts []uint64
		want   float64
	}{{[]uint64{0, 0, 0}, 0}, {[]uint64{5, 0, 0}, 1}, {[]uint64{5, 2, 0}, 2}, {[]uint64{0, 0, 1}, 2}} {
		h := &metrics.Float64Histogram{Counts: c.counts, Buckets: []float64{-inf, 1, 2, inf}}
		if got := longest(h); got != c.want {
			t.Errorf("%v: %v, want %v", c.counts, got, c.want)
		}
	}
}

// The names in JSON do not change by accident.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(Resources{1, 2, 3, 4, 5, 6, 7, 8})
	const want = `{"resident_bytes":1,"resident_peak_bytes":2,"cpu_s":3,"gc_cpu_s":4,"gc_cycles":5,"gc_longest_pause_us":6,"heap_bytes":7,"allocs":8}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
}

// What a process holds alone counts in full, wherever it is asked.
func TestProportional(t *testing.T) {
	before := Proportional()
	if before == 0 {
		t.Skip("the system does not say")
	}
	b := make([]byte, 64<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	if grown := Proportional() - before; grown < 48<<20 || grown > 256<<20 {
		t.Errorf("64 MiB more are %d bytes", grown)
	}
	runtime.KeepAlive(b)
}

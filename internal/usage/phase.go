package usage

import (
	"context"
	"runtime/pprof"
)

// Phase labels the calling goroutine with "phase", for CPU profiles. Goroutines inherit labels of
// their creator, such as a layer's: goroutines that outlive a step call Phase once at the start.
func Phase(name string) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("phase", name)))
}

package usage

import (
	"context"
	"runtime/pprof"
)

// Phase labels the calling goroutine with "phase", for CPU profiles. Goroutines inherit labels of
// their creator, such as a layer's, so a goroutine that outlives a step calls Phase once at its
// start.
func Phase(name string) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("phase", name)))
}

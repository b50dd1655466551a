package usage

import (
	"context"
	"runtime/pprof"
)

// Phase labels the goroutine that calls it, as "phase", for profiles of the processor's time. A goroutine inherits the labels of who starts
// it, which may be those of a layer: one that lives longer than a step says with Phase what it is for, once, where it begins.
func Phase(name string) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("phase", name)))
}

package train

import (
	"time"

	"github.com/ringo-ml/ringo/distopt"
)

// StepKind tells apart the steps of strategies that reuse thresholds.
type StepKind int8

const (
	// OtherStep is one of a strategy that does not, or neither of the others: buckets
	// begin anew at different times once one has had to earlier.
	OtherStep StepKind = 0
	// ExactStep is one in which thresholds of at least 9/10 of the values were
	// selected anew.
	ExactStep StepKind = 1
	// ReuseStep is one in which those of at most 1/10 were.
	ReuseStep StepKind = -1
)

// StepTimes is where the time of a step went on one rank. Compute, Compress,
// Exposed and Update are apart from each other, and together the whole step but
// for what is between them: a percent or so.
type StepTimes struct {
	Whole time.Duration
	// Compute is from the step's start to the end of backward, without Compress.
	Compute time.Duration
	// Data is the part of Compute that waits for batches, and Pull that which waits for servers' rows and values.
	Data, Pull time.Duration
	Kind       StepKind
	distopt.StepTimes
}

// StepTimer measures steps that follow each other. It is told the time and reads no
// clock: Begin, Waited for each batch, Ready, then End. The zero value is ready
// for Begin.
type StepTimer struct {
	begun, ready time.Time
	data, pull   time.Duration
}

// Begin says that a step begins.
func (w *StepTimer) Begin(now time.Time) { *w = StepTimer{begun: now, ready: now} }

// Waited says that the step waited so long for a batch.
func (w *StepTimer) Waited(d time.Duration) { w.data += d }

// Pulled says that the step waited so long for what it needs of servers.
func (w *StepTimer) Pulled(d time.Duration) { w.pull += d }

// Ready says that the step's last backward has ended and the optimizer's Step is
// about to be called.
func (w *StepTimer) Ready(now time.Time) { w.ready = now }

// End says that the optimizer's Step has returned, with what it says of itself,
// and returns the step's times. The next step begins now.
func (w *StepTimer) End(now time.Time, t distopt.StepTimes) StepTimes {
	s := StepTimes{Whole: now.Sub(w.begun), Compute: w.ready.Sub(w.begun) - t.Compress, Data: w.data, Pull: w.pull, Kind: kindOf(t), StepTimes: t}
	w.Begin(now)
	return s
}

// kindOf is what a step was.
func kindOf(t distopt.StepTimes) StepKind {
	switch {
	case t.Reuses && t.ExactShare >= 0.9:
		return ExactStep
	case t.Reuses && t.ExactShare <= 0.1:
		return ReuseStep
	}
	return OtherStep
}

package train

import (
	"math"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/server/trainer"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
	"github.com/ringo-ml/ringo/model"
)

// StepKind is the kind of a step of a strategy that reuses thresholds.
type StepKind int8

const (
	// OtherStep is a step of another strategy, or one that is neither ExactStep nor ReuseStep:
	// buckets select exactly in different steps after one had to select early.
	OtherStep StepKind = 0
	// ExactStep is a step that selects thresholds of at least 9/10 of the values exactly.
	ExactStep StepKind = 1
	// ReuseStep is a step that selects thresholds of at most 1/10 of the values exactly.
	ReuseStep StepKind = -1
)

// StepTimes has the times of a step on one rank. Compute, Compress, Exposed and Update do not
// overlap, and add up to the step except for about 1 %.
type StepTimes struct {
	Whole time.Duration
	// Compute is the time from the step's start to the end of backward, without Compress.
	Compute time.Duration
	// Data is the part of Compute that waits for batches, Pull the part that waits for servers'
	// rows and values.
	Data, Pull time.Duration
	Kind       StepKind
	distopt.StepTimes
}

// StepTimer measures consecutive steps. Its caller reads the clock and calls Begin, then Waited for
// each batch, Ready and End. The zero value is ready for Begin.
type StepTimer struct {
	begun, ready time.Time
	data, pull   time.Duration
}

// Begin begins a step.
func (w *StepTimer) Begin(now time.Time) { *w = StepTimer{begun: now, ready: now} }

// Waited adds a wait for a batch.
func (w *StepTimer) Waited(d time.Duration) { w.data += d }

// Pulled adds a wait for servers.
func (w *StepTimer) Pulled(d time.Duration) { w.pull += d }

// Ready marks the end of the step's last backward, before the optimizer's Step.
func (w *StepTimer) Ready(now time.Time) { w.ready = now }

// End marks the end of the optimizer's Step, and returns the step's times, including t, the
// optimizer's. The next step begins now.
func (w *StepTimer) End(now time.Time, t distopt.StepTimes) StepTimes {
	s := StepTimes{Whole: now.Sub(w.begun), Compute: w.ready.Sub(w.begun) - t.Compress, Data: w.data, Pull: w.pull, Kind: kindOf(t), StepTimes: t}
	w.Begin(now)
	return s
}

func kindOf(t distopt.StepTimes) StepKind {
	switch {
	case t.Reuses && t.ExactShare >= 0.9:
		return ExactStep
	case t.Reuses && t.ExactShare <= 0.1:
		return ReuseStep
	}
	return OtherStep
}

// BreakDown has the parts of a step's time: a mean over steps and ranks, or a median. Compute,
// compress, exposed communication and update are consecutive, and add up to the step within 1 %.
type BreakDown struct {
	// ComputeMS is forward and backward, and the time between two steps.
	ComputeMS float64 `json:"compute_ms"`
	// CompressMS is the time of compression that delays the computation.
	CompressMS float64 `json:"compress_ms"`
	// ExposedCommMS is communication that computing does not hide: from the end of backward to the
	// end of the last exchange.
	ExposedCommMS float64 `json:"exposed_comm_ms"`
	// UpdateMS is the time of the optimizer's updates that overlap no exchange.
	UpdateMS float64 `json:"update_ms"`
	// Density is the share of the gradient's values that a rank sends; 1 for dense exchanges.
	Density float64 `json:"density"`
	// StepExactMS and StepReuseMS are the durations of whole steps, by StepKind, of strategies that
	// reuse thresholds.
	StepExactMS OptionalFloat `json:"step_exact_ms,omitzero"`
	StepReuseMS OptionalFloat `json:"step_reuse_ms,omitzero"`
}

type stepTotals struct {
	steps, compute, data, compress, exposed, update float64
	bytes, density                                  float64
	exacts, exact, reuses, reuse                    float64 // number and time of steps by kind
	pull                                            float64 // absent in checkpoints: runs with it write none
}

func (s *stepTotals) values() []*float64 {
	return []*float64{
		&s.steps, &s.compute, &s.data, &s.compress, &s.exposed, &s.update, &s.bytes, &s.density,
		&s.exacts, &s.exact, &s.reuses, &s.reuse,
	}
}

func (s *stepTotals) add(t StepTimes) {
	s.steps++
	s.compute += t.Compute.Seconds()
	s.data += t.Data.Seconds()
	s.pull += t.Pull.Seconds()
	s.compress += t.Compress.Seconds()
	s.exposed += t.Exposed.Seconds()
	s.update += t.Update.Seconds()
	s.bytes += float64(t.BytesSent)
	s.density += t.Density
	switch t.Kind {
	case ExactStep:
		s.exacts++
		s.exact += t.Whole.Seconds()
	case ReuseStep:
		s.reuses++
		s.reuse += t.Whole.Seconds()
	}
}

// breakDown returns the mean over the steps, at least one.
func (s *stepTotals) breakDown() BreakDown {
	ms := 1000 / s.steps
	return BreakDown{
		ComputeMS: ms * s.compute, CompressMS: ms * s.compress, ExposedCommMS: ms * s.exposed,
		UpdateMS: ms * s.update, Density: s.density / s.steps,
		StepExactMS: meanMS(s.exact, s.exacts), StepReuseMS: meanMS(s.reuse, s.reuses),
	}
}

func (t StepTimes) breakDown() BreakDown {
	var one stepTotals
	one.add(t)
	return one.breakDown()
}

// meanMS returns the mean of n durations, unknown for n = 0.
func meanMS(seconds, n float64) OptionalFloat {
	if n == 0 {
		return OptionalFloat{}
	}
	return OptionalFloat{Value: 1000 * seconds / n, Known: true}
}

// Layer has the statistics of a layer's gradient in a step on one rank.
type Layer struct {
	Name string `json:"name"`
	// Density is the share of its values that was sent.
	Density float64 `json:"density"`
	// Threshold is the smallest magnitude that was certainly sent; 0 if all values were sent.
	Threshold float64 `json:"threshold"`
	// ResidualNorm is the Euclidean norm of the residual, the unsent part of the gradient.
	ResidualNorm float64 `json:"residual_norm"`
}

// Layers returns the statistics of each layer in the last step, in the order of backward. Call it
// between steps.
func (r *Replica) Layers() []Layer {
	var out []Layer
	for _, l := range r.Opt.Layers(nil) {
		out = append(out, Layer{Name: l.Name, Density: l.Density, Threshold: float64(l.Threshold), ResidualNorm: l.ResidualNorm})
	}
	return out
}

// epochCounters are a rank's counters of an epoch. Ranks add them up after the epoch.
type epochCounters struct {
	train          model.Counts
	samples        float64 // samples trained on
	trainS, median float64 // seconds
	payload, wire  float64
	spent          stepTotals
	tuneS          float64         // tuning between steps; not in checkpoints
	first          float64         // loss of the run's first step; not in checkpoints
	others         []epochCounters // of this rank's further virtual workers, without times
}

// all returns the fields that ranks add up.
func (t *epochCounters) all() []*float64 { return append(t.values(), t.passing()...) }

// newTally returns counters of an epoch that begins.
func (r *Replica) newTally() epochCounters {
	t := epochCounters{train: r.model.NewCounts()}
	for range r.carries() - 1 {
		t.others = append(t.others, epochCounters{train: r.model.NewCounts()})
	}
	return t
}

// passing returns the fields that checkpoints exclude.
func (t *epochCounters) passing() []*float64 { return []*float64{&t.spent.pull, &t.tuneS, &t.first} }

// values returns the fields in a fixed order, for sums and checkpoints.
func (t *epochCounters) values() []*float64 {
	return slices.Concat(t.train.Fields(), []*float64{&t.samples, &t.trainS, &t.median, &t.payload, &t.wire}, t.spent.values())
}

func (t *epochCounters) add(o *epochCounters) {
	other := o.all()
	for i, f := range t.all() {
		*f += *other[i]
	}
}

// residualEvery is the interval at which the metric of the residual norm is computed, because that
// takes a pass over as many values as the model has parameters.
const residualEvery = 10 * time.Second

// overlap returns the share of exchange time that backward hid; NaN without exchanges.
func (t StepTimes) overlap() float64 {
	if t.Exchange == 0 {
		return math.NaN()
	}
	return 1 - min(1, t.Exposed.Seconds()/t.Exchange.Seconds())
}

// count adds a step with samples of this rank to the metrics.
func (c *threadPool) count(w *trainerThread, t StepTimes, samples, loss float64) {
	f := c.job.Metrics()
	if f == nil {
		return
	}
	f.Step(metrics.Step{Whole: t.Whole, Samples: int(samples), Epoch: c.epoch, Loss: loss, Density: t.Density, Overlap: t.overlap(), Phases: [metrics.UpdatePhase + 1]time.Duration{
		metrics.DataPhase: t.Data, metrics.PullPhase: t.Pull, metrics.ComputePhase: t.Compute - t.Data - t.Pull,
		metrics.CompressPhase: t.Compress, metrics.WaitPhase: t.Exposed, metrics.UpdatePhase: t.Update,
	}})
	if p, ok := w.replica.params.(interface{ cacheUse() trainer.CacheUse }); ok && c.cfg.Servers.CacheBytes > 0 {
		u := p.cacheUse()
		f.Add(metrics.LookedUpRows, 0, u.Lookups)
		f.Add(metrics.CachedRows, 0, u.Hits)
	}
	if r, ok := c.from.(interface{ Ready() int }); ok {
		f.Put(metrics.Queue, metrics.BatchQueue, int64(r.Ready()))
	}
	if now := time.Now(); w.replica == c.replica && now.Sub(c.reports.residual) >= residualEvery {
		if c.reports.residual = now; w.replica.Opt != nil {
			if norm, ok := w.replica.Opt.ResidualNorm(); ok {
				f.Set(metrics.ResidualNorm, 0, norm)
			}
		}
	}
}

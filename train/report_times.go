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

// BreakDown is where the time of a step goes: a mean over steps and ranks, or a
// median. Compute, compress, exposed communication and update follow each other
// and together are the step, but for a percent or so.
type BreakDown struct {
	// ComputeMS is forward and backward, and what is between two steps.
	ComputeMS float64 `json:"compute_ms"`
	// CompressMS is what codecs take on the path of the computation.
	CompressMS float64 `json:"compress_ms"`
	// ExposedCommMS is communication that computing does not hide: from the end of
	// backward to the last agreement.
	ExposedCommMS float64 `json:"exposed_comm_ms"`
	// UpdateMS is the rest: the optimizer's rule while no exchange goes on.
	UpdateMS float64 `json:"update_ms"`
	// Density is the share of the gradient's values that a rank sends; 1 for dense
	// exchanges.
	Density float64 `json:"density"`
	// StepExactMS and StepReuseMS are whole steps of strategies that reuse
	// thresholds, by their StepKind.
	StepExactMS OptionalFloat `json:"step_exact_ms,omitzero"`
	StepReuseMS OptionalFloat `json:"step_reuse_ms,omitzero"`
}

// stepTotals adds up the times of steps, in seconds.
type stepTotals struct {
	steps, compute, data, compress, exposed, update float64
	bytes, density                                  float64
	exacts, exact, reuses, reuse                    float64 // how many steps of a kind, and their time
	pull                                            float64 // not in checkpoints: runs that have it write none
}

func (s *stepTotals) values() []*float64 {
	return []*float64{
		&s.steps, &s.compute, &s.data, &s.compress, &s.exposed, &s.update, &s.bytes, &s.density,
		&s.exacts, &s.exact, &s.reuses, &s.reuse,
	}
}

// add counts a step.
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

// breakDown is the mean over the steps, of which there is at least one.
func (s *stepTotals) breakDown() BreakDown {
	ms := 1000 / s.steps
	return BreakDown{
		ComputeMS: ms * s.compute, CompressMS: ms * s.compress, ExposedCommMS: ms * s.exposed,
		UpdateMS: ms * s.update, Density: s.density / s.steps,
		StepExactMS: meanMS(s.exact, s.exacts), StepReuseMS: meanMS(s.reuse, s.reuses),
	}
}

// breakDown is that of one step.
func (t StepTimes) breakDown() BreakDown {
	var one stepTotals
	one.add(t)
	return one.breakDown()
}

// meanMS is known where there is something to take the mean of.
func meanMS(seconds, n float64) OptionalFloat {
	if n == 0 {
		return OptionalFloat{}
	}
	return OptionalFloat{Value: 1000 * seconds / n, Known: true}
}

// Layer is what a step did to a layer's gradient on one rank.
type Layer struct {
	Name string `json:"name"`
	// Density is the share of its values that was sent.
	Density float64 `json:"density"`
	// Threshold is the least magnitude that was certain to be sent; 0 where all are.
	Threshold float64 `json:"threshold"`
	// ResidualNorm is the Euclidean norm of what is kept.
	ResidualNorm float64 `json:"residual_norm"`
}

// Layers is what the last step did to each layer, in the order in which backward
// finishes them. It is called between steps.
func (r *Replica) Layers() []Layer {
	var out []Layer
	for _, l := range r.Opt.Layers(nil) {
		out = append(out, Layer{Name: l.Name, Density: l.Density, Threshold: float64(l.Threshold), ResidualNorm: l.ResidualNorm})
	}
	return out
}

// epochCounters is what a rank counts over an epoch, and what the ranks add up after
// it.
type epochCounters struct {
	train          model.Counts
	samples        float64 // of training
	trainS, median float64 // in seconds
	payload, wire  float64
	spent          stepTotals
	tuneS          float64 // of measuring and choosing between steps; not in checkpoints
	first          float64 // the loss of the first step of all; not in checkpoints
}

// all are the fields that ranks add up.
func (t *epochCounters) all() []*float64 { return append(t.values(), t.passing()...) }

// newTally is one with nothing in it.
func (e *runEnv) newTally() epochCounters { return epochCounters{train: e.replica.model.NewCounts()} }

// passing are the fields that checkpoints leave out.
func (t *epochCounters) passing() []*float64 { return []*float64{&t.spent.pull, &t.tuneS, &t.first} }

// values are the fields in a fixed order, to be added up or saved.
func (t *epochCounters) values() []*float64 {
	return slices.Concat(t.train.Fields(), []*float64{&t.samples, &t.trainS, &t.median, &t.payload, &t.wire}, t.spent.values())
}

// add adds the tally of another thread.
func (t *epochCounters) add(o *epochCounters) {
	other := o.all()
	for i, f := range t.all() {
		*f += *other[i]
	}
}

// residualEvery is how often the norm of what compression keeps is computed for who watches the job: it is a pass over
// as many values as the model has parameters.
const residualEvery = 10 * time.Second

// overlap is the share of the time of exchanges that backward hid; NaN where there were none.
func (t StepTimes) overlap() float64 {
	if t.Exchange == 0 {
		return math.NaN()
	}
	return 1 - min(1, t.Exposed.Seconds()/t.Exchange.Seconds())
}

// count tells who watches the job of a step on so many samples of this rank.
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
		f.Add(metrics.NamedRows, 0, u.Lookups)
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

package train

import (
	"math"
	"time"

	"github.com/ringo-ml/ringo/internal/server/trainer"
	"github.com/ringo-ml/ringo/internal/watch/metrics"
)

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

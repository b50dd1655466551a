package distopt

import (
	"fmt"
	"math"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/dlgspaper"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/optim"
)

// paperRate and numbers of ranks are powers of two, so that the order of their product with a
// gradient does not matter.
const paperRate = 0.5

// paperGradients are what ranks give in a step, padding apart.
var paperGradients = map[string]func(dst []float32, step, rank int){
	"normal": func(dst []float32, step, rank int) { gradient(dst, step, 0, rank) },
	"far more and far less": func(dst []float32, step, rank int) {
		gradient(dst, step, 0, rank)
		for i := range dst {
			dst[i] *= []float32{1, 50, 1e-4}[step%3]
		}
	},
	"ties and zeros": func(dst []float32, step, rank int) {
		gradient(dst, step, 0, rank)
		for i, v := range dst {
			dst[i] = float32(math.Round(float64(v)))
		}
	},
	"nothing at first": func(dst []float32, step, rank int) {
		if clear(dst); step > 0 {
			gradient(dst, step, 0, rank)
		}
	},
}

// paperJob is Algorithm 1 of a whole job: the workers' layers, and the parameters.
type paperJob struct {
	layers  [][]*dlgspaper.Layer // by worker and group
	groups  [][]int              // places in the arena of each group's values
	params  []float32
	workers int
}

// newPaperJob merges layers as the plan does; apart: selects from each by itself.
func newPaperJob(workers int, layers []bucket.Param, plan bucket.Plan, apart bool, ratio float64, every int) *paperJob {
	j := &paperJob{params: make([]float32, total(layers)), workers: workers}
	for _, k := range plan {
		for l := k.First; l <= k.Last; l++ {
			if l == k.First || apart {
				j.groups = append(j.groups, nil)
			}
			own := &j.groups[len(j.groups)-1]
			for i := range layers[l].Len - layers[l].Pad {
				*own = append(*own, layers[l].Offset+i)
			}
		}
	}
	for range workers {
		var of []*dlgspaper.Layer
		for _, places := range j.groups {
			of = append(of, &dlgspaper.Layer{Ratio: ratio, Every: every, Residual: make([]float32, len(places))})
		}
		j.layers = append(j.layers, of)
	}
	return j
}

func (j *paperJob) step(grads [][]float32) {
	sum := make([]float32, len(j.params))
	for worker, all := range grads {
		for g, places := range j.groups {
			own := make([]float32, len(places))
			for i, at := range places {
				own[i] = all[at]
			}
			sent, values := j.layers[worker][g].Step(own)
			for i, at := range sent {
				sum[places[at]] += values[i]
			}
		}
	}
	for i, v := range sum {
		j.params[i] -= paperRate / float32(j.workers) * v
	}
}

// A job under the paper's rule has the bits of the paper's algorithm, on every rank, whatever
// the plan.
func TestPaperRule(t *testing.T) {
	intervals := []int{1, 8, 64}
	if testing.Short() {
		intervals = []int{8} // the naive twin sorts all values
	}
	for _, every := range intervals {
		for name, fill := range paperGradients {
			for i, cfg := range []Config{{Plan: PlanOne}, {Plan: PlanPerLayer}, {BucketBytes: 4000}, {BucketBytes: 4000, LayerThresholds: true}} {
				if i < 3 && (every == 64 || testing.Short()) { // the others have the last plan's
					continue
				}
				cfg.Strategy, cfg.Spars, cfg.Every, cfg.Rule = DLGS, 0.03, every, compress.RulePaper
				cfg.SparseAlgorithm = exchange.AllGather // adds in the order of ranks
				onRanks(t, 2+2*(i%2), func(g *collective.Group) error {
					if err := comparePaper(g, cfg, every+2, fill); err != nil {
						return fmt.Errorf("%s, plan %q, every %d: %w", name, cfg.Plan, every, err)
					}
					return nil
				})
			}
		}
	}
}

func comparePaper(g *collective.Group, cfg Config, steps int, fill func(dst []float32, step, rank int)) error {
	layers := padded()
	n := total(layers)
	params, grads := make([]float32, n), make([]float32, n)
	o, err := New(g, &optim.SGD{LR: paperRate}, layers, params, grads, nil, cfg)
	if err != nil {
		return err
	}
	job := newPaperJob(g.Size(), layers, o.Plan(), cfg.LayerThresholds, cfg.Spars, cfg.Every)
	for step := range steps {
		all := make([][]float32, g.Size())
		for rank := range all {
			all[rank] = make([]float32, n)
			fill(all[rank], step, rank)
			clearPads(layers, all[rank])
		}
		copy(grads, all[g.Rank()])
		for l := range layers {
			o.GradReady(l)
		}
		if err := o.Step(); err != nil {
			return err
		}
		job.step(all)
		for i, want := range job.params {
			if math.Float32bits(params[i]) != math.Float32bits(want) {
				return fmt.Errorf("step %d: parameter %d is %v, want %v", step, i, params[i], want)
			}
		}
	}
	return o.Close()
}

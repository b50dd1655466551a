package steps

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/train"
)

// Columns of each step, in milliseconds.
const (
	wholePart = iota
	computePart
	compressPart
	exposedPart
	updatePart
	kindPart // column of train.StepKind
	stepParts
)

// stepTimes are the times of a rank's steps, and later of the slowest rank in each step.
type stepTimes struct {
	parts          [stepParts][]float64 // columns by step
	bytes, density float64              // sums over the steps
}

func newStepTimes(steps int) *stepTimes {
	t := new(stepTimes)
	for i := range t.parts {
		t.parts[i] = make([]float64, 0, steps)
	}
	return t
}

func (t *stepTimes) add(s train.StepTimes) {
	for i, d := range [...]time.Duration{wholePart: s.Whole, computePart: s.Compute, compressPart: s.Compress, exposedPart: s.Exposed, updatePart: s.Update} {
		t.parts[i] = append(t.parts[i], 1e3*d.Seconds())
	}
	t.parts[kindPart] = append(t.parts[kindPart], float64(s.Kind))
	t.bytes += float64(s.BytesSent)
	t.density += s.Density
}

// ofSlowest replaces each step's times by the slowest rank's in the step, so that parts stay
// consistent; bytes and density become means over ranks.
func (t *stepTimes) ofSlowest(g *collective.Group) error {
	n := len(t.parts[wholePart])
	all := make([]float64, n*g.Size())
	if err := collective.AllGather(g, all, t.parts[wholePart]); err != nil {
		return fmt.Errorf("gathering the times: %w", err)
	}
	flat := make([]float64, stepParts*n, stepParts*n+2)
	for step := range n {
		slowest := 0
		for rank := 1; rank < g.Size(); rank++ {
			if all[rank*n+step] > all[slowest*n+step] {
				slowest = rank
			}
		}
		if slowest == g.Rank() {
			for i := range t.parts {
				flat[i*n+step] = t.parts[i][step]
			}
		}
	}
	flat = append(flat, t.bytes/float64(g.Size()), t.density/float64(g.Size()))
	if err := collective.AllReduce(g, flat, collective.Sum); err != nil {
		return fmt.Errorf("gathering the times: %w", err)
	}
	for i := range t.parts {
		copy(t.parts[i], flat[i*n:])
	}
	t.bytes, t.density = flat[stepParts*n], flat[stepParts*n+1]
	return nil
}

// breakDown returns the parts of the median step. Medians of parts do not add up, and a single step
// is noisy, so the parts are means over the steps within 1 % of the median, at least the one or two
// middle steps. Their mean is the median to within 1 %, regardless of the spread.
func (t *stepTimes) breakDown() train.BreakDown {
	whole := t.parts[wholePart]
	n := len(whole)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(whole[a], whole[b]) })
	first, end := (n-1)/2, n/2+1
	typical := (whole[order[first]] + whole[order[end-1]]) / 2
	for first > 0 && whole[order[first-1]] >= 0.99*typical {
		first--
	}
	for end < n && whole[order[end]] <= 1.01*typical {
		end++
	}
	middle := order[first:end]
	mean := func(part int) float64 {
		sum := 0.0
		for _, step := range middle {
			sum += t.parts[part][step]
		}
		return sum / float64(len(middle))
	}
	return train.BreakDown{
		ComputeMS: mean(computePart), CompressMS: mean(compressPart), ExposedCommMS: mean(exposedPart), UpdateMS: mean(updatePart),
		Density: t.density / float64(n), StepExactMS: t.medianOf(train.ExactStep), StepReuseMS: t.medianOf(train.ReuseStep),
	}
}

func (t *stepTimes) medianOf(kind train.StepKind) train.OptionalFloat {
	var ms []float64
	for step, k := range t.parts[kindPart] {
		if k == float64(kind) {
			ms = append(ms, t.parts[wholePart][step])
		}
	}
	if len(ms) == 0 {
		return train.OptionalFloat{}
	}
	return train.OptionalFloat{Value: median.Of(ms), Known: true}
}

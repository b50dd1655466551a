package evalmetrics

import (
	"math"
	"slices"
)

// NumberReport is the table of a regression, in the unit of the target.
type NumberReport struct {
	Targets int64 `json:"targets"`
	// Unit is the column of the targets; "" if the targets are not of a table.
	Unit string `json:"unit,omitempty"`
	// RMSE is the root of the mean squared error, MAE the mean absolute error, Bias the mean of
	// prediction minus target.
	RMSE float64 `json:"rmse"`
	MAE  float64 `json:"mae"`
	Bias float64 `json:"bias"`
	// R2 is the explained share of the targets' variance, undefined for equal targets. BaselineRMSE
	// is the RMSE of a model that always predicts the targets' mean.
	R2           Value   `json:"r2"`
	BaselineRMSE float64 `json:"baseline_rmse"`
	// ErrorQuantiles are quantiles of the absolute error, interpolated linearly.
	ErrorQuantiles Quantiles `json:"abs_error_quantiles"`
	// Joint counts targets and predictions; nil for equal targets.
	Joint *Joint `json:"joint,omitempty"`
}

// jointBins is the number of bins of each axis of a Joint.
const jointBins = 20

// Joint counts the samples by target and prediction, in bins of equal width over the range of the
// targets. The first and last bin of predictions have those outside the range, too.
type Joint struct {
	Min   float64 `json:"min"`
	Width float64 `json:"width"`
	// Counts has a row per bin of targets and a column per bin of predictions.
	Counts [][]int64 `json:"counts"`
}

// joint returns the counts of sorted words with different targets.
func joint(words []uint64, value func(float32) float64) *Joint {
	ends := [2]float64{value(math.Float32frombits(uint32(words[0] >> 32))), 0}
	ends[1] = ends[0]
	for _, w := range words {
		y := value(math.Float32frombits(uint32(w >> 32)))
		ends[0], ends[1] = min(ends[0], y), max(ends[1], y)
	}
	j := &Joint{Min: ends[0], Width: (ends[1] - ends[0]) / jointBins, Counts: make([][]int64, jointBins)}
	if !(j.Width > 0) || math.IsInf(j.Width, 0) {
		return nil
	}
	bin := func(bits uint32) int {
		x := math.Floor((value(math.Float32frombits(bits)) - j.Min) / j.Width)
		if !(x > 0) { // a prediction may be no number
			return 0
		}
		return int(min(x, jointBins-1))
	}
	for i := range j.Counts {
		j.Counts[i] = make([]int64, jointBins)
	}
	for _, w := range words {
		j.Counts[bin(uint32(w>>32))][bin(uint32(w))]++
	}
	return j
}

// Quantiles are values that 50, 90, 95 and 99 % of the samples do not exceed.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// addNumbers appends a word for each target: its bits and the bits of its prediction.
func (c *Counter) addNumbers(p Pass) {
	targets, out := p.Targets, p.Outputs
	if len(out) != len(targets) {
		c.foreign++
		return
	}
	for i, y := range targets {
		c.words[0] = append(c.words[0], uint64(math.Float32bits(y))<<32|uint64(math.Float32bits(out[i])))
	}
}

// numberReport computes the table from at least one word.
func (p Plan) numberReport(words []uint64) *NumberReport {
	slices.Sort(words)
	n := float64(len(words))
	errs := make([]float64, len(words))
	var targets, squares, absolute, bias, spread float64
	first, constant := words[0]>>32, true
	for i, w := range words {
		y := p.value(math.Float32frombits(uint32(w >> 32)))
		e := p.value(math.Float32frombits(uint32(w))) - y
		constant = constant && w>>32 == first
		errs[i] = math.Abs(e)
		targets, squares, absolute, bias = targets+y, squares+e*e, absolute+errs[i], bias+e
	}
	mean := targets / n
	for _, w := range words {
		d := p.value(math.Float32frombits(uint32(w>>32))) - mean
		spread += d * d
	}
	r := &NumberReport{Targets: int64(len(words)), Unit: p.Unit, RMSE: math.Sqrt(squares / n), MAE: absolute / n, Bias: bias / n}
	if !constant {
		r.R2, r.BaselineRMSE = known(1-squares/spread), math.Sqrt(spread/n)
		r.Joint = joint(words, p.value)
	}
	slices.Sort(errs)
	r.ErrorQuantiles = Quantiles{quantile(errs, 0.5), quantile(errs, 0.9), quantile(errs, 0.95), quantile(errs, 0.99)}
	return r
}

// quantile returns a quantile of at least one sorted value, interpolated linearly.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	lo := int(at)
	hi := min(lo+1, len(sorted)-1)
	return sorted[lo] + (at-float64(lo))*(sorted[hi]-sorted[lo])
}

package simd

import (
	"fmt"
	"math"
)

// layerLevel holds the kernels of layer normalisation, for rows of a multiple of 16 floats. count
// is the number of floats.
type layerLevel struct {
	apply func(y, x, gamma, beta, stats *float32, rows, d int, count, epsilon float32)
	grad  func(dx, dy, x, gamma, stats, dgamma, dbeta *float32, rows, d int, count float32)
}

// LayerNorm computes y = gamma·(x - mean)/sqrt(variance + epsilon) + beta of each row of len(gamma)
// values, and writes the row's mean and 1/sqrt(variance + epsilon) to stats, two values a row. Sums
// are of 16 lanes, then pairwise. Rows of a multiple of 16 values use whole vectors.
func (k *Kernels) LayerNorm(y, x, gamma, beta, stats []float32, epsilon float32) {
	d := len(gamma)
	rows := checkLayer("LayerNorm", d, stats, len(beta) == d && len(y) == len(x), x)
	k.rowCalls(rows, d, func(r, n int) {
		at := r * d
		if n > 0 {
			k.layer.apply(&y[at], &x[at], &gamma[0], &beta[0], &stats[2*r], n, d, float32(d), epsilon)
			return
		}
		stats[2*r], stats[2*r+1] = layerNorm(y[at:at+d], x[at:at+d], gamma, beta, epsilon)
	})
}

// LayerNormGrad writes the gradient dx of [Kernels.LayerNorm] and adds the gradients of gamma and
// beta to dgamma and dbeta, row by row. dx may be dy.
func (k *Kernels) LayerNormGrad(dx, dgamma, dbeta, dy, x, gamma, stats []float32) {
	d := len(gamma)
	rows := checkLayer("LayerNormGrad", d, stats, len(dgamma) == d && len(dbeta) == d && len(dx) == len(x) && len(dy) == len(x), x)
	k.rowCalls(rows, d, func(r, n int) {
		at := r * d
		if n > 0 {
			k.layer.grad(&dx[at], &dy[at], &x[at], &gamma[0], &stats[2*r], &dgamma[0], &dbeta[0], n, d, float32(d))
			return
		}
		layerNormGrad(dx[at:at+d], dgamma, dbeta, dy[at:at+d], x[at:at+d], gamma, stats[2*r], stats[2*r+1])
	})
}

func checkLayer(op string, d int, stats []float32, same bool, x []float32) int {
	if d == 0 || !same || len(x)%d != 0 || len(stats) != 2*(len(x)/d) {
		panic(fmt.Sprintf("simd: %s: operands do not fit rows of %d: %d values and %d statistics", op, d, len(x), len(stats)))
	}
	return len(x) / d
}

// rowCalls divides rows into calls f(r, n): n rows from row r for one assembly call. If these rows
// have no assembly, it calls f(r, 0) for each row r, which f computes in Go.
func (k *Kernels) rowCalls(rows, d int, f func(r, n int)) {
	if k.layer.apply == nil || d%16 != 0 || d > 4*callFloats {
		for r := range rows {
			f(r, 0)
		}
		return
	}
	most := max(1, callFloats/d)
	for r := 0; r < rows; r += most {
		f(r, min(most, rows-r))
	}
}

// mean16 is the sum of f of 0 to n-1, in 16 lanes and then pairwise, over n.
func mean16(n int, f func(i int) float32) float32 {
	var lanes [16]float32
	for i := range n {
		lanes[i&15] += f(i)
	}
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0] / float32(n)
}

func layerNorm(y, x, gamma, beta []float32, epsilon float32) (mean, inverse float32) {
	mean = mean16(len(x), func(i int) float32 { return x[i] })
	variance := mean16(len(x), func(i int) float32 {
		d := x[i] - mean
		return float32(d * d)
	})
	inverse = 1 / float32(math.Sqrt(float64(variance+epsilon)))
	for i, v := range x {
		y[i] = float32(float32((v-mean)*inverse)*gamma[i]) + beta[i]
	}
	return mean, inverse
}

func layerNormGrad(dx, dgamma, dbeta, dy, x, gamma []float32, mean, inverse float32) {
	for i, g := range dy {
		dbeta[i] += g
		dgamma[i] += float32(float32((x[i]-mean)*inverse) * g)
	}
	shift := mean16(len(x), func(i int) float32 { return float32(dy[i] * gamma[i]) })
	slope := mean16(len(x), func(i int) float32 {
		return float32(float32(dy[i]*gamma[i]) * float32((x[i]-mean)*inverse))
	})
	for i, v := range x {
		g := float32(dy[i]*gamma[i]) - shift
		dx[i] = (g - float32(float32((v-mean)*inverse)*slope)) * inverse
	}
}

package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var layerShapes = [][2]int{{1, 1}, {3, 5}, {2, 16}, {7, 48}, {5, 50}, {130, 384}, {3, 768}, {2, 1001}, {0, 32}, {2, 40_000}, {2, 5 * callFloats}}

func TestLayerNorm(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(91, 92))
		for _, s := range layerShapes {
			rows, d := s[0], s[1]
			what := fmt.Sprint(s)
			x, gamma, beta := random(r, rows*d), random(r, d), random(r, d)
			for i := range x {
				x[i] += 3
			}
			y, checkY := guarded(r, rows*d)
			stats, checkStats := guarded(r, 2*rows)
			k.LayerNorm(y, x, gamma, beta, stats, 1e-5)
			same, sameStats := make([]float32, rows*d), make([]float32, 2*rows)
			portable.LayerNorm(same, x, gamma, beta, sameStats, 1e-5)
			sameValues(t, what, y, same)
			sameValues(t, what, stats, sameStats)
			checkY(t, what)
			checkStats(t, what)
			for row := range rows {
				mean, variance := 0.0, 0.0
				for _, v := range x[row*d : (row+1)*d] {
					mean += float64(v) / float64(d)
				}
				for _, v := range x[row*d : (row+1)*d] {
					variance += (float64(v) - mean) * (float64(v) - mean) / float64(d)
				}
				for i := range d {
					want := (float64(x[row*d+i])-mean)/math.Sqrt(variance+1e-5)*float64(gamma[i]) + float64(beta[i])
					if got := float64(y[row*d+i]); math.Abs(got-want) > 5e-5 && d > 1 {
						t.Fatalf("%s: row %d: y[%d] = %v, want %v", what, row, i, got, want)
					}
				}
			}
		}
	})
}

func TestLayerNormGrad(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(93, 94))
		for _, s := range layerShapes {
			rows, d := s[0], s[1]
			what := fmt.Sprint(s)
			x, gamma, dy := random(r, rows*d), random(r, d), random(r, rows*d)
			stats := make([]float32, 2*rows)
			k.LayerNorm(make([]float32, rows*d), x, gamma, gamma, stats, 1e-5)
			dx, checkDX := guarded(r, rows*d)
			dgamma, checkGamma := guarded(r, d)
			dbeta, checkBeta := guarded(r, d)
			wantX, wantGamma, wantBeta := make([]float32, rows*d), append([]float32(nil), dgamma...), append([]float32(nil), dbeta...)
			exactGamma := wideSum(dgamma)
			k.LayerNormGrad(dx, dgamma, dbeta, dy, x, gamma, stats)
			portable.LayerNormGrad(wantX, wantGamma, wantBeta, dy, x, gamma, stats)
			sameValues(t, what, dx, wantX)
			sameValues(t, what, dgamma, wantGamma)
			sameValues(t, what, dbeta, wantBeta)
			checkDX(t, what)
			checkGamma(t, what)
			checkBeta(t, what)
			for row := range rows {
				exactGamma += layerGradNaive(t, what, x[row*d:][:d], dy[row*d:][:d], gamma, dx[row*d:][:d])
			}
			if got := wideSum(dgamma); math.Abs(got-exactGamma) > 1e-5*float64(1+rows*d) {
				t.Errorf("%s: gradients of gamma add up to %v, want %v", what, got, exactGamma)
			}
			k.LayerNormGrad(dy, dgamma, dbeta, dy, x, gamma, stats)
			sameValues(t, what+" in place", dy, wantX)
		}
	})
}

func wideSum(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

// layerGradNaive checks dx of a row in float64 and returns the sum of what the
// row adds to gamma's gradient.
func layerGradNaive(t *testing.T, what string, x, dy, gamma, dx []float32) float64 {
	t.Helper()
	d := float64(len(x))
	mean, variance, shift, slope, sum := wideSum(x)/d, 0.0, 0.0, 0.0, 0.0
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean) / d
	}
	inverse := 1 / math.Sqrt(variance+1e-5)
	for i, v := range x {
		g, xhat := float64(dy[i])*float64(gamma[i]), (float64(v)-mean)*inverse
		shift += g / d
		slope += g * xhat / d
		sum += float64(dy[i]) * xhat
	}
	for i, v := range x {
		want := inverse * (float64(dy[i])*float64(gamma[i]) - shift - (float64(v)-mean)*inverse*slope)
		if math.Abs(float64(dx[i])-want) > 1e-5*inverse {
			t.Fatalf("%s: dx[%d] = %v, want %v", what, i, dx[i], want)
		}
	}
	return sum
}

// BenchmarkLayerNorm is rows of a small GPT, in the second cache and beyond.
func BenchmarkLayerNorm(b *testing.B) {
	for _, s := range [][2]int{{64, 768}, {2048, 768}, {8192, 384}} {
		rows, d := s[0], s[1]
		r := rand.New(rand.NewPCG(95, 96))
		x, dy, gamma, stats := random(r, rows*d), random(r, rows*d), random(r, d), make([]float32, 2*rows)
		y, dgamma, dbeta := make([]float32, rows*d), make([]float32, d), make([]float32, d)
		for _, k := range Levels() {
			b.Run(fmt.Sprintf("forward/%dx%d/%s", rows, d, k.Name()), func(b *testing.B) {
				b.SetBytes(int64(8 * len(x)))
				for b.Loop() {
					k.LayerNorm(y, x, gamma, gamma, stats, 1e-5)
				}
			})
			b.Run(fmt.Sprintf("backward/%dx%d/%s", rows, d, k.Name()), func(b *testing.B) {
				b.SetBytes(int64(12 * len(x)))
				for b.Loop() {
					k.LayerNormGrad(y, dgamma, dbeta, dy, x, gamma, stats)
				}
			})
		}
	}
}

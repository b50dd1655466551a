package simd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// normCase is operands of a batch normalisation.
type normCase struct {
	rows, channels int
	p              NormParams
	plane          [NormPlanes][]float32 // per channel
	x, dy, r       []float32
}

var normShapes = [][2]int{
	{1, 1}, {7, 3}, {50, 50}, {33, 16}, {1000, 16}, {129, 64}, {5, 200}, {700, 100}, {9, 2048}, {40, 37}, {3, 2039}, {20_000, 3}, {0, 16}, {1023, 64}, {2001, 32}, {130, 1025}, {3, 20_000},
}

func newNormCase(r *rand.Rand, rows, channels int, relu bool) *normCase {
	c := &normCase{rows: rows, channels: channels}
	c.p.Resize(channels)
	c.p.Values = fenced(c.p.Values)
	c.p.ReLU = relu
	for i := range c.plane {
		c.plane[i] = random(r, channels)
		c.p.Set(i, c.plane[i])
	}
	n := rows * channels
	c.x, c.dy, c.r = fenced(random(r, n)), fenced(random(r, n)), fenced(random(r, n))
	return c
}

// before is x - mean and the output before the activation, of value i.
func (c *normCase) before(i int) (d, v float32) {
	ch := i % c.channels
	d = c.x[i] - c.plane[NormMean][ch]
	return d, float32(d*c.plane[NormScale][ch]) + c.plane[NormOffset][ch]
}

// sums adds up a and b of every value at its place, as it is defined.
func (c *normCase) sums(f func(i int) (a, b float32)) []float64 {
	period := c.p.Period
	sums, acc := make([]float64, 2*period), make([]float32, 2*period)
	for i := range c.x {
		a, b := f(i)
		acc[i%period] += a
		acc[period+i%period] += b
		if i%(64*period) == 64*period-1 || i == len(c.x)-1 {
			for j := range acc {
				sums[j] += float64(acc[j])
				acc[j] = 0
			}
		}
	}
	return sums
}

func sameSums(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: sum %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
}

func eachNormCase(t *testing.T, f func(t *testing.T, k *Kernels, r *rand.Rand, c *normCase, what string)) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(61, 62))
		for _, s := range normShapes {
			for _, relu := range []bool{false, true} {
				f(t, k, r, newNormCase(r, s[0], s[1], relu), fmt.Sprintf("%v relu=%v", s, relu))
			}
		}
	})
}

func TestNormSums(t *testing.T) {
	eachNormCase(t, func(t *testing.T, k *Kernels, _ *rand.Rand, c *normCase, what string) {
		got, acc := make([]float64, 2*c.p.Period), fenced(make([]float32, 2*c.p.Period))
		k.NormSums(got, acc, c.x, &c.p)
		sameSums(t, what, got, c.sums(func(i int) (float32, float32) {
			d, _ := c.before(i)
			return d, float32(d * d)
		}))
	})
}

func TestNormApply(t *testing.T) {
	eachNormCase(t, func(t *testing.T, k *Kernels, r *rand.Rand, c *normCase, what string) {
		for _, residual := range [][]float32{nil, c.r} {
			y, check := guarded(r, len(c.x))
			want := make([]float32, len(c.x))
			for i := range want {
				_, want[i] = c.before(i)
				if residual != nil {
					want[i] += residual[i]
				}
				if c.p.ReLU && want[i] < 0 {
					want[i] = 0
				}
			}
			k.NormApply(y, c.x, residual, &c.p)
			sameValues(t, what, y, want)
			check(t, what)
		}
	})
}

func TestNormGrads(t *testing.T) {
	eachNormCase(t, func(t *testing.T, k *Kernels, r *rand.Rand, c *normCase, what string) {
		g := make([]float32, len(c.x))
		for i := range g {
			if _, v := c.before(i); !c.p.ReLU || v > 0 {
				g[i] = c.dy[i]
			}
		}
		sums, acc := make([]float64, 2*c.p.Period), fenced(make([]float32, 2*c.p.Period))
		k.NormGradSums(sums, acc, c.x, c.dy, nil, &c.p)
		sameSums(t, what, sums, c.sums(func(i int) (float32, float32) {
			d, _ := c.before(i)
			return g[i], float32(g[i] * d)
		}))
		dx, check := guarded(r, len(c.x))
		want := make([]float32, len(c.x))
		for i := range want {
			ch := i % c.channels
			d, _ := c.before(i)
			want[i] = float32((g[i]-c.plane[NormShift][ch])*c.plane[NormScale][ch]) - float32(d*c.plane[NormSlope][ch])
		}
		k.NormGrad(dx, c.dy, c.x, &c.p)
		sameValues(t, what, dx, want)
		check(t, what)

		// By the output that r was added to.
		for i := range g {
			if g[i] = c.dy[i]; c.p.ReLU && !(c.r[i] > 0) {
				g[i] = 0
			}
		}
		clear(sums)
		dy := fenced(c.dy)
		k.NormGradSums(sums, acc, c.x, dy, c.r, &c.p)
		sameValues(t, what, dy, g)
		sameSums(t, what, sums, c.sums(func(i int) (float32, float32) {
			d, _ := c.before(i)
			return g[i], float32(g[i] * d)
		}))
		k.NormGrad(c.dy, c.dy, c.x, &c.p)
		sameValues(t, what+" in place", c.dy, want)
	})
}

// BenchmarkNorm is the passes of a batch normalisation of 16 and 64 channels,
// from memory and from the second cache.
func BenchmarkNorm(b *testing.B) {
	for _, s := range [][2]int{{1 << 19, 16}, {1 << 17, 64}, {1 << 11, 64}, {64, 2048}} {
		c := newNormCase(rand.New(rand.NewPCG(63, 64)), s[0], s[1], true)
		y := make([]float32, len(c.x))
		sums, acc := make([]float64, 2*c.p.Period), make([]float32, 2*c.p.Period)
		for _, k := range Levels() {
			for _, op := range []struct {
				name    string
				streams int
				f       func()
			}{
				{"Sums", 1, func() { k.NormSums(sums, acc, c.x, &c.p) }},
				{"Apply", 2, func() { k.NormApply(y, c.x, nil, &c.p) }},
				{"ApplyAdd", 3, func() { k.NormApply(y, c.x, c.r, &c.p) }},
				{"GradSums", 2, func() { k.NormGradSums(sums, acc, c.x, c.dy, nil, &c.p) }},
				{"GradSumsAdd", 4, func() { k.NormGradSums(sums, acc, c.x, y, c.r, &c.p) }},
				{"Grad", 3, func() { k.NormGrad(y, y, c.x, &c.p) }},
			} {
				b.Run(fmt.Sprintf("%s/%dx%d/%s", op.name, s[0], s[1], k.Name()), func(b *testing.B) {
					b.SetBytes(int64(4 * len(c.x) * op.streams))
					for b.Loop() {
						op.f()
					}
				})
			}
		}
	}
}

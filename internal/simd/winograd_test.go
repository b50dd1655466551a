package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// winogradMatrices are B, A and G of F(m x m, 3x3), as Lavin and Gray print
// them: the definition that the kernels are held to.
func winogradMatrices(m int) (bt, at, g [][]float64) {
	if m == 2 {
		return [][]float64{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
			[][]float64{{1, 1, 1, 0}, {0, 1, -1, -1}},
			[][]float64{{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}}
	}
	return [][]float64{{4, 0, -5, 0, 1, 0}, {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0}, {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}},
		[][]float64{{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}},
		[][]float64{{1. / 4, 0, 0}, {-1. / 6, -1. / 6, -1. / 6}, {-1. / 6, 1. / 6, -1. / 6}, {1. / 24, 1. / 12, 1. / 6}, {1. / 24, -1. / 12, 1. / 6}, {0, 0, 1}}
}

// brainMatrices are those of F(4x4, 3x3) with the points 0, ±3/4, ±3/2 and infinity: rows of A and
// G are powers of a point, G's divided by the product of its distances from the other points, and
// rows of Bᵀ the coefficients of that product of polynomials.
func brainMatrices() (bt, at, g [][]float64) {
	points := []float64{0, .75, -.75, 1.5, -1.5}
	at, g = make([][]float64, 4), nil
	without := func(skip int) (poly []float64) {
		poly = []float64{1}
		for j, p := range points {
			if j == skip {
				continue
			}
			next := make([]float64, len(poly)+1)
			for i, c := range poly {
				next[i+1] += c
				next[i] -= p * c
			}
			poly = next
		}
		return poly
	}
	for j, p := range points {
		for i := range at {
			at[i] = append(at[i], math.Pow(p, float64(i)))
		}
		product := without(j)
		bt = append(bt, append(product, 0))
		n := 0.0
		for i, c := range product[:5] {
			n += c * math.Pow(p, float64(i))
		}
		g = append(g, []float64{1 / n, p / n, p * p / n})
	}
	for i := range at {
		at[i] = append(at[i], float64(i/3))
	}
	return append(bt, without(-1)), at, append(g, []float64{0, 0, 1})
}

func matrixTransposed(a [][]float64) [][]float64 {
	t := make([][]float64, len(a[0]))
	for j := range t {
		for i := range a {
			t[j] = append(t[j], a[i][j])
		}
	}
	return t
}

func winogradMatrix(k *Kernels, op WinogradOp, m int) [][]float64 {
	bt, at, g := winogradMatrices(m)
	if m == 4 && k.gemm.pair != nil {
		bt, at, g = brainMatrices()
	}
	return [][][]float64{bt, at, matrixTransposed(at), g, matrixTransposed(g)}[op]
}

func TestWinogradAgainstTheMatrices(t *testing.T) {
	levels := Levels()
	if k, err := BF16(); err == nil {
		levels = append(levels, k)
	}
	for _, k := range levels {
		for _, m := range []int{2, 4} {
			for op := WinogradInput; op <= WinogradWeightsGrad; op++ {
				t.Run(fmt.Sprintf("%s/m%d/op%d", k.Name(), m, op), func(t *testing.T) { checkWinograd(t, k, op, m) })
			}
		}
	}
}

func checkWinograd(t *testing.T, k *Kernels, op WinogradOp, m int) {
	const channels, count = 48, 3
	from, to := op.sides(m)
	r := rand.New(rand.NewPCG(1, 2))
	view := func(side int, padding int) Tiles {
		v := Tiles{Col: channels + 5, Row: side*(channels+5) + 3}
		v.Tile = side*v.Row + padding
		v.Data = fenced(random(r, (count-1)*v.Tile+(side-1)*(v.Row+v.Col)+channels))
		return v
	}
	src, dst := view(from, 7), view(to, 2)
	before := append([]float32(nil), dst.Data...)
	e := WinogradEpilogue{}
	if op == WinogradOutput {
		e = WinogradEpilogue{Bias: fenced(random(r, channels)), ReLU: true}
	}
	var s Scratch
	k.Winograd(&s, op, m, dst, src, channels, count, e)
	matrix := winogradMatrix(k, op, m)
	written := map[int]bool{}
	for tile := range count {
		for c := range channels {
			for i := range to {
				for j := range to {
					want := 0.0
					for p := range from {
						for q := range from {
							want += matrix[i][p] * matrix[j][q] * float64(src.Data[tile*src.Tile+p*src.Row+q*src.Col+c])
						}
					}
					if e.Bias != nil {
						want = max(0, want+float64(e.Bias[c]))
					}
					at := tile*dst.Tile + i*dst.Row + j*dst.Col + c
					written[at] = true
					if got := float64(dst.Data[at]); math.Abs(got-want) > 2e-5*(1+math.Abs(want)) {
						t.Fatalf("tile %d channel %d (%d,%d): %v, want %v", tile, c, i, j, got, want)
					}
				}
			}
		}
	}
	for i, v := range dst.Data {
		if !written[i] && v != before[i] {
			t.Fatalf("value %d does not belong to a tile and was written", i)
		}
	}
}

func BenchmarkWinograd(b *testing.B) {
	const channels, count = 64, 8
	for op := WinogradInput; op <= WinogradWeightsGrad; op++ {
		b.Run(fmt.Sprint(op), func(b *testing.B) {
			from, to := op.sides(4)
			src := Tiles{Data: make([]float32, (count*channels+16)*from*from), Tile: channels, Col: channels*count + 16, Row: (channels*count + 16) * from}
			dst := Tiles{Data: make([]float32, (count*channels+16)*to*to), Tile: channels, Col: channels*count + 16, Row: (channels*count + 16) * to}
			var s Scratch
			for b.Loop() {
				Host().Winograd(&s, op, 4, dst, src, channels, count, WinogradEpilogue{})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(channels*count/16), "ns/vector")
		})
	}
}

package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// takeNaive is the definition, value by value.
func takeNaive(x, grad []float32, least uint32, base int32) (index []int32, value []float32) {
	for i := range x {
		if grad != nil {
			x[i] += grad[i]
		}
		if math.Float32bits(float32(math.Abs(float64(x[i])))) >= least {
			index, value = append(index, base+int32(i)), append(value, x[i])
			x[i] = 0
		}
	}
	return index, value
}

// numbers takes the NaN out of x: which one an addition of two gives is not said.
func numbers(x []float32) {
	for i, v := range x {
		if v != v {
			x[i] = 0.25
		}
	}
}

func TestTake(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(81, 82))
		for _, n := range lengths() {
			for _, bound := range []float32{0, math.SmallestNonzeroFloat32, 0.5, 0.99, float32(math.Inf(1))} {
				for _, added := range []bool{false, true} {
					checkTake(t, k, r, n, Magnitude(bound), added, Few)
					checkTake(t, k, r, n, Magnitude(bound), added, Many)
				}
			}
		}
	})
}

func checkTake(t *testing.T, k *Kernels, r *rand.Rand, n int, least uint32, added bool, often Often) {
	t.Helper()
	x, checkX := guarded(r, n)
	grad, checkGrad := guarded(r, n)
	value, checkValue := guarded(r, n)
	sown(r, x)
	sown(r, grad)
	numbers(x)
	numbers(grad)
	index, base := make([]int32, n+1), int32(r.IntN(1000))
	index[n] = -1
	want := append([]float32(nil), x...)
	var wantIndex []int32
	var wantValue []float32
	var got int
	if added {
		wantIndex, wantValue = takeNaive(want, grad, least, base)
		got = k.TakeAdded(index, value, x, grad, least, base, often)
	} else {
		wantIndex, wantValue = takeNaive(want, nil, least, base)
		got = k.Take(index, value, x, least, base, often)
	}
	what := fmt.Sprintf("%d values, at least %#x, added %v, often %v", n, least, added, often)
	if !slices.Equal(index[:got], wantIndex) {
		t.Fatalf("%s: indices %v, want %v", what, index[:got], wantIndex)
	}
	numbersOnly := func(x []float32) []float32 { // inf - inf
		y := append([]float32(nil), x...)
		for i, v := range y {
			if v != v {
				y[i] = 77
			}
		}
		return y
	}
	sameBits(t, what+": taken", numbersOnly(value[:got]), numbersOnly(wantValue))
	sameBits(t, what+": left", x, want)
	if most := k.CountAtLeast(x, least); most != 0 && least > 0 {
		t.Fatalf("%s: %d of the left are at least as large", what, most)
	}
	checkX(t, what)
	checkGrad(t, what)
	checkValue(t, what)
	if index[n] != -1 {
		t.Errorf("%s: index written outside", what)
	}
}

// NaN is always taken.
func TestTakeTakesNaN(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		for i, bits := range []uint32{0x7f800001, 0xff800001, 0x7fc00000, 0xffffffff, 0x7f800001, 0xff800001} {
			often := Often(i / 3)
			x, index, value := make([]float32, 40), make([]int32, 40), make([]float32, 40)
			for _, at := range []int{0, 17, 39} {
				x[at] = math.Float32frombits(bits)
			}
			if n := k.Take(index, value, x, InfMagnitude, 0, often); n != 3 || !slices.Equal(index[:n], []int32{0, 17, 39}) {
				t.Errorf("%#x: %v was taken", bits, index[:n])
			}
			if n := k.MaxMagnitude([]float32{1, math.Float32frombits(bits)}); n <= InfMagnitude {
				t.Errorf("%#x: the largest magnitude is %#x", bits, n)
			}
		}
	})
}

// Runs at the ends of both arrays, twice the same one, more than a call takes, and none.
func TestAddRuns(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(85, 86))
		for _, runs := range []int{0, 1, 3, callFloats/RunFloats + 5} {
			n := RunFloats + 3 + 5*runs
			a, _ := guarded(r, n)
			b, _ := guarded(r, n)
			dst, check := guarded(r, RunFloats*runs)
			at := make([]uint32, runs)
			for i := range at {
				at[i] = uint32(r.IntN(n - RunFloats + 1))
			}
			if runs > 2 {
				at[0], at[1], at[2] = uint32(n-RunFloats), 0, 0
			}
			k.AddRuns(dst, a, b, at)
			for i, v := range dst {
				if place := int(at[i/RunFloats]) + i%RunFloats; v != a[place]+b[place] {
					t.Fatalf("%d runs: value %d, of place %d, is %v, want %v", runs, i, place, v, a[place]+b[place])
				}
			}
			check(t, fmt.Sprintf("%d runs", runs))
		}
	})
}

func TestAddRunsRefusesPlacesOutside(t *testing.T) {
	x := make([]float32, 40)
	for what, call := range map[string]func(k *Kernels){
		"a run that ends behind the arrays": func(k *Kernels) { k.AddRuns(x[:32], x, x, []uint32{0, 25}) },
		"the last place of all":             func(k *Kernels) { k.AddRuns(x[:16], x, x, []uint32{math.MaxUint32}) },
		"too few values for the runs":       func(k *Kernels) { k.AddRuns(x[:16], x, x, []uint32{0, 1}) },
		"arrays of different lengths":       func(k *Kernels) { k.AddRuns(x[:16], x, x[:39], []uint32{0}) },
	} {
		eachLevel(t, func(t *testing.T, k *Kernels) {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was not refused", what)
				}
			}()
			call(k)
		})
	}
}

func TestMagnitudes(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(83, 84))
		for _, n := range lengths() {
			x, _ := guarded(r, n)
			sown(r, x)
			most, count := uint32(0), 0
			for _, v := range x {
				bits := math.Float32bits(v) & 0x7fffffff
				most = max(most, bits)
				if bits >= Magnitude(0.3) {
					count++
				}
			}
			if got := k.MaxMagnitude(x); got != most {
				t.Errorf("largest of %d: %#x, want %#x", n, got, most)
			}
			if got := k.CountAtLeast(x, Magnitude(0.3)); got != count {
				t.Errorf("count of %d: %d, want %d", n, got, count)
			}
			numbers(x)
			y := append([]float32(nil), x...)
			for i, v := range y {
				y[i] = float32(math.Abs(float64(v)))
			}
			if got, want := k.SumMagnitudes(x), k.Sum(y); got != want {
				t.Errorf("sum of %d: %v, want %v", n, got, want)
			}
			z, _ := guarded(r, n)
			want := make([]float32, n)
			for i := range want {
				want[i] = z[i] - x[i]
			}
			k.Subtract(z, x)
			sameBits(t, "difference", z, want)
		}
	})
}

func TestQuantise(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(85, 86))
		for _, n := range lengths() {
			x, check := guarded(r, n)
			for i := range x {
				if i%3 == 0 {
					x[i] = float32(r.IntN(255)-127) / 254 // a tie, half of the time
				}
			}
			got := make([]int8, n+1)
			got[n] = 99
			k.Quantise(got[:n], x, 127)
			back, checkBack := guarded(r, n)
			k.Dequantise(back, got[:n], 0.37)
			for i, v := range x {
				want := math.RoundToEven(float64(v * 127))
				if float64(got[i]) != want {
					t.Fatalf("%v of %d is %d, want %v", v, n, got[i], want)
				}
				if w := float32(want) * 0.37; back[i] != w {
					t.Fatalf("%d of %d is %v, want %v", got[i], n, back[i], w)
				}
			}
			if got[n] != 99 {
				t.Error("written outside")
			}
			check(t, "quantise")
			checkBack(t, "dequantise")
		}
	})
}

func TestSigns(t *testing.T) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(87, 88))
		for _, n := range lengths() {
			x, _ := guarded(r, n)
			sown(r, x)
			bits := make([]byte, (n+7)/8+1)
			bits[len(bits)-1] = 99
			k.ToSigns(bits[:len(bits)-1], x)
			back, check := guarded(r, n)
			k.FromSigns(back, bits[:len(bits)-1], 0.7)
			for i, v := range x {
				want := float32(0.7)
				if math.Signbit(float64(v)) {
					want = -want
				}
				if back[i] != want {
					t.Fatalf("%d of %d, %v, is %v", i, n, v, back[i])
				}
			}
			if n%8 != 0 && bits[n/8]>>(n%8) != 0 || bits[len(bits)-1] != 99 {
				t.Errorf("%d signs: written behind the last", n)
			}
			check(t, "signs")
		}
	})
}

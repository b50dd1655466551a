package simd

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

var poolWindows = []Window{
	{Channels: 1, Height: 1, Width: 1, Size: 1, Stride: 1},
	{Channels: 20, Height: 8, Width: 6, Size: 2, Stride: 2},
	{Channels: 50, Height: 4, Width: 4, Size: 2, Stride: 2},
	{Channels: 64, Height: 8, Width: 8, Size: 2, Stride: 2},
	{Channels: 16, Height: 7, Width: 9, Size: 2, Stride: 2},
	{Channels: 64, Height: 14, Width: 14, Size: 3, Stride: 2, Pad: 1},
	{Channels: 8, Height: 13, Width: 10, Size: 3, Stride: 2, Pad: 1},
	{Channels: 50, Height: 9, Width: 6, Size: 3, Stride: 1, Pad: 1},
	{Channels: 3, Height: 6, Width: 6, Size: 3, Stride: 3},
	{Channels: 37, Height: 5, Width: 5, Size: 2, Stride: 1, Pad: 1},
	{Channels: 24, Height: 3, Width: 2, Size: 4, Stride: 3, Pad: 2},
	{Channels: 16, Height: 20, Width: 20, Size: 15, Stride: 4, Pad: 7},
	{Channels: 33, Height: 4, Width: 300, Size: 2, Stride: 2},
	{Channels: 160, Height: 4, Width: 250, Size: 2, Stride: 1},
}

// inputs returns the places of window (oy, ox), channel c, with their numbers.
func (w Window) inputs(oy, ox, c int) (places, numbers []int) {
	for ky := range w.Size {
		for kx := range w.Size {
			y, x := oy*w.Stride-w.Pad+ky, ox*w.Stride-w.Pad+kx
			if y >= 0 && y < w.Height && x >= 0 && x < w.Width {
				places = append(places, (y*w.Width+x)*w.Channels+c)
				numbers = append(numbers, ky*w.Size+kx)
			}
		}
	}
	return places, numbers
}

// eachOutput calls f for every output, in their order.
func (w Window) eachOutput(f func(i int, places, numbers []int)) {
	for i := range w.outLen() {
		pixel := i / w.Channels
		places, numbers := w.inputs(pixel/w.OutWidth(), pixel%w.OutWidth(), i%w.Channels)
		f(i, places, numbers)
	}
}

func eachWindow(t *testing.T, f func(t *testing.T, k *Kernels, r *rand.Rand, p *PoolPlan, what string)) {
	eachLevel(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(81, 82))
		var p PoolPlan
		for _, w := range poolWindows {
			if err := w.Validate(); err != nil {
				t.Fatal(err)
			}
			p.Set(w)
			f(t, k, r, &p, fmt.Sprintf("%+v", w))
		}
	})
}

func TestMaxPool(t *testing.T) {
	eachWindow(t, func(t *testing.T, k *Kernels, r *rand.Rand, p *PoolPlan, what string) {
		x, _ := poolInput(r, p.inLen())
		n := p.outLen()
		y, checkY := guarded(r, n)
		args := make([]uint8, n+64)
		for i := range args {
			args[i] = 99
		}
		arg := args[32 : 32+n]
		k.MaxPool(y, arg, x, p)
		dy := random(r, n)
		dx, checkDX := guarded(r, len(x))
		k.MaxPoolGrad(dx, dy, arg, p)
		want, wantDX := make([]float32, n), make([]float32, len(x))
		p.eachOutput(func(i int, places, numbers []int) {
			best := 0
			for j, at := range places {
				if v, b := x[at], x[places[best]]; b == b && (v > b || v != v) {
					best = j
				}
			}
			want[i] = x[places[best]]
			wantDX[places[best]] += dy[i]
			if int(arg[i]) != numbers[best] {
				t.Fatalf("%s: position %d is %d, want %d", what, i, arg[i], numbers[best])
			}
		})
		sameValues(t, what, y, want)
		sameValues(t, what+" gradient", dx, wantDX)
		checkY(t, what)
		checkDX(t, what)
		for i := range 32 {
			if args[i] != 99 || args[32+n+i] != 99 {
				t.Fatalf("%s: positions written outside", what)
			}
		}
	})
}

func TestAvgPool(t *testing.T) {
	eachWindow(t, func(t *testing.T, k *Kernels, r *rand.Rand, p *PoolPlan, what string) {
		x, _ := guarded(r, p.inLen())
		n := p.outLen()
		y, checkY := guarded(r, n)
		dy := random(r, n)
		dx, checkDX := guarded(r, len(x))
		k.AvgPool(y, x, p)
		k.AvgPoolGrad(dx, dy, p)
		want, wantDX, scale := make([]float32, n), make([]float32, len(x)), 1/float32(p.Size*p.Size)
		p.eachOutput(func(i int, places, _ []int) {
			for _, at := range places {
				want[i] += x[at]
				wantDX[at] += float32(dy[i] * scale)
			}
			want[i] *= scale
		})
		sameValues(t, what, y, want)
		sameValues(t, what+" gradient", dx, wantDX)
		checkY(t, what)
		checkDX(t, what)
	})
}

func TestWindowValidate(t *testing.T) {
	good := poolWindows[1]
	for want, change := range map[string]func(w *Window){
		"has no values":   func(w *Window) { w.Height = 0 },
		"window size":     func(w *Window) { w.Size = 16 },
		"stride 0":        func(w *Window) { w.Stride = 0 },
		"padding 2":       func(w *Window) { w.Pad = 2 },
		"window is large": func(w *Window) { w.Size = 9 },
	} {
		w := good
		change(&w)
		if err := w.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", w, err, want)
		}
	}
}

// BenchmarkPool is a pooling layer of VGG16 and the one of ResNet-50, one image:
// bytes read and written.
func BenchmarkPool(b *testing.B) {
	for _, w := range []Window{
		{Channels: 64, Height: 32, Width: 32, Size: 2, Stride: 2},
		{Channels: 64, Height: 112, Width: 112, Size: 3, Stride: 2, Pad: 1},
	} {
		var p PoolPlan
		p.Set(w)
		x, y, arg := random(rand.New(rand.NewPCG(83, 84)), w.inLen()), make([]float32, w.outLen()), make([]uint8, w.outLen())
		for _, k := range Levels() {
			for _, op := range []struct {
				name string
				f    func()
			}{
				{"Max", func() { k.MaxPool(y, arg, x, &p) }},
				{"MaxGrad", func() { k.MaxPoolGrad(x, y, arg, &p) }},
				{"Avg", func() { k.AvgPool(y, x, &p) }},
				{"AvgGrad", func() { k.AvgPoolGrad(x, y, &p) }},
			} {
				b.Run(fmt.Sprintf("%s/%dx%d/%s", op.name, w.Size, w.Height, k.Name()), func(b *testing.B) {
					b.SetBytes(int64(4*len(x) + 5*len(y)))
					b.ReportAllocs()
					for b.Loop() {
						op.f()
					}
				})
			}
		}
	}
}

// poolInput is n values among which there are ties, infinities and NaN.
func poolInput(r *rand.Rand, n int) ([]float32, func(*testing.T, string)) {
	x, check := guarded(r, n)
	for i := range x {
		switch r.IntN(8) {
		case 0:
			x[i] = specials[r.IntN(len(specials))]
		case 1:
			x[i] = float32(r.IntN(3)) - 1 // ties
		}
	}
	return x, check
}

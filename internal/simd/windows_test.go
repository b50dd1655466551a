package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// at is the definition: where column j of window i lies, or -1.
func (p Windows) at(i, j int) int {
	c, kx, ky := j%p.Channels, j/p.Channels%p.KernelWidth, j/p.Channels/p.KernelWidth
	x, y, image := i%p.OutWidth(), i/p.OutWidth()%p.OutHeight(), i/p.Rows()
	iy, ix := y*p.stride()+ky-p.Pad, x*p.stride()+kx-p.Pad
	if iy < 0 || iy >= p.Height || ix < 0 || ix >= p.Width {
		return -1
	}
	return image*p.ImageSize() + (iy*p.Width+ix)*p.Channels + c
}

var windowShapes = []Windows{
	{Height: 5, Width: 6, Channels: 3, KernelHeight: 3, KernelWidth: 3, Pad: 1},
	{Height: 7, Width: 5, Channels: 1, KernelHeight: 5, KernelWidth: 5},
	{Height: 9, Width: 8, Channels: 2, KernelHeight: 3, KernelWidth: 3, Stride: 2, Pad: 1},
	{Height: 11, Width: 12, Channels: 3, KernelHeight: 7, KernelWidth: 7, Stride: 2, Pad: 3},
	{Height: 6, Width: 6, Channels: 17, KernelHeight: 1, KernelWidth: 1, Stride: 2},
	{Height: 4, Width: 4, Channels: 16, KernelHeight: 1, KernelWidth: 1},
	{Height: 2, Width: 2, Channels: 4, KernelHeight: 5, KernelWidth: 5, Pad: 2},
	{Height: 3, Width: 8, Channels: 2, KernelHeight: 2, KernelWidth: 4, Stride: 3, Pad: 2},
}

func TestWindowsAgainstTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, p := range windowShapes {
		const images = 3
		data := make([]float32, images*p.ImageSize())
		for i := range data {
			data[i] = float32(r.IntN(100))
		}
		data = fenced(data)
		for _, k := range Levels() {
			for range 20 {
				i0 := r.IntN(images * p.Rows())
				rows := r.IntN(images*p.Rows()-i0) + 1
				k0 := r.IntN(p.Cols())
				kc := r.IntN(p.Cols()-k0) + 1
				ld := kc + 3
				dst := fenced(make([]float32, stored(rows, kc, ld)))
				for i := range dst {
					dst[i] = float32(math.NaN())
				}
				first := r.IntN(i0 + 1)
				(&WindowRows{p, k, data, first}).PackRows(dst, ld, i0-first, rows, k0, kc)
				for i := range rows {
					for j := range kc {
						want := float32(0)
						if at := p.at(i0+i, k0+j); at >= 0 {
							want = data[at]
						}
						if dst[i*ld+j] != want {
							t.Fatalf("%s %+v: row %d column %d is %v, want %v", k.Name(), p, i0+i, k0+j, dst[i*ld+j], want)
						}
					}
				}
				checkAddWindows(t, k, p, data, i0, rows)
			}
		}
	}
}

func checkAddWindows(t *testing.T, k *Kernels, p Windows, data []float32, i0, rows int) {
	ld := p.Cols() + 1
	cols := fenced(make([]float32, stored(rows, p.Cols(), ld)))
	for i := range cols {
		cols[i] = float32(i % 97) // sums are exact
	}
	got := fenced(data)
	k.AddWindows(got, p, cols, ld, i0, rows)
	want := append([]float32(nil), data...)
	for i := range rows {
		for j := range p.Cols() {
			if at := p.at(i0+i, j); at >= 0 {
				want[at] += cols[i*ld+j]
			}
		}
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s %+v: value %d is %v, want %v", k.Name(), p, i, got[i], want[i])
		}
	}
}

func TestWindowsValidate(t *testing.T) {
	for _, p := range windowShapes {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []Windows{{}, {Height: 2, Width: 5, Channels: 1, KernelHeight: 3, KernelWidth: 3}, {Height: 5, Width: 5, Channels: 1, KernelHeight: 3, KernelWidth: 3, Pad: -1}} {
		if p.Validate() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

func BenchmarkPackRows(b *testing.B) {
	for _, p := range []Windows{
		{Height: 28, Width: 28, Channels: 1, KernelHeight: 5, KernelWidth: 5},
		{Height: 12, Width: 12, Channels: 20, KernelHeight: 5, KernelWidth: 5},
		{Height: 32, Width: 32, Channels: 3, KernelHeight: 3, KernelWidth: 3, Pad: 1},
		{Height: 32, Width: 32, Channels: 16, KernelHeight: 3, KernelWidth: 3, Pad: 1, Stride: 2},
	} {
		b.Run(fmt.Sprintf("%dx%dx%d", p.KernelHeight, p.KernelWidth, p.Channels), func(b *testing.B) {
			w := &WindowRows{p, Host(), make([]float32, p.ImageSize()), 0}
			ld := (p.Cols()+15)/16*16 | 16
			dst := make([]float32, p.Rows()*ld)
			b.SetBytes(int64(4 * p.Rows() * p.Cols()))
			b.ReportAllocs()
			for b.Loop() {
				w.PackRows(dst, ld, 0, p.Rows(), 0, p.Cols())
			}
		})
	}
}

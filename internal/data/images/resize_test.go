package images

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// naiveResize is the definition: every output pixel is the weighted mean of
// the inputs under a triangle of the scale's width, across and then down.
func naiveResize(src []uint8, w, h, ow, oh int) []uint8 {
	pass := func(in []float64, n, stride, count, other, out int) []float64 {
		result := make([]float64, out*count*3)
		scale := float64(n) / float64(out)
		filter := max(scale, 1)
		for line := range count {
			for o := range out {
				centre := (float64(o) + 0.5) * scale
				var sum, value [3]float64
				for i := range n {
					weight := max(0, 1-math.Abs(float64(i)+0.5-centre)/filter)
					for c := range 3 {
						sum[c] += weight
						value[c] += weight * in[(line*other+i*stride)*3+c]
					}
				}
				for c := range 3 {
					at := (line*out + o) * 3
					if stride != 1 {
						at = (o*count + line) * 3
					}
					result[at+c] = math.Floor(value[c]/sum[c] + 0.5)
				}
			}
		}
		return result
	}
	in := make([]float64, len(src))
	for i, v := range src {
		in[i] = float64(v)
	}
	across := pass(in, w, 1, h, w, ow)
	both := pass(across, h, ow, ow, 1, oh)
	out := make([]uint8, len(both))
	for i, v := range both {
		out[i] = uint8(v)
	}
	return out
}

func TestResize(t *testing.T) {
	var r resizer
	for _, c := range [][4]int{
		{8, 8, 8, 8}, {31, 17, 8, 9}, {5, 7, 13, 29}, {1, 1, 4, 4}, {2, 3, 1, 1}, {100, 3, 7, 9}, {64, 48, 63, 49}, {3, 90, 30, 9}, {9, 9, 2, 1},
	} {
		w, h, ow, oh := c[0], c[1], c[2], c[3]
		src := datatest.Noise(3 * w * h)
		want := naiveResize(src, w, h, ow, oh)
		got := make([]uint8, 3*ow*oh)
		r.resize(got, src, w, h, window{ow, 0, ow}, window{oh, 0, oh})
		for i := range got {
			// A weight of 22 bits can fall to the other side of a half.
			if d := int(got[i]) - int(want[i]); d < -1 || d > 1 {
				t.Fatalf("%v: value %d is %d, want %d", c, i, got[i], want[i])
			}
		}
		if w == ow && h == oh && !slices.Equal(got, src) {
			t.Errorf("%v: the same size is not the same image", c)
		}
		// A window is a part of the whole.
		x, y := window{ow, ow / 3, ow - ow/3}, window{oh, oh / 2, 1}
		part := make([]uint8, 3*x.n)
		r.resize(part, src, w, h, x, y)
		if !slices.Equal(part, got[(y.offset*ow+x.offset)*3:][:3*x.n]) {
			t.Errorf("%v: the window differs from the whole", c)
		}
		for i := range src {
			src[i] = 255
		}
		r.resize(got, src, w, h, window{ow, 0, ow}, window{oh, 0, oh})
		if slices.Min(got) != 255 {
			t.Errorf("%v: white became %d", c, slices.Min(got))
		}
	}
}

// The same pixels as Pillow's Image.resize(size, Image.BILINEAR) gives.
func TestResizeIsPillows(t *testing.T) {
	var r resizer
	for _, c := range []struct {
		w, h, ow, oh int
		sha256       string // of Pillow 9.4's result, its beginning
	}{
		{31, 17, 8, 9, "c43b0faef394f5c9"},
		{500, 375, 224, 224, "3b4651e1ecbfc431"},
		{64, 48, 63, 49, "d2d9e16af6c38a48"},
		{5, 7, 13, 29, "475cfe7472ec295a"},
		{300, 224, 256, 191, "571e74a89726f542"},
		{3, 90, 30, 9, "69e80f43e9ca9d80"},
		{224, 150, 224, 224, "f4c7800e332db9f0"},
	} {
		src := make([]uint8, 0, 3*c.w*c.h)
		for y := range c.h {
			for x := range c.w {
				for k := range 3 {
					src = append(src, uint8(x*37+y*101+k*53+x*y*7))
				}
			}
		}
		dst := make([]uint8, 3*c.ow*c.oh)
		r.resize(dst, src, c.w, c.h, window{c.ow, 0, c.ow}, window{c.oh, 0, c.oh})
		if got := fmt.Sprintf("%x", sha256.Sum256(dst))[:16]; got != c.sha256 {
			t.Errorf("%dx%d to %dx%d: %s, want %s", c.w, c.h, c.ow, c.oh, got, c.sha256)
		}
	}
}

func TestRandomCrop(t *testing.T) {
	for _, c := range [][2]int{{500, 375}, {224, 224}, {1, 1}, {1000, 10}, {10, 1000}, {2, 3}} {
		var least, most = math.Inf(1), 0.0
		for i := range 2000 {
			r := prng.New(1, 2, uint64(i))
			b := randomCrop(c[0], c[1], &r)
			if b.Empty() || b.Min.X < 0 || b.Min.Y < 0 || b.Max.X > c[0] || b.Max.Y > c[1] {
				t.Fatalf("%v: %v", c, b)
			}
			share := float64(b.Dx()*b.Dy()) / float64(c[0]*c[1])
			least, most = min(least, share), max(most, share)
			if ratio := float64(b.Dx()) / float64(b.Dy()); c[0] > 200 && (ratio < 0.74 || ratio > 1.35) {
				t.Errorf("%v: proportion %v", c, ratio)
			}
		}
		if c[0] > 200 && c[1] > 200 && (least > 0.1 || least < 0.075 || most < 0.9) {
			t.Errorf("%v: %.3f to %.3f of the area", c, least, most)
		}
	}
}

func TestCentreWindows(t *testing.T) { // as torchvision's Resize(256), CenterCrop(224)
	for _, c := range []struct {
		w, h, size int
		x, y       window
	}{
		{500, 375, 224, window{341, 58, 224}, window{256, 16, 224}},
		{375, 500, 224, window{256, 16, 224}, window{341, 58, 224}},
		{256, 256, 224, window{256, 16, 224}, window{256, 16, 224}},
		{10, 10, 32, window{37, 2, 32}, window{37, 2, 32}},
		{40, 10, 8, window{36, 14, 8}, window{9, 0, 8}},
	} {
		if x, y := centreWindows(c.w, c.h, c.size); x != c.x || y != c.y {
			t.Errorf("%dx%d: %v %v, want %v %v", c.w, c.h, x, y, c.x, c.y)
		}
	}
}

func TestFlip(t *testing.T) {
	for _, w := range []int{1, 2, 5} {
		pix := datatest.Noise(3 * w * 2)
		got := slices.Clone(pix)
		flip(got, w)
		for y := range 2 {
			for x := range w {
				a, b := got[(y*w+x)*3:][:3], pix[(y*w+w-1-x)*3:][:3]
				if !slices.Equal(a, b) {
					t.Errorf("width %d: (%d, %d) is %v, want %v", w, x, y, a, b)
				}
			}
		}
	}
}

func BenchmarkResize(b *testing.B) {
	src, dst := datatest.Noise(3*500*375), make([]uint8, 3*224*224)
	for _, c := range [][2]int{{500, 375}, {150, 200}} {
		b.Run(fmt.Sprintf("%dx%d", c[0], c[1]), func(b *testing.B) {
			var r resizer
			for b.Loop() {
				r.resize(dst, src, c[0], c[1], window{224, 0, 224}, window{224, 0, 224})
			}
		})
	}
}

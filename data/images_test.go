package data

import (
	"testing"
)

func TestFillNormalises(t *testing.T) {
	im := &Images{N: 3, Rows: 2, Cols: 4, Channels: 2, Pixels: make([]uint8, 48), Labels: []uint8{7, 0, 9}}
	for i := range im.Pixels {
		im.Pixels[i] = uint8(i * 5)
	}
	idx := []int32{2, 0, 2}
	dst, labels := make([]float32, 3*16), make([]int32, 3)
	im.Fill(dst, labels, idx)
	for i, n := range idx {
		if labels[i] != int32(im.Labels[n]) {
			t.Errorf("label %d is %d, want %d", i, labels[i], im.Labels[n])
		}
		for j := range 16 {
			x := float32(im.Pixels[int(n)*16+j])
			if want := (x/255 - 0.1307) / 0.3081; dst[i*16+j] != want {
				t.Fatalf("image %d value %d is %v, want %v", i, j, dst[i*16+j], want)
			}
		}
	}
	if n := testing.AllocsPerRun(10, func() { im.Fill(dst, labels, idx) }); n != 0 {
		t.Errorf("Fill allocates %v times", n)
	}
}

func TestFillPanicsOutOfRange(t *testing.T) {
	im, _ := SyntheticMNIST(1, 2, 0)
	for _, c := range []struct {
		name        string
		dst, labels int
		idx         int32
	}{{"dst", 783, 1, 0}, {"labels", 784, 0, 0}, {"index", 784, 1, 2}, {"negative", 784, 1, -1}} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			im.Fill(make([]float32, c.dst), make([]int32, c.labels), []int32{c.idx})
		})
	}
}

func BenchmarkFill(b *testing.B) { // a batch of 64
	im, _ := SyntheticMNIST(1, 640, 0)
	idx := Permutation(1, 0, 640, nil)[:64]
	dst, labels := make([]float32, 64*784), make([]int32, 64)
	b.SetBytes(64 * 784)
	for b.Loop() {
		im.Fill(dst, labels, idx)
	}
}

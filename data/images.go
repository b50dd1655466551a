// Package data holds what a job is trained on: the MNIST reader and fetcher, a
// synthetic twin of MNIST that needs no download, and the rules by which ranks
// share the samples of an epoch.
package data

// Images is a labelled set of images of one size, held in memory as bytes.
type Images struct {
	N, Rows, Cols, Channels int
	Pixels                  []uint8 // N*Channels*Rows*Cols, row-major
	Labels                  []uint8 // N
}

// The mean and the standard deviation of MNIST's training pixels on a scale of
// 0 to 1, by which everyone normalises them.
const (
	mean      = 0.1307
	deviation = 0.3081
)

// normalised maps a byte to its value in the network's input. Never written.
var normalised = func() (t [256]float32) {
	for i := range t {
		t[i] = (float32(i)/255 - mean) / deviation
	}
	return t
}()

// Size is the number of values per image: Channels*Rows*Cols.
func (im *Images) Size() int { return im.Channels * im.Rows * im.Cols }

// Fill writes the images idx, normalised as (x/255-0.1307)/0.3081, one after
// the other to dst and their labels to labels. dst holds len(idx)*Size()
// values or more, labels len(idx) or more, every index is in [0, N): like
// indexing a slice, anything else panics. A table of 256 values makes it one
// look-up per pixel; nothing is allocated.
func (im *Images) Fill(dst []float32, labels []int32, idx []int32) {
	size := im.Size()
	dst = dst[:len(idx)*size]
	labels = labels[:len(idx)]
	for i, n := range idx {
		src := im.Pixels[int(n)*size:][:size]
		out := dst[i*size:][:size]
		for j, x := range src {
			out[j] = normalised[x]
		}
		labels[i] = int32(im.Labels[n])
	}
}

func newImages(n, rows, cols int) *Images {
	return &Images{
		N: n, Rows: rows, Cols: cols, Channels: 1,
		Pixels: make([]uint8, n*rows*cols),
		Labels: make([]uint8, n),
	}
}

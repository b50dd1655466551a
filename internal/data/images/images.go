// Package images reads, decodes, augments and draws images: MNIST, CIFAR-10, trees of folders and
// shards. Pixels become model inputs in the memory of a caller, such as a batch.
package images

// Images are labelled images of one size in memory.
type Images struct {
	N, Rows, Cols, Channels int
	Pixels                  []uint8 // N*Rows*Cols*Channels, row-major, channels last
	Labels                  []uint8 // N
}

// Statistics are the mean and the standard deviation of a set's training pixels by channel, on a
// scale of 0 to 1: the usual constants of normalisation.
type Statistics struct{ Mean, Deviation []float32 }

// MNISTStatistics returns the statistics of MNIST's training images.
func MNISTStatistics() Statistics { return Statistics{[]float32{0.1307}, []float32{0.3081}} }

// CIFARStatistics returns the statistics of CIFAR-10's training images.
func CIFARStatistics() Statistics {
	return Statistics{[]float32{0.4914, 0.4822, 0.4465}, []float32{0.2470, 0.2435, 0.2616}}
}

// ImageNetStatistics returns the statistics of ImageNet's training images.
func ImageNetStatistics() Statistics {
	return Statistics{[]float32{0.485, 0.456, 0.406}, []float32{0.229, 0.224, 0.225}}
}

// Tables returns the model input for each byte, by channel.
func (s Statistics) Tables() [][256]float32 {
	t := make([][256]float32, len(s.Mean))
	for c := range t {
		for i := range t[c] {
			t[c][i] = (float32(i)/255 - s.Mean[c]) / s.Deviation[c]
		}
	}
	return t
}

// Size returns the number of values per image: Rows*Cols*Channels.
func (im *Images) Size() int { return im.Channels * im.Rows * im.Cols }

func newImages(n, rows, cols int) *Images {
	return &Images{
		N: n, Rows: rows, Cols: cols, Channels: 1,
		Pixels: make([]uint8, n*rows*cols),
		Labels: make([]uint8, n),
	}
}

// Normalise converts interleaved bytes to model inputs.
func Normalise(dst []float32, src []uint8, table [][256]float32) {
	dst = dst[:len(src)]
	switch len(table) {
	case 1:
		for i, x := range src {
			dst[i] = table[0][x]
		}
	case 3:
		r, g, b := &table[0], &table[1], &table[2]
		for i := 0; i+3 <= len(src); i += 3 {
			dst[i], dst[i+1], dst[i+2] = r[src[i]], g[src[i+1]], b[src[i+2]]
		}
	default:
		for i, x := range src {
			dst[i] = table[i%len(table)][x]
		}
	}
}

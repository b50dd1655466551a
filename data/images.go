package data

import (
	"encoding/binary"
	"io"

	"github.com/ringo-ml/ringo/internal/data/prng"
)

// Images is a labelled set of images of one size, held in memory as bytes.
type Images struct {
	N, Rows, Cols, Channels int
	Pixels                  []uint8 // N*Rows*Cols*Channels, row-major, channels last
	Labels                  []uint8 // N
}

// statistics are the mean and the standard deviation of a set's training
// pixels by channel, on a scale of 0 to 1: the figures by which everyone
// normalises them.
type statistics struct{ mean, deviation []float32 }

func mnistStatistics() statistics { return statistics{[]float32{0.1307}, []float32{0.3081}} }
func cifarStatistics() statistics {
	return statistics{[]float32{0.4914, 0.4822, 0.4465}, []float32{0.2470, 0.2435, 0.2616}}
}
func imagenetStatistics() statistics {
	return statistics{[]float32{0.485, 0.456, 0.406}, []float32{0.229, 0.224, 0.225}}
}

// tables map a byte to its value in the network's input, by channel.
func (s statistics) tables() [][256]float32 {
	t := make([][256]float32, len(s.mean))
	for c := range t {
		for i := range t[c] {
			t[c][i] = (float32(i)/255 - s.mean[c]) / s.deviation[c]
		}
	}
	return t
}

// Size is the number of values per image: Rows*Cols*Channels.
func (im *Images) Size() int { return im.Channels * im.Rows * im.Cols }

func newImages(n, rows, cols int) *Images {
	return &Images{
		N: n, Rows: rows, Cols: cols, Channels: 1,
		Pixels: make([]uint8, n*rows*cols),
		Labels: make([]uint8, n),
	}
}

// pixels is the source of images held in memory as bytes.
type pixels struct {
	shape  Shape // Values: height, width, channels
	bytes  []uint8
	labels []int32
	table  [][256]float32 // by channel: Normalise of byte/255
}

// jittered is the usual augmentation of small images: the image is surrounded by
// pad black pixels, a window of its own size cut out at random, and mirrored
// half of the time.
func (p *pixels) jittered(pad int) Source {
	black := make([]float32, len(p.table))
	for c := range black {
		black[c] = p.table[c][0]
	}
	return transformed{Source: p, transforms: []Transform{RandomCrop(pad, black...), RandomFlip()}}
}

func newPixels(im *Images, s statistics) *pixels {
	p := &pixels{
		shape: Shape{Values: []int{im.Rows, im.Cols, im.Channels}, Labels: 1},
		bytes: im.Pixels, labels: make([]int32, im.N), table: s.tables(),
	}
	for i, l := range im.Labels {
		p.labels[i] = int32(l)
	}
	return p
}

func (p *pixels) Len() int     { return len(p.labels) }
func (p *pixels) Shape() Shape { return p.shape }

func (p *pixels) evidence(w io.Writer) { writeInts(w, p.labels) }

// writeInts writes them without an allocation per value.
func writeInts(w io.Writer, values []int32) {
	var buf []byte
	for len(values) > 0 {
		n := min(len(values), 4096)
		buf = buf[:0]
		for _, v := range values[:n] {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(v))
		}
		w.Write(buf) // of a hash: never fails
		values = values[n:]
	}
}

// Fill normalises the images, one table look-up per value.
func (p *pixels) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(p.shape, len(idx))
	size := p.shape.Size()
	for i, n := range idx {
		b.Labels[i] = p.labels[n]
		normalise(b.Values[i*size:][:size], p.bytes[int(n)*size:][:size], p.table)
	}
	return nil
}

// drawOf starts the generator of a sample in an epoch.
func drawOf(d Draw, sample int32) prng.Rand {
	const purpose = 0x6a09e667f3bcc908 // apart from the shuffle of the same seed
	return prng.New(d.Seed^purpose, uint64(d.Epoch), uint64(sample))
}

// normalise maps interleaved bytes to floats.
func normalise(dst []float32, src []uint8, table [][256]float32) {
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

// mirrorRow reverses a row of pixels of c values.
func mirrorRow(row []float32, c int) {
	for i, j := 0, len(row)-c; i < j; i, j = i+c, j-c {
		for k := range c {
			row[i+k], row[j+k] = row[j+k], row[i+k]
		}
	}
}

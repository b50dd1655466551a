package data

import (
	"io"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

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

func newPixels(im *images.Images, s images.Statistics) *pixels {
	p := &pixels{
		shape: Shape{Values: []int{im.Rows, im.Cols, im.Channels}, Labels: 1},
		bytes: im.Pixels, labels: make([]int32, im.N), table: s.Tables(),
	}
	for i, l := range im.Labels {
		p.labels[i] = int32(l)
	}
	return p
}

func (p *pixels) Len() int     { return len(p.labels) }
func (p *pixels) Shape() Shape { return p.shape }

func (p *pixels) evidence(w io.Writer) { _, _ = w.Write(bytesview.Bytes(p.labels)) }

// Fill normalises the images, one table look-up per value.
func (p *pixels) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(p.shape, len(idx))
	size := p.shape.Size()
	for i, n := range idx {
		b.Labels[i] = p.labels[n]
		images.Normalise(b.Values[i*size:][:size], p.bytes[int(n)*size:][:size], p.table)
	}
	return nil
}

// drawOf starts the generator of a sample in an epoch.
func drawOf(d Draw, sample int32) prng.Rand {
	const purpose = 0x6a09e667f3bcc908 // apart from the shuffle of the same seed
	return prng.New(d.Seed^purpose, uint64(d.Epoch), uint64(sample))
}

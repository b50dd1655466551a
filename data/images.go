package data

import (
	"io"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// pixels is the source of images in memory as bytes.
type pixels struct {
	shape  Shape // Values: height, width, channels
	bytes  []uint8
	labels []int32
	table  [][256]float32 // Normalise of byte/255, by channel
}

// jittered is the standard augmentation of small images: pad the image with pad black pixels, crop
// a random window of the original size, and mirror half of the windows.
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

// Fill normalises the images with one table look-up per value.
func (p *pixels) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(p.shape, len(idx))
	size := p.shape.Size()
	for i, n := range idx {
		b.Labels[i] = p.labels[n]
		images.Normalise(b.Values[i*size:][:size], p.bytes[int(n)*size:][:size], p.table)
	}
	return nil
}

// drawOf returns the random generator of a sample in an epoch.
func drawOf(d Draw, sample int32) prng.Rand {
	const purpose = 0x6a09e667f3bcc908 // separates the sequence from the shuffle of the same seed
	return prng.New(d.Seed^purpose, uint64(d.Epoch), uint64(sample))
}

// encoded is the source of images that are decoded on demand.
type encoded struct {
	*images.Encoded
	shape Shape
}

func newEncoded(pictures []images.Picture, labels []int32, size int, bad *datafile.Skips) *encoded {
	return &encoded{images.NewEncoded(pictures, labels, size, bad), Shape{Values: []int{size, size, 3}, Labels: 1}}
}

func (e *encoded) Len() int     { return len(e.Pictures) }
func (e *encoded) Shape() Shape { return e.shape }

func (e *encoded) evidence(w io.Writer) {
	_, _ = w.Write(bytesview.Bytes(e.Labels)) // hash.Write never fails
	for _, p := range e.Pictures {
		_, _ = io.WriteString(w, p.Key)
	}
}

// Fill decodes the images sequentially.
func (e *encoded) Fill(b *Batch, idx []int32, d Draw) (err error) {
	b.Resize(e.shape, len(idx))
	size := e.shape.Size()
	for i, n := range idx {
		if b.Labels[i], err = e.Decode(b.Values[i*size:][:size], n, d.Augment, drawOf(d, n)); err != nil {
			return err
		}
	}
	return nil
}

// stripes is the source of synthetic images of any size.
type stripes struct {
	*images.Stripes
	n     int
	shape Shape
}

func (s *stripes) Len() int     { return s.n }
func (s *stripes) Shape() Shape { return s.shape }

func (s *stripes) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(s.shape, len(idx))
	size := s.shape.Size()
	for i, n := range idx {
		if n < 0 || int(n) >= s.n {
			panic("data: index out of range")
		}
		b.Labels[i] = s.Draw(b.Values[i*size:][:size], int(n))
	}
	return nil
}

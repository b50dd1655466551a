package data

import (
	"io"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
)

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

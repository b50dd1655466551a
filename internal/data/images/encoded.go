package images

import (
	"fmt"
	"image"
	"sync"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// Encoded decodes images on demand, from files or from encoded bytes in memory, and crops and
// resizes each image to Size x Size. The standard decoders allocate memory.
type Encoded struct {
	Pictures []Picture
	Labels   []int32
	Size     int
	Table    [][256]float32 // model input for each byte, by channel
	Whole    bool           // small images: evaluated without a central crop
	skips    *datafile.Skips
	scratch  sync.Pool

	mu  sync.Mutex
	bad map[int32]bool // bad images, each replaced by the next good image
}

// scratch is the memory of one decoding.
type scratch struct {
	resizer
	stored, source, result []uint8 // stored: used for rotated images only
}

// NewEncoded returns the images of pictures and labels, normalised as those of ImageNet.
func NewEncoded(pictures []Picture, labels []int32, size int, bad *datafile.Skips) *Encoded {
	e := &Encoded{Pictures: pictures, Labels: labels, Size: size, Table: ImageNetStatistics().Tables(), skips: bad, bad: map[int32]bool{}}
	e.scratch.New = func() any { return new(scratch) }
	return e
}

// Decode writes image n, normalised, and returns the label. The next good image of the set replaces
// a bad image that may be skipped, in every epoch. With augment, r draws the crop and the
// mirroring.
func (e *Encoded) Decode(dst []float32, n int32, augment bool, r prng.Rand) (label int32, err error) {
	s := e.scratch.Get().(*scratch)
	defer e.scratch.Put(s)
	n, err = e.sample(s, n, augment, &r)
	if err != nil {
		return 0, err
	}
	pix := s.result
	if len(e.Table) == 1 {
		pix = Grey(pix)
	}
	Normalise(dst, pix, e.Table)
	return e.Labels[n], nil
}

// sample decodes image n or the next good image to s.result, and returns the index.
func (e *Encoded) sample(s *scratch, n int32, augment bool, r *prng.Rand) (int32, error) {
	for range e.Pictures {
		if !e.Known(n) {
			err := e.decode(s, n, augment, r)
			if err == nil {
				return n, nil
			}
			if err = e.skip(n, err); err != nil {
				return 0, err
			}
		}
		n = (n + 1) % int32(len(e.Pictures))
	}
	return 0, fmt.Errorf("every one of %d images is bad, the first being %s", len(e.Pictures), e.Pictures[0].Path)
}

// Known reports whether image n was found bad.
func (e *Encoded) Known(n int32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bad[n]
}

// skip counts a bad image once.
func (e *Encoded) skip(n int32, fault error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bad[n] {
		return nil
	}
	if err := e.skips.Skip(fault); err != nil {
		return err
	}
	e.bad[n] = true
	return nil
}

// decode writes size x size RGB bytes to s.result.
func (e *Encoded) decode(s *scratch, n int32, augment bool, r *prng.Rand) error {
	p := &e.Pictures[n]
	content, err := p.load()
	if err != nil {
		return err
	}
	im, turn, err := decodeImage(p.Path, content)
	if err != nil {
		return err
	}
	w, h := turn.size(im.Bounds().Dx(), im.Bounds().Dy())
	box := image.Rect(0, 0, w, h)
	wx, wy := window{e.Size, 0, e.Size}, window{e.Size, 0, e.Size}
	switch {
	case augment:
		box = randomCrop(w, h, r)
		w, h = box.Dx(), box.Dy()
	case e.Whole:
		x, y, side := Middle(w, h)
		box, w, h = image.Rect(x, y, x+side, y+side), side, side
	default:
		wx, wy = centreWindows(w, h, e.Size)
	}
	s.cut(im, box, turn)
	s.result = bytesview.Sized(s.result, 3*e.Size*e.Size)
	s.resize(s.result, s.source, w, h, wx, wy)
	if augment && r.Below(2) == 1 {
		flip(s.result, e.Size)
	}
	return nil
}

// cut writes a box of the rotated image to s.source.
func (s *scratch) cut(im image.Image, box image.Rectangle, turn orientation) {
	n := 3 * box.Dx() * box.Dy()
	s.source = bytesview.Sized(s.source, n)
	bounds := im.Bounds()
	if !turn.turned() {
		rgb(s.source, im, box.Add(bounds.Min))
		return
	}
	box = turn.box(box, bounds.Dx(), bounds.Dy())
	s.stored = bytesview.Sized(s.stored, n)
	rgb(s.stored, im, box.Add(bounds.Min))
	turn.turn(s.source, s.stored, box.Dx(), box.Dy())
}

package data

import (
	"archive/tar"
	"fmt"
	"image"
	"io"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// encoded is the source of images kept as files, or in memory as they were
// encoded, each decoded when it is needed and cropped and resized to one size.
// Decoding allocates: the standard decoders do.
type encoded struct {
	pictures []picture
	labels   []int32
	shape    Shape
	size     int
	table    [][256]float32
	skips    *datafile.Skips
	scratch  sync.Pool // of *scratch
	whole    bool      // small ones that are seen whole, not their middle

	mu  sync.Mutex
	bad map[int32]bool // found to be so; the next good image stands in
}

// scratch is the memory of one decoding.
type scratch struct {
	resizer
	stored, source, result []uint8 // stored: only where it is to be turned
}

func newEncoded(pictures []picture, labels []int32, size int, bad *datafile.Skips) *encoded {
	e := &encoded{
		pictures: pictures, labels: labels,
		shape: Shape{Values: []int{size, size, 3}, Labels: 1}, size: size,
		table: imagenetStatistics().tables(), skips: bad, bad: map[int32]bool{},
	}
	e.scratch.New = func() any { return new(scratch) }
	return e
}

func (e *encoded) Len() int     { return len(e.pictures) }
func (e *encoded) Shape() Shape { return e.shape }

func (e *encoded) evidence(w io.Writer) {
	writeInts(w, e.labels)
	for _, p := range e.pictures {
		io.WriteString(w, p.key)
	}
}

// Fill decodes the images one after the other. In the place of one that is bad
// and may be skipped comes the next good one of the set, whatever the epoch.
func (e *encoded) Fill(b *Batch, idx []int32, d Draw) error {
	b.Resize(e.shape, len(idx))
	s := e.scratch.Get().(*scratch)
	defer e.scratch.Put(s)
	size := e.shape.Size()
	for i, n := range idx {
		r := drawOf(d, n)
		m, err := e.sample(s, n, d.Augment, &r)
		if err != nil {
			return err
		}
		pix := s.result
		if len(e.table) == 1 {
			pix = grey(pix)
		}
		normalise(b.Values[i*size:][:size], pix, e.table)
		b.Labels[i] = e.labels[m]
	}
	return nil
}

// sample brings image n, or the next good one, to s.result and says which.
func (e *encoded) sample(s *scratch, n int32, augment bool, r *prng.Rand) (int32, error) {
	for range e.pictures {
		if !e.known(n) {
			err := e.decode(s, n, augment, r)
			if err == nil {
				return n, nil
			}
			if err = e.skip(n, err); err != nil {
				return 0, err
			}
		}
		n = (n + 1) % int32(len(e.pictures))
	}
	return 0, fmt.Errorf("every one of %d images is bad, the first being %s", len(e.pictures), e.pictures[0].path)
}

func (e *encoded) known(n int32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bad[n]
}

// skip counts a bad image, once.
func (e *encoded) skip(n int32, fault error) error {
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

// decode leaves size x size RGB bytes in s.result.
func (e *encoded) decode(s *scratch, n int32, augment bool, r *prng.Rand) error {
	p := &e.pictures[n]
	content, err := p.load()
	if err != nil {
		return err
	}
	im, turn, err := decodeImage(p.path, content)
	if err != nil {
		return err
	}
	w, h := turn.size(im.Bounds().Dx(), im.Bounds().Dy())
	box := image.Rect(0, 0, w, h)
	wx, wy := window{e.size, 0, e.size}, window{e.size, 0, e.size}
	switch {
	case augment:
		box = randomCrop(w, h, r)
		w, h = box.Dx(), box.Dy()
	case e.whole:
		x, y, side := middle(w, h)
		box, w, h = image.Rect(x, y, x+side, y+side), side, side
	default:
		wx, wy = centreWindows(w, h, e.size)
	}
	s.cut(im, box, turn)
	s.result = bytesview.Sized(s.result, 3*e.size*e.size)
	s.resize(s.result, s.source, w, h, wx, wy)
	if augment && r.Below(2) == 1 {
		flip(s.result, e.size)
	}
	return nil
}

// cut leaves a box of the turned image in s.source.
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

// openImages reads an image folder, or an archive of one, for samples of
// ImageSize x ImageSize.
func openImages(c Config, bad *datafile.Skips) (*Dataset, error) {
	t, err := openTree("images", c.Dir)
	if err != nil {
		return nil, err
	}
	train, eval, classes, err := t.split()
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	train, eval = spread(train, c.TrainLimit), spread(eval, c.EvalLimit)
	sizes := balance(labelsOf(train, classes), len(classes), classes)
	size := or(c.ImageSize, 224)
	s := &Dataset{Classes: len(classes), Words: classes, Notes: append(t.notes(train, eval), sizes...), left: t.skipped.Sorted()}
	return s, s.openParts(c, bad, [2][]picture{train, eval}, [2][]int32{labelsOf(train, classes), labelsOf(eval, classes)}, func(pictures [2][]picture, labels [2][]int32) (train, eval Source, err error) {
		return newEncoded(pictures[0], labels[0], size, bad), newEncoded(pictures[1], labels[1], size, bad), nil
	})
}

// openParts opens images to train on and to evaluate on. Verify opens them again if some of them
// are bad.
func (s *Dataset) openParts(c Config, bad *datafile.Skips, pictures [2][]picture, labels [2][]int32, open func([2][]picture, [2][]int32) (train, eval Source, err error)) (err error) {
	limited := func(pictures [2][]picture, labels [2][]int32) (train, eval Source, err error) {
		if train, eval, err = open(pictures, labels); err != nil {
			return nil, nil, err
		}
		return Head(train, c.TrainLimit), Head(eval, c.EvalLimit), nil
	}
	if bad.Max > 0 {
		s.images = &imageParts{pictures, labels, c.threads(), limited}
	}
	s.Train, s.Eval, err = limited(pictures, labels)
	return err
}

func findImages(c Config) error {
	_, _, err := locate("images", c.Dir, hasTree)
	return err
}

// openTree lists the images of a folder or reads those of an archive.
func openTree(set, dir string) (*tree, error) {
	path, archive, err := locate(set, dir, hasTree)
	if err != nil {
		return nil, err
	}
	if !archive {
		return openTreeFolder(path)
	}
	t := newTree(path)
	err = datafile.WalkArchive(path, t.keep(path), t.other)
	return t.finish(), err
}

// other takes an entry of an archive that is no regular file.
func (t *tree) other(h *tar.Header) {
	part, below := splitPart(h.Name)
	if h.Typeflag == tar.TypeDir {
		t.addFolder(splitPart(strings.TrimSuffix(h.Name, "/") + "/"))
	} else if kind := datafile.EntryKind(h); kind != "" && len(below) > 0 {
		t.skipped.Add(kind, part+"/"+strings.Join(below, "/"))
	}
}

// keep returns the visitor that keeps an archive's images in memory.
func (t *tree) keep(archive string) func(name string, size int64, r io.Reader) error {
	return func(name string, size int64, r io.Reader) error {
		if _, below := splitPart(name); !isImage(name) || datafile.IsHidden(strings.Join(below, "/")) {
			t.add(name, picture{})
			return nil
		}
		full := archive + ": " + name
		if t.room -= size; t.room < 0 {
			return datafile.Errorf(full, 0, "the archive has more than %d GiB of images up to here, which are held in memory: unpack it, and name the folder", maxKept>>30)
		}
		content, err := readEntry(full, size, r)
		if err == nil {
			t.add(name, picture{path: full, encoded: content})
		}
		return err
	}
}

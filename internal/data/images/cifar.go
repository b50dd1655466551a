package images

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// Geometry of CIFAR-10 (Krizhevsky 2009). A record of the binary form is the label, then the red,
// the green and the blue plane of one image.
const (
	CIFARSide    = 32
	cifarClasses = 10
	CIFARPlane   = CIFARSide * CIFARSide
	CIFARRecord  = 1 + 3*CIFARPlane
)

// CIFARNames returns the ten classes in the order of their labels.
func CIFARNames() []string {
	return []string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}
}

// cifarBatches are the files of the binary form. Never written.
var cifarBatches = [...]string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}

// cifarBatch returns the number of a file of the binary form.
func cifarBatch(name string) (n int, ok bool) {
	n = slices.Index(cifarBatches[:], name)
	return n, n >= 0
}

const CIFARTest = 5 // index of test_batch.bin

// CIFARFolder is the folder in the published archive.
const CIFARFolder = "cifar-10-batches-bin"

// cifarDir returns the folder of the binary form, in dir or below; false without one.
func cifarDir(dir string) (string, bool) {
	for _, d := range []string{dir, filepath.Join(dir, CIFARFolder)} {
		if _, err := os.Stat(filepath.Join(d, "data_batch_1.bin")); err == nil {
			return d, true
		}
	}
	return dir, false
}

func hasCIFAR(dir string) bool {
	_, binary := cifarDir(dir)
	return binary || hasTree(dir)
}

// cifar collects the files of a folder or an archive.
type cifar struct {
	root  string
	parts [6]*Records // indexed by cifarBatch
	tree  *Tree
	skips *datafile.Skips
}

// Records are images in memory, channels last.
type Records struct {
	Pix    []uint8
	Labels []int32
}

func (c *cifar) visit(name string, size int64, r io.Reader) error {
	n, ok := cifarBatch(name[strings.LastIndex(name, "/")+1:])
	if !ok {
		return c.tree.keep(c.root)(name, size, r)
	}
	return c.read(n, c.root+": "+name, r)
}

func (c *cifar) readFolder(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*_batch*.bin"))
	for _, path := range files {
		n, ok := cifarBatch(filepath.Base(path))
		if !ok {
			continue
		}
		f, err := pathname.Open(path)
		if err != nil {
			return err
		}
		err = errors.Join(c.read(n, path, f), f.Close())
		if err != nil {
			return err
		}
	}
	return err
}

func (c *cifar) read(n int, name string, r io.Reader) (err error) {
	if c.parts[n] != nil {
		return fmt.Errorf("%s: a second file of that name", name)
	}
	c.parts[n], err = DecodeCIFAR(name, r, c.skips)
	return err
}

// maxRecords limits the images of a binary file. All of CIFAR-10 in one file would be fewer, in 200
// MB. The limit rejects an archive of zeros before memory is full.
const maxRecords = 1 << 16

// DecodeCIFAR reads the records of a binary file to the end. Memory grows with the records read.
func DecodeCIFAR(name string, r io.Reader, bad *datafile.Skips) (*Records, error) {
	out := new(Records)
	record := make([]byte, CIFARRecord)
	for n := int64(0); ; n++ {
		got, err := io.ReadFull(r, record)
		switch {
		case err == io.EOF && n > 0:
			return out, nil
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			return nil, datafile.Errorf(name, n*CIFARRecord+int64(got), "truncated: record %d (an image) ends after %d of %d bytes", n, got, CIFARRecord)
		case err != nil:
			return nil, err
		case n == maxRecords:
			return nil, datafile.Errorf(name, n*CIFARRecord, "more than %d images", maxRecords)
		}
		if record[0] >= cifarClasses {
			fault := datafile.Errorf(name, n*CIFARRecord, "impossible label %d of image %d, want 0 to %d", record[0], n, cifarClasses-1)
			if err := bad.Skip(fault); err != nil {
				return nil, err
			}
			continue
		}
		out.Labels = append(out.Labels, int32(record[0]))
		at := len(out.Pix)
		out.Pix = slices.Grow(out.Pix, 3*CIFARPlane)[:at+3*CIFARPlane]
		interleave(out.Pix[at:], record[1:])
	}
}

// interleave turns three planes into pixels.
func interleave(dst, planes []uint8) {
	red, green, blue := planes[:CIFARPlane], planes[CIFARPlane:2*CIFARPlane], planes[2*CIFARPlane:3*CIFARPlane]
	for i := range red {
		dst[3*i], dst[3*i+1], dst[3*i+2] = red[i], green[i], blue[i]
	}
}

// decodeAll decodes pictures of 32x32 on several goroutines, and leaves out bad pictures up to the
// limit.
func decodeAll(pictures []Picture, classes []string, threads int, bad *datafile.Skips) (*Records, error) {
	const size = 3 * CIFARPlane
	pix := make([]uint8, size*len(pictures))
	faults := make([]error, len(pictures))
	var all sync.WaitGroup
	for t := range threads {
		all.Go(func() {
			for i := t; i < len(pictures); i += threads {
				faults[i] = decodeSmall(pix[i*size:][:size], &pictures[i])
			}
		})
	}
	all.Wait()
	out := &Records{Labels: LabelsOf(pictures, classes)}
	kept := 0
	for i, fault := range faults {
		if fault != nil {
			if err := bad.Skip(fault); err != nil {
				return nil, err
			}
			continue
		}
		copy(pix[kept*size:][:size], pix[i*size:])
		out.Labels[kept] = out.Labels[i]
		kept++
	}
	out.Pix, out.Labels = pix[:kept*size], out.Labels[:kept]
	return out, nil
}

func decodeSmall(dst []uint8, p *Picture) error {
	content, err := p.load()
	if err != nil {
		return err
	}
	im, turn, err := decodeImage(p.Path, content)
	if err != nil {
		return err
	}
	if b := im.Bounds(); b.Dx() != CIFARSide || b.Dy() != CIFARSide {
		return datafile.Errorf(p.Path, 0, "an image of %dx%d, want %dx%d", b.Dx(), b.Dy(), CIFARSide, CIFARSide)
	}
	rgb(dst, im, im.Bounds())
	if turn.turned() {
		turn.turn(dst, slices.Clone(dst), CIFARSide, CIFARSide)
	}
	return nil
}

// CIFAR is a decoded set in a form of CIFAR-10.
type CIFAR struct {
	Train, Eval *Records
	Classes     []string
	// Labels are the labels of all training images of a tree, before the limit. nil for the binary
	// form.
	Labels  []int32
	Notes   []string
	LeftOut []datafile.LeftOut
}

// FindCIFAR returns an error unless a folder or an archive has a form of CIFAR-10.
func FindCIFAR(dir string) error {
	_, _, err := locate("cifar10", dir, hasCIFAR)
	return err
}

// ReadCIFAR reads CIFAR-10 from a folder or an archive: the binary form, or a tree of 32x32 images.
// The limits are the numbers of images of a tree to train and to evaluate on, evenly chosen. 0
// means all.
func ReadCIFAR(dir string, limits [2]int, threads int, bad *datafile.Skips) (*CIFAR, error) {
	path, archive, err := locate("cifar10", dir, hasCIFAR)
	if err != nil {
		return nil, err
	}
	in := &cifar{root: path, tree: newTree(path), skips: bad}
	folder, binary := cifarDir(path)
	switch {
	case archive:
		err = datafile.WalkArchive(path, in.visit, in.tree.addSpecial)
		in.tree.finish()
	case binary:
		err = in.readFolder(folder)
	default:
		in.tree, err = openTreeFolder(path)
	}
	var out *CIFAR
	switch {
	case err != nil:
	case in.parts == [6]*Records{}:
		out, err = in.decodeTree(limits, threads)
	default:
		out, err = in.join()
	}
	if err == nil && (len(out.Train.Labels) == 0 || len(out.Eval.Labels) == 0) {
		err = fmt.Errorf("%s to train on and %d to evaluate are left: both are needed", quantity.Count(len(out.Train.Labels), "image"), len(out.Eval.Labels))
	}
	if err != nil {
		return nil, fmt.Errorf("cifar10: %w", err)
	}
	return out, nil
}

// join returns the set of the binary files.
func (c *cifar) join() (*CIFAR, error) {
	out := &CIFAR{Train: new(Records), Eval: c.parts[CIFARTest], Classes: CIFARNames()}
	for n, p := range c.parts {
		if p == nil {
			return nil, fmt.Errorf("%s has no %s, but other files of the binary form; %s", c.root, cifarBatches[n], imageAlternatives("cifar10", filepath.Dir(c.root)))
		}
		if n != CIFARTest {
			out.Train.Pix, out.Train.Labels = append(out.Train.Pix, p.Pix...), append(out.Train.Labels, p.Labels...)
		}
	}
	return out, nil
}

// decodeTree decodes a tree into memory.
func (c *cifar) decodeTree(limits [2]int, threads int) (*CIFAR, error) {
	train, eval, classes, err := c.tree.Split(nil)
	if err != nil {
		return nil, err
	}
	var parts [2]*Records
	for i, pictures := range [][]Picture{Spread(train, limits[0]), Spread(eval, limits[1])} {
		if parts[i], err = decodeAll(pictures, classes, threads, c.skips); err != nil {
			return nil, err
		}
	}
	return &CIFAR{parts[0], parts[1], classes, LabelsOf(train, classes), c.tree.Notes(train, eval), c.tree.Skipped.Sorted()}, nil
}

package data

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

// The geometry of CIFAR-10 (Krizhevsky 2009). In its binary form a record is
// the label and then the red, the green and the blue plane of one image.
const (
	cifarSide    = 32
	cifarClasses = 10
	cifarPlane   = cifarSide * cifarSide
	cifarRecord  = 1 + 3*cifarPlane
)

func cifarNames() []string {
	return []string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}
}

// cifarBatch is the part and the order of a file of the binary form.
func cifarBatch(name string) (n int, ok bool) {
	files := []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}
	n = slices.Index(files, name)
	return n, n >= 0
}

const cifarTest = 5 // the number of test_batch.bin

// cifarFolder is the folder of the archive as published.
const cifarFolder = "cifar-10-batches-bin"

// cifarDir is where in dir the binary form or a tree lies.
func cifarDir(dir string) (string, bool) {
	for _, d := range []string{dir, filepath.Join(dir, cifarFolder)} {
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

func findCIFAR(c Config) error {
	_, _, err := locate("cifar10", c.Dir, hasCIFAR)
	return err
}

// openCIFAR reads CIFAR-10, binary or as a tree of 32x32 images, in a folder
// or an archive.
func openCIFAR(c Config, bad *datafile.Skips) (*Dataset, error) {
	path, archive, err := locate("cifar10", c.Dir, hasCIFAR)
	if err != nil {
		return nil, err
	}
	in := &cifar{root: path, tree: newTree(path), skips: bad}
	dir, binary := cifarDir(path)
	switch {
	case archive:
		err = datafile.WalkArchive(path, in.visit, in.tree.other)
		in.tree.finish()
	case binary:
		err = in.readFolder(dir)
	default:
		in.tree, err = openTreeFolder(path)
	}
	if err != nil {
		return nil, fmt.Errorf("cifar10: %w", err)
	}
	return in.set(c)
}

// cifar collects what a folder or an archive holds.
type cifar struct {
	root  string
	parts [6]*records // by cifarBatch
	tree  *tree
	skips *datafile.Skips
}

// records are images in memory, channels last.
type records struct {
	pix    []uint8
	labels []int32
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
	c.parts[n], err = decodeCIFAR(name, r, c.skips)
	return err
}

// maxRecords is how many images a file of the binary form may have: more than all of CIFAR-10 in one file
// would, in 200 MB, so that an archive of zeros is refused before it fills the memory.
const maxRecords = 1 << 16

// decodeCIFAR reads the records of a binary file to its end; it holds no more
// than came.
func decodeCIFAR(name string, r io.Reader, bad *datafile.Skips) (*records, error) {
	out := new(records)
	record := make([]byte, cifarRecord)
	for n := int64(0); ; n++ {
		got, err := io.ReadFull(r, record)
		switch {
		case err == io.EOF && n > 0:
			return out, nil
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			return nil, datafile.Errorf(name, n*cifarRecord+int64(got), "truncated: record %d (an image) ends after %d of %d bytes", n, got, cifarRecord)
		case err != nil:
			return nil, err
		case n == maxRecords:
			return nil, datafile.Errorf(name, n*cifarRecord, "more than %d images", maxRecords)
		}
		if record[0] >= cifarClasses {
			fault := datafile.Errorf(name, n*cifarRecord, "impossible label %d of image %d, want 0 to %d", record[0], n, cifarClasses-1)
			if err := bad.Skip(fault); err != nil {
				return nil, err
			}
			continue
		}
		out.labels = append(out.labels, int32(record[0]))
		at := len(out.pix)
		out.pix = slices.Grow(out.pix, 3*cifarPlane)[:at+3*cifarPlane]
		interleave(out.pix[at:], record[1:])
	}
}

// interleave turns three planes into pixels.
func interleave(dst, planes []uint8) {
	red, green, blue := planes[:cifarPlane], planes[cifarPlane:2*cifarPlane], planes[2*cifarPlane:3*cifarPlane]
	for i := range red {
		dst[3*i], dst[3*i+1], dst[3*i+2] = red[i], green[i], blue[i]
	}
}

func (c *cifar) set(cfg Config) (*Dataset, error) {
	if c.parts == [6]*records{} {
		return c.treeSet(cfg)
	}
	var train records
	for n, p := range c.parts {
		if p == nil {
			return nil, fmt.Errorf("cifar10: %s has no %s, but other files of the binary form; %s",
				c.root, [...]string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}[n],
				imageAlternatives("cifar10", filepath.Dir(c.root)))
		}
		if n != cifarTest {
			train.pix, train.labels = append(train.pix, p.pix...), append(train.labels, p.labels...)
		}
	}
	return cifarSet(&train, c.parts[cifarTest], cifarNames())
}

// treeSet decodes a tree into memory.
func (c *cifar) treeSet(cfg Config) (*Dataset, error) {
	train, eval, classes, err := c.tree.split()
	if err != nil {
		return nil, fmt.Errorf("cifar10: %w", err)
	}
	var parts [2]*records
	for i, pictures := range [][]picture{spread(train, cfg.TrainLimit), spread(eval, cfg.EvalLimit)} {
		if parts[i], err = decodeAll(pictures, classes, cfg.threads(), c.skips); err != nil {
			return nil, fmt.Errorf("cifar10: %w", err)
		}
	}
	set, err := cifarSet(parts[0], parts[1], classes)
	if err != nil {
		return nil, err
	}
	sizes := balance(labelsOf(train, classes), len(classes), classes)
	set.Notes, set.left = append(c.tree.notes(train, eval), sizes...), c.tree.skipped.Sorted()
	return set, nil
}

func cifarSet(train, eval *records, classes []string) (*Dataset, error) {
	if len(train.labels) == 0 || len(eval.labels) == 0 {
		return nil, fmt.Errorf("cifar10: %s to train on and %d to evaluate are left: both are needed", quantity.Count(len(train.labels), "image"), len(eval.labels))
	}
	return &Dataset{Train: train.source().jittered(4), Eval: eval.source(), Classes: len(classes), Words: classes}, nil
}

func (r *records) source() *pixels {
	return &pixels{
		shape: Shape{Values: []int{cifarSide, cifarSide, 3}, Labels: 1},
		bytes: r.pix, labels: r.labels, table: cifarStatistics().tables(),
	}
}

// decodeAll decodes pictures of 32x32 by several goroutines. Bad ones are left
// out, in order, as far as that is allowed.
func decodeAll(pictures []picture, classes []string, threads int, bad *datafile.Skips) (*records, error) {
	const size = 3 * cifarPlane
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
	out := &records{labels: labelsOf(pictures, classes)}
	kept := 0
	for i, fault := range faults {
		if fault != nil {
			if err := bad.Skip(fault); err != nil {
				return nil, err
			}
			continue
		}
		copy(pix[kept*size:][:size], pix[i*size:])
		out.labels[kept] = out.labels[i]
		kept++
	}
	out.pix, out.labels = pix[:kept*size], out.labels[:kept]
	return out, nil
}

func decodeSmall(dst []uint8, p *picture) error {
	content, err := p.load()
	if err != nil {
		return err
	}
	im, turn, err := decodeImage(p.path, content)
	if err != nil {
		return err
	}
	if b := im.Bounds(); b.Dx() != cifarSide || b.Dy() != cifarSide {
		return datafile.Errorf(p.path, 0, "an image of %dx%d, want %dx%d", b.Dx(), b.Dy(), cifarSide, cifarSide)
	}
	rgb(dst, im, im.Bounds())
	if turn.turned() {
		turn.turn(dst, slices.Clone(dst), cifarSide, cifarSide)
	}
	return nil
}

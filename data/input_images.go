package data

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// openAskedImages reads the images of a set's evaluation part, where Path names a set as it was trained on; else an image, or all those of
// a folder and its folders in the order of their paths.
func openAskedImages(d Description, c InputConfig, bad *datafile.Skips) (PredictInput, error) {
	info, err := os.Stat(c.Path)
	if err != nil {
		return nil, err
	}
	if f, err := formatOf(d.Name, Config{Dir: c.Path}); err == nil && !(!info.IsDir() && isImage(c.Path)) && f.find(Config{Dir: c.Path}) == nil {
		return openAskedSet(d, c)
	}
	pictures, left, err := picturesIn(c.Path)
	if err != nil {
		return nil, err
	}
	if len(pictures) == 0 {
		return nil, fmt.Errorf("%s has no image (.jpg, .jpeg or .png), and is no data set of the kind %s: %w", c.Path, d.Name, fs.ErrNotExist)
	}
	if len(d.Shape.Values) != 3 || len(pictures) > datafile.MaxElements {
		return nil, fmt.Errorf("%s: %s for a model that takes samples of %v values", c.Path, quantity.Count(len(pictures), "image"), d.Shape.Values)
	}
	e := newEncoded(pictures, make([]int32, len(pictures)), d.Shape.Values[0], bad)
	switch e.shape.Values[2] = d.Shape.Values[2]; d.Name {
	case "mnist":
		e.table, e.whole = mnistStatistics().tables(), true
	case "cifar10":
		e.table, e.whole = cifarStatistics().tables(), true
	}
	if len(e.table) != e.shape.Values[2] {
		return nil, fmt.Errorf("%s: images for a model that takes %d values of a point", c.Path, e.shape.Values[2])
	}
	return newPicked(e, c, bad, left.Sorted(), nil)
}

// picturesIn returns an image, or those of a folder and of all folders below it that are not
// hidden, and what else is there.
func picturesIn(path string) (out []picture, left datafile.LeftOuts, err error) {
	err = walkImages(path, &left, func(below string, folder bool) bool {
		switch hidden := datafile.IsHidden(filepath.ToSlash(below)); {
		case hidden && folder:
			left.Add(datafile.HiddenFolder, filepath.Join(path, below))
		case hidden:
			left.Add(datafile.HiddenFile, filepath.Join(path, below))
		case folder:
			return true
		case below == "" || isImage(below):
			out = append(out, picture{path: filepath.Join(path, below)})
		default:
			left.Add(leftKind(below), filepath.Join(path, below))
		}
		return false
	})
	slices.SortFunc(out, func(a, b picture) int { return strings.Compare(a.path, b.path) })
	return out, left, err
}

// middle is the largest one in the middle of an image of w x h.
func middle(w, h int) (x, y, side int) {
	side = min(w, h)
	return (w - side) / 2, (h - side) / 2, side
}

// grey leaves the brightness of RGB bytes in their first third, as Pillow's mode L has it.
func grey(pix []uint8) []uint8 {
	n := len(pix) / 3
	for i := range n {
		r, g, b := int(pix[3*i]), int(pix[3*i+1]), int(pix[3*i+2])
		pix[i] = uint8((19595*r + 38470*g + 7471*b + 1<<15) >> 16)
	}
	return pix[:n]
}

package data

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// openAskedImages reads the evaluation images if Path is a set of the training's kind with an
// evaluation part; otherwise an image, or all images of a folder and its subfolders by path.
func openAskedImages(d Description, c InputConfig, bad *datafile.Skips) (PredictInput, error) {
	info, err := os.Stat(c.Path)
	if err != nil {
		return nil, err
	}
	if f, err := formatOf(d.Name, Config{Dir: c.Path}); err == nil && (info.IsDir() || !images.IsImage(c.Path)) && !images.IsUndivided(c.Path) && f.find(Config{Dir: c.Path}) == nil {
		return openAskedSet(d, c)
	}
	pictures, left, err := images.PicturesIn(c.Path)
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
		e.Table, e.Whole = images.MNISTStatistics().Tables(), true
	case "cifar10":
		e.Table, e.Whole = images.CIFARStatistics().Tables(), true
	}
	if len(e.Table) != e.shape.Values[2] {
		return nil, fmt.Errorf("%s: images for a model that takes %d values of a point", c.Path, e.shape.Values[2])
	}
	return newPicked(e, c, bad, left.Sorted(), nil)
}

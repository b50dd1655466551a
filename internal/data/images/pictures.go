package images

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// IsUndivided reports whether a folder has classes of images, and no part for evaluation.
func IsUndivided(dir string) bool {
	return isTree(dir) && !slices.ContainsFunc(datafile.EvalParts(), func(part string) bool {
		return len(classFolders(filepath.Join(dir, part))) > 0
	})
}

// PicturesIn returns an image, or all images of a folder and its visible folders, and the files
// that are left out.
func PicturesIn(path string) (out []Picture, left datafile.LeftOuts, err error) {
	err = walkImages(path, &left, func(below string, folder bool) bool {
		switch hidden := datafile.IsHidden(filepath.ToSlash(below)); {
		case hidden && folder:
			left.Add(datafile.HiddenFolder, filepath.Join(path, below))
		case hidden:
			left.Add(datafile.HiddenFile, filepath.Join(path, below))
		case folder:
			return true
		case below == "" || IsImage(below):
			out = append(out, Picture{Path: filepath.Join(path, below)})
		default:
			left.Add(leftKind(below), filepath.Join(path, below))
		}
		return false
	})
	slices.SortFunc(out, func(a, b Picture) int { return strings.Compare(a.Path, b.Path) })
	return out, left, err
}

// Middle returns the largest central square of an image of w x h.
func Middle(w, h int) (x, y, side int) {
	side = min(w, h)
	return (w - side) / 2, (h - side) / 2, side
}

// Grey writes the brightness of RGB bytes to their first third, as Pillow's mode L.
func Grey(pix []uint8) []uint8 {
	n := len(pix) / 3
	for i := range n {
		r, g, b := int(pix[3*i]), int(pix[3*i+1]), int(pix[3*i+2])
		pix[i] = uint8((19595*r + 38470*g + 7471*b + 1<<15) >> 16)
	}
	return pix[:n]
}

package data

import (
	"archive/tar"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// LeftOut is one kind of files, samples or rows that a data set or a PredictInput leaves out.
type LeftOut struct {
	// Kind is a noun in the singular, such as "hidden file".
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	// Names are the first of them, in order, or all bad rows of a PredictInput: paths, or errors
	// with a path.
	Names []string `json:"names"`
}

// BadSample is the kind of damaged samples, which data.max-bad-records leaves out.
const BadSample = "bad sample"

// maxNames limits the names of a kind.
const maxNames = 5

// String returns the number and the first names in a line.
func (l LeftOut) String() string {
	names := l.Names[:min(len(l.Names), maxNames)]
	text := fmt.Sprintf("left out %s: %s", quantity.Count(l.Count, l.Kind), strings.Join(names, "; "))
	if more := l.Count - len(names); more > 0 {
		text += fmt.Sprintf("; and %s more", quantity.Group(more))
	}
	return text
}

// leftOuts counts what is left out, by kind.
type leftOuts []LeftOut

func (l *leftOuts) add(kind, name string) {
	i := slices.IndexFunc(*l, func(o LeftOut) bool { return o.Kind == kind })
	if i < 0 {
		i, *l = len(*l), append(*l, LeftOut{Kind: kind})
	}
	o := &(*l)[i]
	if o.Count++; len(o.Names) < maxNames {
		o.Names = append(o.Names, name)
	}
}

// sorted returns the kinds in the order of their names.
func (l leftOuts) sorted() []LeftOut {
	return slices.SortedFunc(slices.Values(l), func(a, b LeftOut) int { return strings.Compare(a.Kind, b.Kind) })
}

// sentences returns a line for each kind.
func (l leftOuts) sentences() (lines []string) {
	for _, o := range l.sorted() {
		lines = append(lines, o.String())
	}
	return lines
}

// merge adds the kinds of another list, which comes behind.
func (l *leftOuts) merge(other []LeftOut) {
	for _, o := range other {
		for _, name := range o.Names {
			l.add(o.Kind, name)
		}
		i := slices.IndexFunc(*l, func(own LeftOut) bool { return own.Kind == o.Kind })
		(*l)[i].Count += o.Count - len(o.Names)
	}
}

// Kinds of files that are no samples.
const (
	hiddenFile   = "hidden file"
	hiddenFolder = "hidden folder"
	emptyClass   = "class folder without an image"
)

// isHidden reports whether a part of a path begins with a point: .DS_Store, ._NAME of macOS,
// .ipynb_checkpoints of Jupyter.
func isHidden(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") && part != "." && part != ".."
	})
}

// entryKind is the kind of an archive's entry that is no regular file; "" for folders and what
// describes other entries.
func entryKind(h *tar.Header) string {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
		return ""
	case tar.TypeSymlink, tar.TypeLink:
		return "link in an archive"
	}
	return "device or pipe in an archive"
}

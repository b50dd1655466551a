package datafile

import (
	"archive/tar"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// LeftOut is one kind of files, samples or rows that are left out of a data set or of a prediction.
type LeftOut struct {
	// Kind is a noun in the singular, such as "hidden file".
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	// Names are the first paths or errors, in order; all bad rows of a prediction.
	Names []string `json:"names"`
}

// BadSample is the kind of damaged samples, which data.max-bad-records leaves out.
const BadSample = "bad sample"

// MaxNames limits the names of a kind.
const MaxNames = 5

// String returns the count and the first names on one line.
func (l LeftOut) String() string {
	names := l.Names[:min(len(l.Names), MaxNames)]
	text := fmt.Sprintf("left out %s: %s", quantity.Count(l.Count, l.Kind), strings.Join(names, "; "))
	if more := l.Count - len(names); more > 0 {
		text += fmt.Sprintf("; and %s more", quantity.Group(more))
	}
	return text
}

// LeftOuts counts files that are left out, by kind.
type LeftOuts []LeftOut

// Add counts a file or a folder.
func (l *LeftOuts) Add(kind, name string) {
	i := slices.IndexFunc(*l, func(o LeftOut) bool { return o.Kind == kind })
	if i < 0 {
		i, *l = len(*l), append(*l, LeftOut{Kind: kind})
	}
	o := &(*l)[i]
	if o.Count++; len(o.Names) < MaxNames {
		o.Names = append(o.Names, name)
	}
}

// Sorted returns the kinds in the order of their names.
func (l LeftOuts) Sorted() []LeftOut {
	return slices.SortedFunc(slices.Values(l), func(a, b LeftOut) int { return strings.Compare(a.Kind, b.Kind) })
}

// Sentences returns a line for each kind.
func (l LeftOuts) Sentences() (lines []string) {
	for _, o := range l.Sorted() {
		lines = append(lines, o.String())
	}
	return lines
}

// Merge appends the kinds of a list.
func (l *LeftOuts) Merge(list []LeftOut) {
	for _, o := range list {
		for _, name := range o.Names {
			l.Add(o.Kind, name)
		}
		i := slices.IndexFunc(*l, func(own LeftOut) bool { return own.Kind == o.Kind })
		(*l)[i].Count += o.Count - len(o.Names)
	}
}

// Kinds of files that are no samples.
const (
	HiddenFile   = "hidden file"
	HiddenFolder = "hidden folder"
	EmptyClass   = "class folder without an image"
)

// IsHidden reports whether a part of a path begins with a point: .DS_Store, ._NAME of macOS,
// .ipynb_checkpoints of Jupyter.
func IsHidden(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") && part != "." && part != ".."
	})
}

// EntryKind returns the kind of an archive's entry of a special type; "" for regular files, folders
// and global headers.
func EntryKind(h *tar.Header) string {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
		return ""
	case tar.TypeSymlink, tar.TypeLink:
		return "link in an archive"
	}
	return "device or pipe in an archive"
}

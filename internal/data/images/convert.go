package images

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/datafile"
)

// ConvertCIFAR reads CIFAR-10 in any form and writes the binary form with the same pixels to a
// folder, for programs that read no other form. The classes alternate, and the images of a class
// keep their order: as in the original, the first images are of all classes. ConvertCIFAR returns
// the files and images left out, with up to skipBad bad images. Existing files are an error.
func ConvertCIFAR(from, to string, threads, skipBad int) (left []datafile.LeftOut, err error) {
	bad := &datafile.Skips{Max: skipBad}
	set, err := ReadCIFAR(from, [2]int{}, threads, bad)
	if err != nil {
		return nil, err
	}
	return slices.Concat(set.LeftOut, bad.LeftOut()), set.write(from, to)
}

// write writes the set of a folder to another folder.
func (c *CIFAR) write(from, to string) error {
	if len(c.Classes) != cifarClasses {
		return fmt.Errorf("cifar10: %s has %d classes, the binary form %d", from, len(c.Classes), cifarClasses)
	}
	if _, there := cifarDir(to); there {
		return fmt.Errorf("cifar10: %s holds a binary form already: remove it or choose another folder", to)
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	order := dealt(c.Train.Labels, cifarClasses)
	errs := []error{
		datafile.WriteWhole(filepath.Join(to, "batches.meta.txt"), []byte(strings.Join(c.Classes, "\n")+"\n")),
		datafile.WriteWhole(filepath.Join(to, cifarBatches[CIFARTest]), c.Eval.planes(dealt(c.Eval.Labels, cifarClasses))),
	}
	each, rest := len(order)/CIFARTest, len(order)%CIFARTest // first files: one image more
	for n := CIFARTest - 1; n >= 0; n-- {                    // data_batch_1.bin last: it marks a complete form
		lo, hi := n*each+min(n, rest), (n+1)*each+min(n+1, rest)
		errs = append(errs, datafile.WriteWhole(filepath.Join(to, cifarBatches[n]), c.Train.planes(order[lo:hi])))
	}
	return errors.Join(errs...)
}

// dealt returns the indices of labels in an order that spreads each class evenly. Labels that
// already have this order keep their order.
func dealt(labels []int32, classes int) []int {
	total, seen := make([]int, classes), make([]int, classes)
	for _, c := range labels {
		total[c]++
	}
	order, share := make([]int, len(labels)), make([]float64, len(labels))
	for i, c := range labels {
		order[i], share[i] = i, (float64(seen[c])+0.5)/float64(total[c])
		seen[c]++
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(share[a], share[b]), cmp.Compare(labels[a], labels[b]))
	})
	return order
}

// planes returns images as records of the binary form.
func (r *Records) planes(images []int) []byte {
	out := make([]byte, 0, len(images)*CIFARRecord)
	for _, i := range images {
		out = append(out, byte(r.Labels[i]))
		image := r.Pix[i*3*CIFARPlane:][:3*CIFARPlane]
		for c := range 3 {
			for at := c; at < len(image); at += 3 {
				out = append(out, image[at])
			}
		}
	}
	return out
}

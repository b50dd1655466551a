package data

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ConvertCIFAR reads CIFAR-10 in any form that Open reads and writes it to a folder in its binary
// form with the same pixels, for programs that read no other. Classes take turns, and the images of
// a class keep their order: as in the original the first images, which Config.TrainLimit takes, are
// of all classes, where a tree's are of one. Up to skipBad bad images are left out and returned.
// Files that exist already are an error.
func ConvertCIFAR(from, to string, threads, skipBad int) (left []LeftOut, err error) {
	set, err := Open("cifar10", Config{Dir: from, Threads: threads, SkipBad: skipBad})
	if err != nil {
		return nil, err
	}
	return set.LeftOut(), writeCIFAR(set, from, to)
}

// writeCIFAR writes a set that was read from a place to another.
func writeCIFAR(set *Dataset, from, to string) error {
	if set.Classes != cifarClasses {
		return fmt.Errorf("cifar10: %s has %d classes, the binary form %d", from, set.Classes, cifarClasses)
	}
	if _, there := cifarDir(to); there {
		return fmt.Errorf("cifar10: %s holds a binary form already: remove it or choose another folder", to)
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	train, eval := set.Train.(transformed).Source.(*pixels), set.Eval.(*pixels)
	order, evalOrder := dealt(train.labels, set.Classes), dealt(eval.labels, set.Classes)
	names := strings.Join(set.Words, "\n") + "\n"
	errs := []error{
		writeWhole(filepath.Join(to, "batches.meta.txt"), []byte(names)),
		writeWhole(filepath.Join(to, "test_batch.bin"), eval.planes(evalOrder)),
	}
	for part := 4; part >= 0; part-- { // the first file, by which the form is known, last
		lo, hi := partition(train.Len(), part, 5, false)
		errs = append(errs, writeWhole(filepath.Join(to, fmt.Sprintf("data_batch_%d.bin", part+1)), train.planes(order[lo:hi])))
	}
	return errors.Join(errs...)
}

// dealt are the places of labels in an order in which every class is spread evenly. Of
// labels in such an order it is their own.
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

// planes are images as records of CIFAR-10's binary form.
func (p *pixels) planes(images []int) []byte {
	out := make([]byte, 0, len(images)*cifarRecord)
	for _, i := range images {
		out = append(out, byte(p.labels[i]))
		image := p.bytes[i*3*cifarPlane:][:3*cifarPlane]
		for c := range 3 {
			for at := c; at < len(image); at += 3 {
				out = append(out, image[at])
			}
		}
	}
	return out
}

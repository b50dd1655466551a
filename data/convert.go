package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ConvertCIFAR reads CIFAR-10 in any form that Open reads and writes it to a
// folder in its binary form, in the same order and with the same pixels, for
// programs that read no other. Up to skipBad bad images are left out; it returns
// how many were. What is there already is an error.
func ConvertCIFAR(from, to string, threads, skipBad int) (skipped int, err error) {
	set, err := Open("cifar10", Config{Dir: from, Threads: threads, SkipBad: skipBad})
	if err != nil {
		return 0, err
	}
	return set.Skipped(), writeCIFAR(set, from, to)
}

// writeCIFAR writes a set that was read from a place to another.
func writeCIFAR(set *Set, from, to string) error {
	if set.Classes != cifarClasses {
		return fmt.Errorf("cifar10: %s has %d classes, the binary form %d", from, set.Classes, cifarClasses)
	}
	if _, there := cifarDir(to); there {
		return fmt.Errorf("cifar10: %s holds a binary form already: remove it or choose another folder", to)
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	train := set.Train.(*pixels)
	names := strings.Join(set.Words, "\n") + "\n"
	errs := []error{
		writeWhole(filepath.Join(to, "batches.meta.txt"), []byte(names)),
		writeWhole(filepath.Join(to, "test_batch.bin"), set.Eval.(*pixels).planes(0, set.Eval.Len())),
	}
	for part := 4; part >= 0; part-- { // the first file, by which the form is known, last
		lo, hi := Partition(train.Len(), part, 5, false)
		errs = append(errs, writeWhole(filepath.Join(to, fmt.Sprintf("data_batch_%d.bin", part+1)), train.planes(lo, hi)))
	}
	return errors.Join(errs...)
}

// planes are the images [lo, hi) as records of CIFAR-10's binary form.
func (p *pixels) planes(lo, hi int) []byte {
	out := make([]byte, 0, (hi-lo)*cifarRecord)
	for i := lo; i < hi; i++ {
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

package data

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

func openMNISTSet(c Config, _ *datafile.Skips) (*Dataset, error) {
	train, test, err := images.ReadMNIST(c.Dir)
	if err != nil {
		return nil, err
	}
	return mnistSet(train, test), nil
}

func syntheticMNISTSet(c Config) *Dataset {
	return mnistSet(images.SyntheticMNIST(c.Seed, or(c.TrainLimit, 60000), or(c.EvalLimit, 10000)))
}

func mnistSet(train, test *images.Images) *Dataset {
	return &Dataset{
		Train: newPixels(train, images.MNISTStatistics()), Eval: newPixels(test, images.MNISTStatistics()),
		Classes: images.MNISTClasses,
	}
}

func openCIFAR(c Config, bad *datafile.Skips) (*Dataset, error) {
	in, err := images.ReadCIFAR(c.Dir, [2]int{c.TrainLimit, c.EvalLimit}, c.threads(), bad)
	if err != nil {
		return nil, err
	}
	set := cifarSet(in)
	if in.Labels != nil {
		set.Notes = append(in.Notes, balance(in.Labels, len(in.Classes), in.Classes)...)
	}
	return set, nil
}

func syntheticCIFARSet(c Config) *Dataset {
	return cifarSet(images.SyntheticCIFAR(c.Seed, or(c.TrainLimit, 50000), or(c.EvalLimit, 10000)))
}

func cifarSet(in *images.CIFAR) *Dataset {
	source := func(r *images.Records) *pixels {
		return &pixels{
			shape: Shape{Values: []int{images.CIFARSide, images.CIFARSide, 3}, Labels: 1},
			bytes: r.Pix, labels: r.Labels, table: images.CIFARStatistics().Tables(),
		}
	}
	return &Dataset{Train: source(in.Train).jittered(4), Eval: source(in.Eval), Classes: len(in.Classes), Words: in.Classes, emptyFiles: in.LeftOut}
}

// openImages opens an image folder, or an archive of one, for samples of ImageSize x ImageSize.
func openImages(c Config, bad *datafile.Skips) (*Dataset, error) {
	t, err := images.OpenTree("images", c.Dir)
	if err != nil {
		return nil, err
	}
	if part := t.EvalPart(); part != "" {
		if err := c.checkHoldout("%s has images to evaluate on in %s", c.Dir, part); err != nil {
			return nil, err
		}
	}
	held := c.holdout()
	train, eval, classes, err := t.Split(held.holdsPath)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	var split []string
	if t.EvalPart() == "" {
		split = []string{fmt.Sprintf("held out for evaluation: %d of %d images (%v)", len(eval), len(train)+len(eval), held)}
	}
	train, eval = images.Spread(train, c.TrainLimit), images.Spread(eval, c.EvalLimit)
	sizes := balance(images.LabelsOf(train, classes), len(classes), classes)
	size := or(c.ImageSize, 224)
	s := &Dataset{divided: t.EvalPart() == "", Classes: len(classes), Words: classes, Notes: slices.Concat(split, t.Notes(train, eval), sizes), emptyFiles: t.Skipped.Sorted()}
	return s, s.openParts(c, bad, [2][]images.Picture{train, eval}, [2][]int32{images.LabelsOf(train, classes), images.LabelsOf(eval, classes)}, func(pictures [2][]images.Picture, labels [2][]int32) (train, eval Source, err error) {
		return newEncoded(pictures[0], labels[0], size, bad), newEncoded(pictures[1], labels[1], size, bad), nil
	})
}

// openParts opens the training and evaluation images, within the limits of their number. If bad
// images may be skipped, it stores its arguments, with which Verify opens the good images again.
func (s *Dataset) openParts(c Config, bad *datafile.Skips, pictures [2][]images.Picture, labels [2][]int32, open func([2][]images.Picture, [2][]int32) (train, eval Source, err error)) (err error) {
	limited := func(pictures [2][]images.Picture, labels [2][]int32) (train, eval Source, err error) {
		if train, eval, err = open(pictures, labels); err != nil {
			return nil, nil, err
		}
		return Head(train, c.TrainLimit), Head(eval, c.EvalLimit), nil
	}
	if bad.Max > 0 {
		s.images = &imageParts{pictures, labels, c.threads(), limited}
	}
	s.Train, s.Eval, err = limited(pictures, labels)
	return err
}

// syntheticImages returns a set of synthetic images in ImageNet's size, or in ImageSize.
func syntheticImages(c Config) *Dataset {
	size := or(c.ImageSize, 224)
	source := func(set uint64, n int) Source {
		return &stripes{images.NewStripes(size, c.Seed, set), n, Shape{Values: []int{size, size, 3}, Labels: 1}}
	}
	return &Dataset{Train: source(0, or(c.TrainLimit, 10000)), Eval: source(1, or(c.EvalLimit, 1000)), Classes: images.StripeClasses}
}

func findShards(c Config) error {
	_, _, err := shardsOf(c)
	return err
}

// shardsOf returns the training and evaluation shards, if any.
func shardsOf(c Config) (train, eval []string, err error) {
	if c.TrainFile != "" && c.Dir != "" {
		return nil, nil, setting.Errorf(datafile.TrainFilePath, "%s with %v %s: name one of both", c.TrainFile, datafile.DirPath, c.Dir)
	}
	if c.EvalFile != "" {
		if err := c.checkHoldout("the evaluation samples are given by %v %s", datafile.EvalFilePath, c.EvalFile); err != nil {
			return nil, nil, err
		}
	}
	if train, err = images.ShardNames(cmp.Or(c.TrainFile, c.Dir)); err == nil && c.EvalFile != "" {
		eval, err = images.ShardNames(c.EvalFile)
	}
	if err != nil {
		err = fmt.Errorf("shards: %w", err)
	}
	return train, eval, err
}

// openShards lists the samples of shards; images are read and decoded on demand.
func openShards(c Config, bad *datafile.Skips) (*Dataset, error) {
	train, eval, err := shardsOf(c)
	if err != nil {
		return nil, err
	}
	var left datafile.LeftOuts
	samples, err := images.IndexShards(train, c.threads(), bad, &left)
	var others []images.Picture
	if err == nil {
		others, err = images.IndexShards(eval, c.threads(), bad, &left)
	}
	if err != nil {
		return nil, fmt.Errorf("shards: %w", err)
	}
	if len(samples) == 0 || len(eval) > 0 && len(others) == 0 || len(samples)+len(others) > datafile.MaxElements {
		return nil, fmt.Errorf("shards: %d samples in %d files to train on and %d in %d to evaluate on: want some", len(samples), len(train), len(others), len(eval))
	}
	labels, classes, words, err := images.ClassesOf(samples, others)
	if err != nil {
		return nil, err
	}
	sizes := balance(labels[:len(samples)], classes, words)
	size := or(c.ImageSize, 224)
	n, share := len(samples), c.holdout()
	s := &Dataset{Classes: classes, Words: words, emptyFiles: left.Sorted(), Notes: []string{fmt.Sprintf("%s in %s, one of %s each", quantity.Count(n, "sample"), quantity.Count(len(train), "shard"), quantity.Count(classes, "class"))}}
	s.Notes = append(s.Notes, sizes...)
	if len(eval) > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("evaluates on %s in %s", quantity.Count(len(others), "sample"), quantity.Count(len(eval), "shard")))
	} else {
		s.Notes = append(s.Notes, share.note())
	}
	return s, s.openParts(c, bad, [2][]images.Picture{samples, others}, [2][]int32{labels[:n], labels[n:]}, func(pictures [2][]images.Picture, labels [2][]int32) (train, other Source, err error) {
		train = newEncoded(pictures[0], labels[0], size, bad)
		if len(eval) == 0 {
			return share.split(train)
		}
		return train, newEncoded(pictures[1], labels[1], size, bad), nil
	})
}

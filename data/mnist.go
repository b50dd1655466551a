package data

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/setting"
)

// The geometry of MNIST (LeCun, Cortes & Burges 1998).
const (
	mnistSide    = 28
	mnistClasses = 10
)

// The four files of MNIST by their published names.
const (
	trainImages = "train-images-idx3-ubyte"
	trainLabels = "train-labels-idx1-ubyte"
	testImages  = "t10k-images-idx3-ubyte"
	testLabels  = "t10k-labels-idx1-ubyte"
)

// openMNIST reads the four IDX files of MNIST (or of a set in its format) from
// dir, each as it is or gzipped with .gz at the end of its name; the plain one
// wins where both exist. A fault in a file's content is a *FormatError with
// the file and the byte offset; a missing file satisfies errors.Is(err,
// fs.ErrNotExist) and says what was looked for and what else can be done.
// 60,000 + 10,000 images take 55 MB and, gzipped, about 0.3 s.
func openMNIST(dir string) (train, test *Images, err error) {
	if err := findMNIST(dir); err != nil {
		return nil, nil, err
	}
	train, err = openPair(dir, trainImages, trainLabels)
	if err != nil {
		return nil, nil, fmt.Errorf("mnist: training set: %w", err)
	}
	test, err = openPair(dir, testImages, testLabels)
	if err != nil {
		return nil, nil, fmt.Errorf("mnist: test set: %w", err)
	}
	return train, test, nil
}

// findMNIST reports, without reading them, whether a file of MNIST is missing in
// dir: openMNIST's error, for a launcher to give once instead of every rank.
func findMNIST(dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return missing(dir, err)
	} else if !info.IsDir() {
		return fmt.Errorf("mnist: %s is not a folder: want one with the four IDX files %s, %s, %s and %s, plain or .gz; %w",
			dir, trainImages, trainLabels, testImages, testLabels, alternatives(filepath.Dir(dir)))
	}
	for _, name := range []string{trainImages, trainLabels, testImages, testLabels} {
		if _, err := find(dir, name); err != nil {
			return fmt.Errorf("mnist: %w", err)
		}
	}
	return nil
}

// isIDX reports whether a file, compressed or not, begins as an IDX file of bytes does.
func isIDX(path string) bool {
	if !isFile(path) {
		return false
	}
	f, err := datafile.OpenText(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && magic[0] == 0 && magic[1] == 0 && magic[2] == 8 && magic[3] > 0 && magic[3] < 5
}

func openPair(dir, imageName, labelName string) (*Images, error) {
	imagePath, err := find(dir, imageName)
	if err != nil {
		return nil, err
	}
	labelPath, err := find(dir, labelName)
	if err != nil {
		return nil, err
	}
	labels, err := readIDXFile(labelPath, 1, func([]int) error { return nil })
	if err != nil {
		return nil, err
	}
	if err := checkLabels(labelPath, labels.data); err != nil {
		return nil, err
	}
	images, err := readIDXFile(imagePath, 3, func(dims []int) error { // before the pixels are allocated
		return checkImages(dims, len(labels.data), labelPath)
	})
	if err != nil {
		return nil, err
	}
	return &Images{
		N: images.dims[0], Rows: images.dims[1], Cols: images.dims[2], Channels: 1,
		Pixels: images.data, Labels: labels.data,
	}, nil
}

func checkImages(dims []int, labels int, labelPath string) error {
	if dims[0] != labels {
		return &dimensionError{0, fmt.Sprintf("%d images, but %s has %d labels", dims[0], labelPath, labels)}
	}
	for axis, side := range dims[1:] {
		if side != mnistSide {
			return &dimensionError{1 + axis, fmt.Sprintf("images of %dx%d, want %dx%d", dims[1], dims[2], mnistSide, mnistSide)}
		}
	}
	return nil
}

func checkLabels(path string, labels []byte) error {
	for i, l := range labels {
		if l >= mnistClasses {
			return datafile.Errorf(path, int64(8+i), "impossible label %d of image %d, want 0 to %d", l, i, mnistClasses-1)
		}
	}
	return nil
}

// find returns the path of the plain or the gzipped file.
func find(dir, name string) (string, error) {
	for _, n := range []string{name, name + ".gz"} {
		path := filepath.Join(dir, n)
		_, err := pathname.Check(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s has neither %s nor %s.gz: %w; %w", dir, name, name, fs.ErrNotExist, alternatives(dir))
}

func missing(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mnist: no folder %s (looked there for %s and three more files, plain or .gz): %w; %w",
			dir, trainImages, fs.ErrNotExist, alternatives(dir))
	}
	return fmt.Errorf("mnist: %w", err)
}

// alternatives is what to do where the files are not there.
func alternatives(dir string) error {
	return setting.Errorf("", "fetch them with `ringo data mnist --out %s`, or train on digits drawn by the program with %v %s", dir, datafile.DirPath, datafile.Synthetic)
}

// openMNISTSet is openMNIST as a Dataset.
func openMNISTSet(c Config, _ *datafile.Skips) (*Dataset, error) {
	train, test, err := openMNIST(c.Dir)
	if err != nil {
		return nil, err
	}
	return mnistSet(train, test), nil
}

func syntheticMNISTSet(c Config) *Dataset {
	return mnistSet(SyntheticMNIST(c.Seed, or(c.TrainLimit, 60000), or(c.EvalLimit, 10000)))
}

func mnistSet(train, test *Images) *Dataset {
	return &Dataset{
		Train: newPixels(train, mnistStatistics()), Eval: newPixels(test, mnistStatistics()),
		Classes: mnistClasses,
	}
}

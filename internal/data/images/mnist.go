package images

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

// Geometry of MNIST (LeCun, Cortes & Burges 1998).
const (
	mnistSide    = 28
	MNISTClasses = 10
)

// Published names of the files of MNIST.
const (
	TrainImages = "train-images-idx3-ubyte"
	TrainLabels = "train-labels-idx1-ubyte"
	TestImages  = "t10k-images-idx3-ubyte"
	TestLabels  = "t10k-labels-idx1-ubyte"
)

// ReadMNIST reads the four IDX files of MNIST, or of a set in its format, from dir. Each file is
// plain or, with .gz at the end of its name, gzipped; the plain file is preferred. An error in the
// content is a *FormatError with file and byte offset. The error of a missing file satisfies
// errors.Is(err, fs.ErrNotExist), and names the expected files and a remedy. 60,000 + 10,000 images
// need 55 MB and, gzipped, about 0.3 s.
func ReadMNIST(dir string) (train, test *Images, err error) {
	if err := FindMNIST(dir); err != nil {
		return nil, nil, err
	}
	train, err = openPair(dir, TrainImages, TrainLabels)
	if err != nil {
		return nil, nil, fmt.Errorf("mnist: training set: %w", err)
	}
	test, err = openPair(dir, TestImages, TestLabels)
	if err != nil {
		return nil, nil, fmt.Errorf("mnist: test set: %w", err)
	}
	return train, test, nil
}

// FindMNIST returns ReadMNIST's error for a missing file without reading the files, so that a
// launcher reports it once instead of every rank.
func FindMNIST(dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return missing(dir, err)
	} else if !info.IsDir() {
		return fmt.Errorf("mnist: %s is not a folder: want one with the four IDX files %s, %s, %s and %s, plain or .gz; %w",
			dir, TrainImages, TrainLabels, TestImages, TestLabels, alternatives(filepath.Dir(dir)))
	}
	for _, name := range []string{TrainImages, TrainLabels, TestImages, TestLabels} {
		if _, err := find(dir, name); err != nil {
			return fmt.Errorf("mnist: %w", err)
		}
	}
	return nil
}

// IsIDX reports whether a file, compressed or not, begins as an IDX file of bytes.
func IsIDX(path string) bool {
	if !datafile.IsFile(path) {
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
	images, err := readIDXFile(imagePath, 3, func(dims []int) error { // called before pixels are allocated
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
		if l >= MNISTClasses {
			return datafile.Errorf(path, int64(8+i), "impossible label %d of image %d, want 0 to %d", l, i, MNISTClasses-1)
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
			dir, TrainImages, fs.ErrNotExist, alternatives(dir))
	}
	return fmt.Errorf("mnist: %w", err)
}

// alternatives returns the remedies for missing files.
func alternatives(dir string) error {
	return setting.Errorf("", "fetch them with `ringo data mnist --out %s`, or train on digits drawn by the program with %v %s", dir, datafile.DirPath, datafile.Synthetic)
}

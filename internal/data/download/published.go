package download

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/text"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Published returns a Fetcher for a public set: mnist, cifar10, criteo (the sample of 100,000 rows)
// or text (WikiText-2). The caller must set Dir.
func Published(set string) (f Fetcher, ok bool) {
	switch set {
	case "mnist":
		return Fetcher{Files: []File{
			{Name: images.TrainImages, Size: 47040016, SHA256: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
			{Name: images.TrainLabels, Size: 60008, SHA256: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
			{Name: images.TestImages, Size: 7840016, SHA256: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
			{Name: images.TestLabels, Size: 10008, SHA256: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
		}, Mirrors: []string{
			"https://ossci-datasets.s3.amazonaws.com/mnist/",
			"https://storage.googleapis.com/cvdf-datasets/mnist/",
		}}, true
	case "cifar10":
		return Fetcher{Files: []File{{
			Name: "cifar-10-binary.tar.gz", Size: 170052171, Plain: true,
			SHA256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
		}}, Mirrors: []string{
			"https://www.cs.toronto.edu/~kriz/",
			"https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
		}}, true
	case "criteo":
		return Fetcher{Files: []File{{
			Name: clickSample, Size: 64 << 20, Plain: true, Check: checkClickSample,
		}}, Mirrors: []string{
			"https://huggingface.co/datasets/Recommenders/criteo/resolve/main/",
			"https://labs.criteo.com/wp-content/uploads/2015/04/",
		}}, true
	case "text":
		return Fetcher{Files: []File{ // published numbers of tokens
			{Name: "train.txt", Size: 16 << 20, Plain: true, Check: checkTokens(2_088_628)},
			{Name: "valid.txt", Size: 2 << 20, Plain: true, Check: checkTokens(217_646)},
			{Name: "test.txt", Size: 2 << 20, Plain: true, Check: checkTokens(245_569)},
		}, Mirrors: []string{
			"https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/",
		}}, true
	}
	return Fetcher{}, false
}

// checkTokens returns a check that a text has want tokens: words and line ends.
func checkTokens(want int) func(io.Reader) error {
	return func(r io.Reader) error {
		ids, err := text.ReadWords("the text", r, text.NewVocabulary(), true, datafile.MaxElements, new(datafile.Skips))
		if err == nil && len(ids) != want {
			err = fmt.Errorf("%d tokens, want %d", len(ids), want)
		}
		return err
	}
}

// Criteo's sample is an archive with one file of rows in order of time.
const (
	clickSample     = "dac_sample.tar.gz"
	clickSampleText = "dac_sample.txt"
	clickSampleRows = 100_000
	clickSampleEval = 10_000 // last rows
)

func checkClickSample(r io.Reader) error {
	rows := 0
	return withClickSample(r, func(text io.Reader) error {
		p := clicks.NewCriteoParser(clicks.TableRows, false)
		err := clicks.ParseLines(&clicks.Chunks{Name: clickSampleText, R: text, Size: clicks.ChunkBytes}, 1, p.Parse, func(c *clicks.Chunk) (bool, error) {
			if len(c.Block.Faults) > 0 {
				f := c.Block.Faults[0]
				return false, datafile.Errorf(clickSampleText, c.Offset+int64(f.Offset), "line %d: %s", rows+f.Line+1, f.Text)
			}
			rows += c.Block.Lines
			return true, nil
		})
		if err == nil && rows != clickSampleRows {
			err = fmt.Errorf("%s has %d rows, want %d", clickSampleText, rows, clickSampleRows)
		}
		return err
	})
}

// withClickSample calls use with the sample's rows from the archive.
func withClickSample(r io.Reader, use func(io.Reader) error) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("not a gzip file: %s", datafile.ReasonOf(err))
	}
	found := false
	err = datafile.WalkTar(clickSample, z, func(name string, _ int64, r io.Reader) error {
		if !strings.HasSuffix(name, clickSampleText) || found {
			return nil
		}
		found = true
		return use(r)
	}, func(*tar.Header) {})
	if err == nil && !found {
		err = fmt.Errorf("%s has no %s", clickSample, clickSampleText)
	}
	return err
}

// UnpackCriteo splits the fetched sample in dir into train.tsv and test.tsv, the last tenth in
// order of time. If both files exist, UnpackCriteo leaves them unchanged.
func UnpackCriteo(dir string) error {
	train, test := filepath.Join(dir, "train.tsv"), filepath.Join(dir, "test.tsv")
	if size(train) > 0 && size(test) > 0 {
		return nil
	}
	f, err := pathname.Open(filepath.Join(dir, clickSample))
	if err != nil {
		return err
	}
	defer f.Close()
	return withClickSample(f, func(r io.Reader) error {
		text, err := io.ReadAll(r) // 24 MB
		if err != nil {
			return err
		}
		at := 0
		for range clickSampleRows - clickSampleEval {
			at += bytes.IndexByte(text[at:], '\n') + 1
		}
		return errors.Join(datafile.WriteWhole(train, text[:at]), datafile.WriteWhole(test, text[at:]))
	})
}

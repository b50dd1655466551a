package data

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/internal/spelling"
)

// Synthetic, instead of a folder, selects generated data.
const Synthetic = datafile.Synthetic

// Config configures the files and reading of a set. The zero value of each field except Dir selects
// the set's default.
type Config struct {
	Dir        string // folder (or .tar.gz, if the set has that form), or Synthetic
	TrainFile  string // text, chars and criteo: training file, in any folder
	EvalFile   string // likewise
	Seed       uint64 // seed of synthetic data
	SkipBad    int    // maximum number of bad lines or images to skip and count; more are an error
	TrainLimit int    // use only the first n samples; image folder: n over all classes; synthetic: generate n
	EvalLimit  int    // likewise
	Steps      int    // text and chars: tokens per sample (35; 128)
	Vocabulary int    // text: number of most frequent words, with <unk> and <eos> (10,000)
	Rows       int    // criteo: rows of the embedding table, row 0 for missing values (1,000,001)
	Keys       bool   // criteo: bags of keys in slots instead of ids
	Stream     bool   // criteo: stream the training rows by a ClickStream over Dataset.Files, and read uncompressed evaluation rows on demand; TrainFile can be a folder
	Layout     string // clicks: layout file or name of a built-in layout; see package layout
	ImageSize  int    // images: height and width of a sample (224)
	Threads    int    // threads that read and decode (GOMAXPROCS)

	Target   string         // table: target column; see table.Options
	Schema   table.Schema   // table: uses of columns; omitted columns are guessed
	Encoder  *table.Encoder // table: encoder of the trained model, instead of Target, Schema and guesses; EvalFile is then evaluated whole, without Dataset.Train
	MinCount int            // table: smallest number of training rows of a category's word; see table.Options
	// Previous is the encoder of the checkpoint with which the run starts: see
	// table.Options.Previous.
	Previous *table.Encoder
	Resumed  bool    // table.Options.Resumed: Previous is of the same run
	Split    float64 // share of samples held out for evaluation if the set has no evaluation part (0.1)
	// Folds, at least 2, divides the samples into that many parts, of which part Fold, from 0, is
	// for evaluation, instead of the share Split. 0 means no folds.
	Folds, Fold int
	// Gather exchanges bytes between processes with separate files, so that they share one
	// encoding: see table.Options.Gather.
	Gather func(own []byte) ([][]byte, error)
}

// Validate returns all errors joined.
func (c Config) Validate() error {
	var errs []error
	fault := func(bad bool, p setting.Path, format string, args ...any) {
		if bad {
			errs = append(errs, setting.Errorf(p, format, args...))
		}
	}
	whole := c.Encoder != nil && c.EvalFile != ""
	fault(c.Dir == "" && (c.TrainFile == "" || c.EvalFile == "") && !whole, "", "no data: name the folder of the data set, or %q, with %v; or both files with %v and %v", Synthetic, datafile.DirPath, datafile.TrainFilePath, datafile.EvalFilePath)
	fault(c.Dir == Synthetic && (c.TrainFile != "" || c.EvalFile != ""), datafile.DirPath, "%s, but files are named (%q, %q)", Synthetic, c.TrainFile, c.EvalFile)
	for _, v := range []struct {
		path  setting.Path
		value int
	}{{datafile.SkipBadPath, c.SkipBad}, {datafile.TrainLimitPath, c.TrainLimit}, {"data.eval-limit", c.EvalLimit}, {datafile.TableRowsPath, c.Rows}, {"data.min-count", c.MinCount}} {
		fault(v.value < 0 || v.value > datafile.MaxElements, v.path, "%d: want 0 to %d", v.value, datafile.MaxElements)
	}
	for _, v := range []struct {
		name        string
		value, most int
	}{{"Steps", c.Steps, 1 << 16}, {"Vocabulary", c.Vocabulary, datafile.MaxElements}, {"ImageSize", c.ImageSize, 1 << 12}, {"Threads", c.Threads, 1 << 12}} {
		fault(v.value < 0 || v.value > v.most, "", "data: %s %d: want 0 to %d", v.name, v.value, v.most)
	}
	fault(c.Split != 0 && !(c.Split > 0 && c.Split < 1), datafile.SplitPath, "%s: want a share above 0 and below 1; 0 for %s", quantity.Exact(c.Split), quantity.Exact(usualSplit))
	fault(c.Folds != 0 && (c.Folds < 2 || c.Folds > maxFolds || c.Fold < 0 || c.Fold >= c.Folds), datafile.FoldsPath, "%d, part %d: want 2 to %d, and a part below it", c.Folds, c.Fold, maxFolds)
	fault(c.Folds > 0 && c.Split != 0, datafile.FoldsPath, "%d with %v %s: each part is held out once: remove one of the two", c.Folds, datafile.SplitPath, quantity.Exact(c.Split))
	fault(c.Folds > 0 && c.Dir == Synthetic, datafile.FoldsPath, "%d has no effect on synthetic data, which have evaluation samples: leave it out", c.Folds)
	fault(c.Stream && c.Dir == Synthetic, datafile.StreamPath, "has no files to read synthetic rows from: make some with `ringo data criteo --generate`")
	fault(c.Stream && c.TrainLimit > 0, datafile.TrainLimitPath, "%d: a stream has all rows of its files: name fewer files with %v", c.TrainLimit, datafile.TrainFilePath)
	fault(c.SkipBad > 0 && c.Dir == Synthetic, datafile.SkipBadPath, "%d has no effect on synthetic data: leave it out", c.SkipBad)
	fault(c.Dir == Synthetic && c.Layout != "", datafile.LayoutPath, "%s is of files, not of synthetic data", c.Layout)
	fault(c.Rows == 1, datafile.TableRowsPath, "1: want at least 2, because row 0 is for missing values")
	fault(c.Vocabulary > 0 && c.Vocabulary < 3, "", "data: Vocabulary %d: want at least 3, <unk>, <eos> and a word", c.Vocabulary)
	return errors.Join(errs...)
}

// threads returns the number of goroutines for reading.
func (c Config) threads() int {
	if c.Threads == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return c.Threads
}

// or returns value, or usual for 0.
func or(value, usual int) int {
	if value == 0 {
		return usual
	}
	return value
}

// Dataset is a data set opened for training.
type Dataset struct {
	Name        string
	Train, Eval Source
	Files       []string       // training files with Config.Stream, instead of Train
	Classes     int            // number of classes; 0 if labels are tokens
	Vocabulary  int            // number of tokens; 0 without tokens
	Rows        int            // rows of the embedding table for ids; 0 without a table
	Words       []string       // names of classes or tokens, if any
	Unseen      map[string]int // by table column, the number of evaluation rows with a word that the encoder lacks
	Notes       []string       // notes on reading the set, such as the folder used for evaluation
	Streams     bool           // sequences in order: sample with SamplerConfig.Streams

	// Encoder converts a table's columns to samples; nil for other sets.
	Encoder *table.Encoder
	// Layout describes files of click samples; nil for Criteo's format and other sets.
	Layout *layout.Layout

	skips      *datafile.Skips
	emptyFiles []LeftOut    // files without samples
	images     *imageParts  // images to decode by Verify; nil: none
	open       []io.Closer  // open files of samples
	divided    bool         // images to evaluate on are held out of those to train on
	evalFile   string       // file of the rows to evaluate on, of clicks and arrays
	rows       [2]tableRows // of a table: training and evaluation rows
}

// Close closes the files of samples; samples must no longer be read. Sets in memory need no Close.
func (s *Dataset) Close() error {
	var errs []error
	for _, f := range s.open {
		errs = append(errs, f.Close())
	}
	s.open = nil
	return errors.Join(errs...)
}

// LeftOut returns the excluded files, bad lines and images (Config.SkipBad) by kind. Without Verify
// a bad image is only detected when it is decoded, and the next image then replaces it.
func (s *Dataset) LeftOut() []LeftOut { return slices.Concat(s.emptyFiles, s.skips.LeftOut()) }

// Fingerprint returns a checksum over names, sizes, labels and tokens, by which hosts detect
// different data.
func (s *Dataset) Fingerprint() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d %d %q\n", s.Name, s.Classes, s.Vocabulary, s.Rows, s.Words)
	if s.Layout != nil {
		_ = json.NewEncoder(h).Encode(s.Layout) // numbers and strings only: never fails
	}
	clicks.WriteEvidence(h, s.Files)
	for _, src := range []Source{s.Train, s.Eval} {
		if src == nil {
			continue
		}
		shape := src.Shape()
		fmt.Fprintf(h, "%d {%v %d %d}\n", src.Len(), shape.Values, shape.IDs, shape.Labels)
		if shape.Targets > 0 {
			fmt.Fprintf(h, "{%d}\n", shape.Targets)
		}
		for {
			limited, ok := src.(head)
			if !ok {
				break
			}
			src = limited.Source
		}
		if e, ok := src.(interface{ evidence(io.Writer) }); ok {
			e.evidence(h)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Meaning returns a checksum of how a model sees a sample: the shape, the number and names of
// classes or tokens, and the encoding of a table's columns. A model can train on all sets of one
// meaning.
func (s *Dataset) Meaning() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d %d %q %v\n", s.Name, s.Classes, s.Vocabulary, s.Rows, s.Words, s.Eval.Shape())
	if s.Encoder != nil {
		_ = json.NewEncoder(h).Encode(s.Encoder) // numbers and strings only: never fails
	}
	if s.Layout != nil {
		h.Write(s.Layout.Meaning())
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// datasetFormat holds the functions and options of one kind of set.
type datasetFormat struct {
	name      string
	pair      bool // one or two files, with settings for the paths
	columns   bool // named columns or arrays, with a schema
	split     bool // supports holding out a share
	skips     bool // supports skipping bad samples
	find      func(Config) error
	open      func(Config, *datafile.Skips) (*Dataset, error)
	synthetic func(Config) *Dataset
}

func formats() []datasetFormat {
	return []datasetFormat{
		{"mnist", false, false, false, false, func(c Config) error { return images.FindMNIST(c.Dir) }, openMNISTSet, syntheticMNISTSet},
		{"cifar10", false, false, false, true, func(c Config) error { return images.FindCIFAR(c.Dir) }, openCIFAR, syntheticCIFARSet},
		{"images", false, false, true, true, func(c Config) error { return images.FindTree("images", c.Dir) }, openImages, syntheticImages},
		{"imagenet", false, false, true, true, func(c Config) error { return images.FindTree("images", c.Dir) }, openImages, syntheticImages},
		{"text", true, false, false, true, findText, openText, syntheticText},
		{"chars", true, false, false, false, findChars, openChars, syntheticChars},
		{"criteo", true, false, false, true, findClicks, openClicks, syntheticCriteo},
		{"clicks", true, false, false, true, findClicks, openClicks, nil},
		{"table", true, true, true, true, findTable, openTable, syntheticTable},
		{"arrays", true, true, true, false, findArrays, openArrays, syntheticTable},
		{"shards", true, false, true, true, findShards, openShards, syntheticImages},
	}
}

// Names returns the sets of Open.
func Names() []string {
	var names []string
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return names
}

func formatOf(name string, cfg Config) (datasetFormat, error) {
	err := cfg.Validate()
	all := formats()
	i := slices.IndexFunc(all, func(f datasetFormat) bool { return f.name == name })
	if i < 0 {
		return datasetFormat{}, errors.Join(fmt.Errorf("data: data set %q is not known%s: use one of %s", name, spelling.Hint(name, Names()...), strings.Join(Names(), ", ")), err)
	}
	if (cfg.TrainFile != "" || cfg.EvalFile != "") && !all[i].pair {
		err = errors.Join(err, fmt.Errorf("data: %s is a folder, but files are named (%q, %q): %w", name, cfg.TrainFile, cfg.EvalFile, setting.Errorf("", "give the folder with %v alone", datafile.DirPath)))
	}
	if cfg.Encoder == nil {
		for _, v := range []struct {
			isGiven, isUsed bool
			path            setting.Path
			value           any
		}{{cfg.Target != "", all[i].columns, datafile.TargetPath, cfg.Target}, {cfg.Schema != nil, all[i].columns, datafile.SchemaPath, cfg.Schema}, {cfg.Split != 0, all[i].split, datafile.SplitPath, cfg.Split}} {
			if v.isGiven && !v.isUsed {
				err = errors.Join(err, setting.Errorf(v.path, "%v has no effect on the data set %s: it is for tables such as my.csv", v.value, name))
			}
		}
	}
	if cfg.Folds > 0 && !all[i].split {
		err = errors.Join(err, setting.Errorf(datafile.FoldsPath, "%d: samples of the data set %s are not held out by number: want a table such as my.csv, arrays, shards or a folder of images", cfg.Folds, name))
	}
	for _, column := range slices.Sorted(maps.Keys(cfg.Schema)) {
		if kind := cfg.Schema[column]; name == "arrays" && (kind == table.Date || strings.Contains(string(kind), ":")) {
			err = errors.Join(err, setting.Errorf(datafile.SchemaPath, "%s=%s: arrays have numbers, labels and targets without a format", column, kind))
		}
	}
	if cfg.MinCount > 0 && name != "table" {
		err = errors.Join(err, setting.Errorf("data.min-count", "%d has no effect on the data set %s: it is for tables such as my.csv", cfg.MinCount, name))
	}
	if cfg.SkipBad > 0 && !all[i].skips {
		err = errors.Join(err, setting.Errorf(datafile.SkipBadPath, "%d has no effect on the data set %s: none of its samples can be left out", cfg.SkipBad, name))
	}
	if (name == "clicks") != (cfg.Layout != "") {
		err = errors.Join(err, setting.Errorf(datafile.LayoutPath, "%q: the data set clicks needs a layout of its columns, and other sets have none; this is %s", cfg.Layout, name))
	}
	if cfg.Stream && name != "criteo" && name != "clicks" {
		err = errors.Join(err, setting.Errorf(datafile.StreamPath, "only click data (criteo, clicks) can be streamed; %s is read into memory", name))
	}
	return all[i], err
}

// Find returns the error of Open for a missing file of the set, without reading files. A launcher
// can thus report the error once instead of each rank.
func Find(name string, cfg Config) error {
	f, err := formatOf(name, cfg)
	if err != nil || cfg.Dir == Synthetic {
		return err
	}
	return f.find(cfg)
}

// Open opens a set of Names, or generates synthetic data. An error has the file, the line or entry,
// the byte offset and the remedy.
func Open(name string, cfg Config) (*Dataset, error) {
	f, err := formatOf(name, cfg)
	if err != nil {
		return nil, err
	}
	var s *Dataset
	if cfg.Dir == Synthetic {
		s = f.synthetic(cfg)
		s.skips = new(datafile.Skips)
	} else {
		bad := &datafile.Skips{Max: cfg.SkipBad}
		if s, err = f.open(cfg, bad); err != nil {
			return nil, err
		}
		s.skips = bad
	}
	s.Name = name
	s.Train, s.Eval = Head(s.Train, cfg.TrainLimit), Head(s.Eval, cfg.EvalLimit)
	return s, nil
}

package data

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// collectClicks returns the rows of a file's chunks, or the first limit rows (0: all).
func collectClicks(path string, f *clicks.Format, limit int, each func(collect func(*clicks.Chunk) bool) error) (*clickPages, error) {
	out := newClicks(f.Shape())
	err := each(func(c *clicks.Chunk) bool {
		out.add(&c.Block.Rows, limit)
		return limit == 0 || out.n < limit
	})
	if err == nil && out.n == 0 {
		err = f.EmptyError(path)
	}
	return out, err
}

// clickFormat returns the format of click lines: the layout if set, otherwise Criteo's format with
// ids or keys.
func (c Config) clickFormat() (*clicks.Format, error) {
	if c.Layout == "" {
		return clicks.CriteoFormat(c.criteoRows(), c.Keys), nil
	}
	l, err := layout.Open(c.Layout)
	if err != nil {
		return nil, setting.Errorf(datafile.LayoutPath, "%w", err)
	}
	return clicks.LayoutFormat(l)
}

// criteoRows returns the rows of the embedding table; 0 selects keys.
func (c Config) criteoRows() int {
	if c.Keys {
		return 0
	}
	return or(c.Rows, clicks.TableRows)
}

// clickSet returns the set's name.
func (c Config) clickSet() string {
	if c.Layout == "" {
		return "criteo"
	}
	return "clicks"
}

func findClicks(c Config) error {
	if _, err := c.clickFormat(); err != nil {
		return err
	}
	if c.Stream {
		_, _, err := findClickStream(c)
		return err
	}
	_, err := datafile.FindPair(c.clickSet(), c.Dir, c.TrainFile, c.EvalFile)
	return err
}

// findClickStream returns the training files to stream, all with "train" in the name or in a folder
// train, and the evaluation file.
func findClickStream(c Config) (train []string, p datafile.Pair, err error) {
	if c.TrainFile != "" {
		train, err = clicks.Files(c.TrainFile)
	} else if folder := filepath.Join(c.Dir, "train"); datafile.IsFolder(folder) {
		train, err = clicks.Files(folder)
	} else {
		var names []string
		names, err = clicks.FileNames(c.Dir, "train")
		for _, name := range names {
			train = append(train, filepath.Join(c.Dir, name))
		}
	}
	if err == nil && len(train) == 0 {
		err = fmt.Errorf("%s has no folder train and no .txt or .tsv file (or .gz or .zst of one) with train in its name: %w", c.Dir, fs.ErrNotExist)
	}
	if err != nil {
		return nil, p, fmt.Errorf("%s: %w; %w", c.clickSet(), err, datafile.TextAlternatives(c.clickSet(), c.Dir))
	}
	p, err = datafile.FindPair(c.clickSet(), c.Dir, train[0], c.EvalFile)
	return train, p, err
}

// openClicks reads both files into memory. With c.Stream the training rows stay in the files, and
// the evaluation rows are read again each time, except from a compressed file.
func openClicks(c Config, bad *datafile.Skips) (*Dataset, error) {
	f, err := c.clickFormat()
	if err != nil {
		return nil, err
	}
	var files datafile.Pair
	s := &Dataset{Classes: 2, Rows: or(c.Rows, clicks.TableRows), Layout: f.Layout}
	if c.Stream {
		s.Files, files, err = findClickStream(c)
	} else {
		files, err = datafile.FindPair(c.clickSet(), c.Dir, c.TrainFile, c.EvalFile)
	}
	if err != nil {
		return nil, err
	}
	s.Notes = files.Notes()
	if shape := f.Shape(); f.Layout != nil {
		s.Notes = append(s.Notes, fmt.Sprintf("layout %s: %s and %s", f.Layout.Name(), quantity.Count(shape.Numbers, "number"), quantity.Count(len(shape.Slots), "slot of keys")))
	}
	if !c.Stream {
		if s.Train, err = c.readClicks(files.Train, f, c.TrainLimit, bad); err != nil {
			return nil, err
		}
	}
	before := bad.Count()
	if s.Eval, err = c.readClicks(files.Eval, f, c.EvalLimit, bad); bad.Count() == before {
		s.evalFile = files.Eval
	}
	return s, err
}

// readClicks returns the source of a file's rows. With Stream the rows stay in the file, unless the
// file is compressed and does not allow random access.
func (c Config) readClicks(path string, f *clicks.Format, limit int, bad *datafile.Skips) (Source, error) {
	if c.Stream && !datafile.Packed(path) && !datafile.Typed(path) {
		rows, err := openClickFile(path, f, c.threads(), limit, bad)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.clickSet(), err)
		}
		return rows, nil
	}
	rows, err := c.clickPages(path, f, limit, bad)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.clickSet(), err)
	}
	return rows, nil
}

// clickPages reads a file's rows into memory.
func (c Config) clickPages(path string, f *clicks.Format, limit int, bad *datafile.Skips) (*clickPages, error) {
	return collectClicks(path, f, limit, func(collect func(*clicks.Chunk) bool) error {
		return c.eachClicks(path, f, bad, collect)
	})
}

// eachClicks calls collect with the parsed chunks of a file, in order, until collect returns false.
func (c Config) eachClicks(path string, f *clicks.Format, bad *datafile.Skips, collect func(*clicks.Chunk) bool) error {
	if datafile.Typed(path) {
		return eachTyped(f, path, bad, collect)
	}
	in, err := datafile.OpenText(path)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = f.Each(path, in, clicks.ChunkBytes, c.threads(), bad, collect)
	return err
}

// syntheticCriteo returns 100,000 synthetic training rows and 20,000 evaluation rows.
func syntheticCriteo(c Config) *Dataset {
	rows := clicks.NewSynthetic(c.criteoRows(), c.Keys, c.Seed)
	source := func(set uint64, n int) Source {
		out := newClicks(rows.Shape())
		for i := range n {
			out.add(rows.Draw(set, uint64(i)), 0)
		}
		return out
	}
	return &Dataset{
		Train: source(0, or(c.TrainLimit, 100_000)), Eval: source(1, or(c.EvalLimit, 20_000)),
		Classes: 2, Rows: or(c.Rows, clicks.TableRows),
	}
}

// eachTyped calls collect for the rows of a file with typed columns.
func eachTyped(f *clicks.Format, path string, bad *datafile.Skips, collect func(*clicks.Chunk) bool) error {
	if f.Layout == nil {
		return fmt.Errorf("%s: rows in Criteo's format are lines of text: for other files give the columns with --layout", path)
	}
	in, err := OpenTable(path)
	if err != nil {
		return err
	}
	return f.RowsOf(in, bad, collect)
}

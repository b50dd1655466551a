package data

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
)

// readClicks parses a text to its end, or until limit rows are there.
func readClicks(name string, r io.Reader, f *lineFormat, threads, limit int, bad *datafile.Skips) (*clicks, error) {
	out := &clicks{shape: f.shape()}
	_, err := f.each(name, r, chunkBytes, threads, bad, func(c *chunk) bool {
		out.add(&c.block.clickRows, limit)
		return limit == 0 || out.n < limit
	})
	if err == nil && out.n == 0 {
		err = f.none(name)
	}
	return out, err
}

// clickFormat is how the lines of a set of clicks become samples: by a layout, where there is one,
// else in Criteo's format, of which models want ids or keys.
func (c Config) clickFormat() (*lineFormat, error) {
	if c.Layout == "" {
		return criteoFormat(c.criteoRows(), c.Keys), nil
	}
	l, err := layout.Open(c.Layout)
	if err != nil {
		return nil, setting.Errorf(datafile.LayoutPath, "%w", err)
	}
	return layoutFormat(l)
}

// criteoRows is how many rows ids are of; 0: keys are wanted.
func (c Config) criteoRows() int {
	if c.Keys {
		return 0
	}
	return or(c.Rows, clickTableRows)
}

// clickSet is what a set of clicks is called.
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
	_, err := findPair(c.clickSet(), c)
	return err
}

// findClickStream returns the files to stream from, which are all with train in
// their names, or those of a folder train, and the one to evaluate on.
func findClickStream(c Config) (train []string, p pair, err error) {
	if c.TrainFile != "" {
		train, err = ClickFiles(c.TrainFile)
	} else if folder := filepath.Join(c.Dir, "train"); datafile.IsFolder(folder) {
		train, err = ClickFiles(folder)
	} else {
		var names []string
		names, err = clickNames(c.Dir, "train")
		for _, name := range names {
			train = append(train, filepath.Join(c.Dir, name))
		}
	}
	if err == nil && len(train) == 0 {
		err = fmt.Errorf("%s has no folder train and no .txt or .tsv file (or .gz or .zst of one) with train in its name: %w", c.Dir, fs.ErrNotExist)
	}
	if err != nil {
		return nil, p, fmt.Errorf("%s: %w; %w", c.clickSet(), err, textAlternatives(c.clickSet(), c.Dir))
	}
	p, err = findPair(c.clickSet(), Config{Dir: c.Dir, TrainFile: train[0], EvalFile: c.EvalFile})
	return train, p, err
}

// openClicks reads the two files into memory, but for what is streamed: then rows to evaluate are
// read again each time, unless they are compressed.
func openClicks(c Config, bad *datafile.Skips) (*Dataset, error) {
	f, err := c.clickFormat()
	if err != nil {
		return nil, err
	}
	var files pair
	s := &Dataset{Classes: 2, Rows: or(c.Rows, clickTableRows), Layout: f.layout}
	if c.Stream {
		s.Files, files, err = findClickStream(c)
	} else {
		files, err = findPair(c.clickSet(), c)
	}
	if err != nil {
		return nil, err
	}
	s.Notes = files.notes()
	if shape := f.shape(); f.layout != nil {
		s.Notes = append(s.Notes, fmt.Sprintf("layout %s: %s and %s", f.layout.Name(), quantity.Count(shape.Size(), "number"), quantity.Count(len(shape.Slots), "slot of keys")))
	}
	if !c.Stream {
		if s.Train, err = c.readClicks(files.train, f, c.TrainLimit, bad); err != nil {
			return nil, err
		}
	}
	s.Eval, err = c.readClicks(files.eval, f, c.EvalLimit, bad)
	return s, err
}

// readClicks is the source of a file's rows: of a stream they are left in their file, unless it is
// compressed and could not be read from a place in it.
func (c Config) readClicks(path string, f *lineFormat, limit int, bad *datafile.Skips) (Source, error) {
	if c.Stream && !datafile.Packed(path) && !typed(path) {
		rows, err := openClickFile(path, f, c.threads(), limit, bad)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.clickSet(), err)
		}
		return rows, nil
	}
	if typed(path) {
		rows, err := readTyped(path, f, limit, bad)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.clickSet(), err)
		}
		return rows, nil
	}
	in, err := datafile.OpenText(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.clickSet(), err)
	}
	defer in.Close()
	rows, err := readClicks(path, in, f, c.threads(), limit, bad)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.clickSet(), err)
	}
	return rows, nil
}

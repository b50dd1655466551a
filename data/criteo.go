package data

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// pageRows is how many rows lie together: no row is ever copied to grow.
const pageRows = 1 << 13

// clicks is the source of Criteo's rows in memory: 160 bytes each, with keys instead of ids 264.
type clicks struct {
	pages []clickRows
	n     int
	shape Shape
}

func (c *clicks) Len() int     { return c.n }
func (c *clicks) Shape() Shape { return c.shape }

var clickValues = []int{clickNumbers} // of clickParser.shape. Never written.

// clickSlotList are the slots of Criteo's categories, C1 to C26 as its files' columns are called. Never written.
var clickSlotList = func() (out []Slot) {
	for i := range clickSlots {
		out = append(out, Slot{Name: fmt.Sprintf("C%d", i+1)})
	}
	return out
}()

// shape is that of the rows that a parser makes.
func (p *clickParser) shape() Shape {
	s := Shape{Values: clickValues, Labels: 1}
	if p.rows > 0 {
		s.IDs = clickSlots
	}
	if p.keys {
		s.Keys, s.Slots = clickSlots, clickSlotList
	}
	return s
}

// put copies row r of a page or block to a batch's row i.
func (b *Batch) put(i int, from *clickRows, r int) {
	b.Labels[i] = from.labels[r]
	copy(b.Values[i*clickNumbers:][:clickNumbers], from.numbers[r*clickNumbers:])
	if len(b.IDs) > 0 {
		copy(b.IDs[i*clickSlots:][:clickSlots], from.ids[r*clickSlots:])
	}
	if len(b.Keys) > 0 {
		copy(b.Keys[i*clickSlots:][:clickSlots], from.keys[r*clickSlots:])
	}
}

// bag makes bags of the keys of rows, if there are any.
func (b *Batch) bag() {
	if len(b.Keys) > 0 {
		b.Bags.fromRows(b.Keys, clickSlots, b.N)
	}
}

func (c *clicks) evidence(w io.Writer) {
	for _, p := range c.pages {
		writeInts(w, p.labels)
	}
}

// Fill copies the rows.
func (c *clicks) Fill(b *Batch, idx []int32, _ Draw) error {
	b.Resize(c.shape, len(idx))
	for i, n := range idx {
		if n < 0 || int(n) >= c.n {
			panic(fmt.Sprintf("data: sample %d of %d", n, c.n))
		}
		b.put(i, &c.pages[n/pageRows], int(n%pageRows))
	}
	b.bag()
	return nil
}

// add appends rows, as many as a limit allows (0: all).
func (c *clicks) add(rows *clickRows, limit int) {
	n := len(rows.labels)
	if limit > 0 {
		n = min(n, limit-c.n)
	}
	for from := 0; from < n; {
		if c.n%pageRows == 0 {
			c.pages = append(c.pages, clickRows{
				numbers: make([]float32, 0, pageRows*clickNumbers), labels: make([]int32, 0, pageRows),
				ids: make([]int32, 0, pageRows*c.shape.IDs), keys: make([]uint64, 0, pageRows*c.shape.Keys),
			})
		}
		p := &c.pages[len(c.pages)-1]
		to := min(n, from+pageRows-len(p.labels))
		p.numbers = append(p.numbers, rows.numbers[from*clickNumbers:to*clickNumbers]...)
		p.ids = append(p.ids, rows.ids[from*c.shape.IDs:to*c.shape.IDs]...)
		p.keys = append(p.keys, rows.keys[from*c.shape.Keys:to*c.shape.Keys]...)
		p.labels = append(p.labels, rows.labels[from:to]...)
		c.n += to - from
		from = to
	}
}

// readClicks parses a file to its end, or until limit rows are there.
func readClicks(name string, r io.Reader, p *clickParser, threads, limit int, bad *skips) (*clicks, error) {
	out := &clicks{shape: p.shape()}
	err := eachClicks(&chunks{name: name, r: r, size: chunkBytes}, p, threads, bad, func(c *chunk) bool {
		out.add(&c.block.clickRows, limit)
		return limit == 0 || out.n < limit
	})
	if err == nil && out.n == 0 {
		err = noClicks(name)
	}
	return out, err
}

// eachClicks gives the parsed chunks of a file to collect, in order, until that returns
// false. Bad lines that may be left out are.
func eachClicks(in *chunks, p *clickParser, threads int, bad *skips, collect func(*chunk) bool) error {
	lines := 0
	return parseLines(in, threads, p.parse, func(c *chunk) (bool, error) {
		for _, f := range c.block.faults {
			fault := &FormatError{in.name, c.offset + int64(f.offset), fmt.Sprintf("line %d: %s", lines+f.line+1, f.text)}
			if err := bad.skip(fault); err != nil {
				return false, err
			}
		}
		lines += c.block.lines
		return collect(c), nil
	})
}

// clickParser makes ids of a table with so many rows, or keys.
func (c Config) clickParser(rows int) *clickParser {
	if !c.Keys {
		return newClickParser(rows)
	}
	p := newClickParser(0)
	p.keys = true
	return p
}

func noClicks(name string) error {
	return &FormatError{name, 0, "no rows: want lines of a label, 13 numbers and 26 categories, separated by tabs"}
}

func findCriteo(c Config) error {
	if c.Stream {
		_, _, err := findClickStream(c)
		return err
	}
	_, err := findPair("criteo", c)
	return err
}

// findClickStream returns the files to stream from, which are all with train in
// their names, or those of a folder train, and the one to evaluate on.
func findClickStream(c Config) (train []string, p pair, err error) {
	if c.TrainFile != "" {
		train, err = ClickFiles(c.TrainFile)
	} else if folder := filepath.Join(c.Dir, "train"); isFolder(folder) {
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
		return nil, p, fmt.Errorf("criteo: %w; %w", err, textAlternatives("criteo", c.Dir))
	}
	p, err = findPair("criteo", Config{Dir: c.Dir, TrainFile: train[0], EvalFile: c.EvalFile})
	return train, p, err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// openCriteo reads the two files into memory, but for what is streamed: then rows to
// evaluate are read again each time, unless they are compressed.
func openCriteo(c Config, bad *skips) (*Set, error) {
	var files pair
	var err error
	s := &Set{Classes: 2, Rows: or(c.Rows, clickTableRows)}
	if c.Stream {
		s.Files, files, err = findClickStream(c)
	} else {
		files, err = findPair("criteo", c)
	}
	if err != nil {
		return nil, err
	}
	s.Notes = files.notes()
	p := c.clickParser(s.Rows)
	read := func(path string, limit int) (Source, error) {
		if c.Stream && !Packed(path) {
			rows, err := openClickFile(path, p, c.threads(), limit, bad)
			if err != nil {
				return nil, fmt.Errorf("criteo: %w", err)
			}
			return rows, nil
		}
		f, err := OpenText(path)
		if err != nil {
			return nil, fmt.Errorf("criteo: %w", err)
		}
		defer f.Close()
		rows, err := readClicks(path, f, p, c.threads(), limit, bad)
		if err != nil {
			return nil, fmt.Errorf("criteo: %w", err)
		}
		return rows, nil
	}
	if !c.Stream {
		if s.Train, err = read(files.train, c.TrainLimit); err != nil {
			return nil, err
		}
	}
	s.Eval, err = read(files.eval, c.EvalLimit)
	return s, err
}

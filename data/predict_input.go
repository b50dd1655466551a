package data

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/setting"
)

// Rows is a batch of a PredictInput. Labels have no meaning.
type Rows struct {
	Batch
	// Numbers lists the rows' numbers in the whole input, from 0: rows of a table, lines of a text,
	// or images in order.
	Numbers []int64
	// Files lists the images' paths; empty for other inputs.
	Files []string
	// PassThrough lists the requested columns of each row, as words.
	PassThrough [][]string
}

// PredictInput returns samples for prediction. Rows of tables and clicks are read from files or the
// standard input on demand and never loaded as a whole; several goroutines decode images in
// advance. Batches have the order of the input. A PredictInput belongs to one goroutine.
type PredictInput interface {
	// Next returns the rank's next batch, valid until the next call, or false at the end. A batch
	// lacks bad rows that were skipped, and can therefore be empty.
	Next() (rows *Rows, ok bool, err error)
	// LeftOut returns the skipped files and rows until now by kind: files without images, counted
	// by rank 0, and bad rows.
	LeftOut() []LeftOut
	// Unseen returns, once Next has returned false, for each column of a table the number of the
	// rank's rows with a word that is not in the training data.
	Unseen() map[string]int
	// Close stops reading.
	Close()
}

// InputConfig configures a PredictInput.
type InputConfig struct {
	// Path is a file or folder, Synthetic, or - for Stdin.
	Path  string
	Stdin io.Reader
	// Batch is the number of rows per batch, at least 1. The rank reads every Size-th batch, from
	// batch Rank on; Size 0 means 1.
	Batch, Rank, Size int
	// Threads is the number of goroutines that read ahead; 0: GOMAXPROCS.
	Threads int
	// SkipBad is the number of bad rows or images that each rank may skip; one more is an error.
	SkipBad int
	// Schema is the schema with which the model was trained. It selects a sample array with a name
	// that is not known.
	Schema table.Schema
	// Columns lists the table columns for Rows.PassThrough.
	Columns []string
	// Seed is the seed of synthetic data.
	Seed uint64
}

// Stdin, as a path, selects the standard input.
const Stdin = "-"

// nameOfInput returns the input's name in errors.
func nameOfInput(path string) string {
	if path == Stdin {
		return "standard input"
	}
	return path
}

// OpenInput opens Path as samples for a model of the described data.
func OpenInput(d Description, c InputConfig) (PredictInput, error) {
	if c.Size, c.Threads = or(c.Size, 1), or(c.Threads, runtime.GOMAXPROCS(0)); c.Batch < 1 || c.Rank < 0 || c.Rank >= c.Size {
		return nil, fmt.Errorf("data: batches of %d for rank %d of %d: want at least 1, and a rank below their number", c.Batch, c.Rank, c.Size)
	}
	bad := &datafile.Skips{Max: c.SkipBad, All: true}
	switch {
	case c.Path == Stdin && c.Stdin == nil:
		return nil, errors.New("data: path -: no standard input is given (InputConfig.Stdin)")
	case d.Encoder == nil && len(c.Columns) > 0:
		return nil, errors.New("--columns: only tables, such as my.csv, have columns to pass through")
	case d.Encoder != nil:
		return openAskedTable(d, c, bad)
	case c.Path == Stdin && d.Name != "criteo" && d.Name != "clicks":
		return nil, setting.Errorf(datafile.DirPath, "-: the standard input can be a table or rows of Criteo, but the model was trained on %s: name a file or folder", nameOr(d.Name))
	case c.Path == Synthetic:
		return openAskedSet(d, c)
	case d.Name == "criteo", d.Name == "clicks" && d.Layout != nil:
		return openAskedClicks(d, c, bad)
	case d.Name == "arrays" && c.SkipBad > 0:
		return nil, setting.Errorf(datafile.SkipBadPath, "%d has no effect on arrays: none of their samples can be left out", c.SkipBad)
	case d.Name == "arrays":
		return openAskedArrays(d, c, bad)
	}
	if _, _, ok := d.Normalisation(); ok {
		return openAskedImages(d, c, bad)
	}
	return nil, fmt.Errorf("the model was trained on %s: samples of these data cannot be read from a file", nameOr(d.Name))
}

// nameOr returns a set's name for messages.
func nameOr(name string) string {
	if name == "" {
		return "data of a program"
	}
	return name
}

// openAskedSet opens the evaluation part of a set in a folder, or of a synthetic set.
func openAskedSet(d Description, c InputConfig) (PredictInput, error) {
	cfg := Config{Dir: c.Path, Seed: c.Seed, Rows: d.Rows, Keys: len(d.Shape.Slots) > 0, Threads: c.Threads, SkipBad: c.SkipBad}
	if len(d.Shape.Values) == 3 {
		cfg.ImageSize = d.Shape.Values[0]
	}
	if c.Path == Synthetic {
		cfg.SkipBad, cfg.TrainLimit = 0, 1 // training samples are unused
	}
	set, err := Open(d.Name, cfg)
	if err != nil {
		return nil, err
	}
	if set.divided {
		_ = set.Close() // only read: no data to lose
		return nil, fmt.Errorf("%s: an archive without images for evaluation, a part of which would be held out: unpack it, and name the folder to predict all images", c.Path)
	}
	if s, want := set.Eval.Shape(), d.Shape; s.Size() != want.Size() || s.IDs != want.IDs || s.Keys != want.Keys || !slices.Equal(s.Slots, want.Slots) {
		_ = set.Close() // only read: no data to lose
		return nil, fmt.Errorf("%s: samples of data set %s have %v values, %d ids and %d slots, the training samples of the model had %v, %d and %d",
			c.Path, d.Name, s.Values, s.IDs, len(s.Slots), want.Values, want.IDs, len(want.Slots))
	}
	return newPicked(set.Eval, c, set.skips, set.emptyFiles, set)
}

// indexedInput is the PredictInput of a source.
type indexedInput struct {
	loader   *Loader
	inTurn   roundRobin
	source   Source
	skips    *datafile.Skips
	excluded []LeftOut // files without images
	rows     Rows
	files    io.Closer
}

// newPicked returns the PredictInput of a source, in source order. It finally closes files, if not
// nil.
func newPicked(source Source, c InputConfig, bad *datafile.Skips, left []LeftOut, files io.Closer) (PredictInput, error) {
	if c.Rank > 0 {
		left = nil
	}
	p := &indexedInput{source: source, skips: bad, excluded: left, files: files, inTurn: roundRobin{n: source.Len(), batch: c.Batch, rank: c.Rank, size: c.Size}}
	order := p.inTurn
	loader, err := NewLoader(LoaderConfig{Source: source, Sampler: &order, Workers: c.Threads})
	if err != nil {
		return nil, err // impossible: OpenInput has checked the configuration
	}
	p.loader = loader
	p.inTurn.Start(1)
	p.loader.Start(1)
	return p, nil
}

// Next adds the row numbers, and removes the samples with which the source replaces bad images.
func (p *indexedInput) Next() (*Rows, bool, error) {
	b, ok, err := p.loader.Next()
	if !ok || err != nil {
		return nil, false, err
	}
	idx, _ := p.inTurn.Next()
	p.rows.Batch, p.rows.Numbers, p.rows.Files = *b, p.rows.Numbers[:0], p.rows.Files[:0]
	files, named := p.source.(*encoded)
	shape, kept := p.source.Shape(), 0
	for i, n := range idx {
		if named && files.Known(n) {
			continue
		}
		if p.rows.Numbers = append(p.rows.Numbers, int64(n)); named {
			p.rows.Files = append(p.rows.Files, files.Pictures[n].Path)
		}
		if kept < i {
			p.rows.At(shape, kept).copy(p.rows.At(shape, i))
		}
		kept++
	}
	p.rows.cut(shape, kept)
	return &p.rows, true, nil
}

// cut truncates the batch to n samples.
func (b *Batch) cut(s Shape, n int) {
	b.N, b.Values, b.IDs, b.Keys = n, b.Values[:n*s.Size()], b.IDs[:n*s.IDs], b.Keys[:n*s.Keys]
	b.Labels, b.Targets = b.Labels[:n*s.Labels], b.Targets[:n*s.Targets]
}

func (p *indexedInput) LeftOut() []LeftOut { return slices.Concat(p.excluded, p.skips.LeftOut()) }

// Unseen returns nil: only tables have words.
func (p *indexedInput) Unseen() map[string]int { return nil }

func (p *indexedInput) Close() {
	p.loader.Close()
	if p.files != nil {
		_ = p.files.Close() // only read: no data to lose
	}
}

// roundRobin is the sampler that assigns batches, in source order, to the ranks in rotation. Each
// sample occurs once, without a shuffle. The last batch can be short, and a rank can have one batch
// more than other ranks, because ranks predict independently.
type roundRobin struct {
	n, batch, rank, size int
	idx                  []int32
	at                   position
}

// Steps returns the number of this rank's batches.
func (s *roundRobin) Steps() int {
	all := (s.n + s.batch - 1) / s.batch
	return max(0, (all-s.rank+s.size-1)/s.size)
}

// Start begins again, in the same order.
func (s *roundRobin) Start(int) { s.Seek(0) }

// Seek makes step the next one.
func (s *roundRobin) Seek(step int) { s.at.seek(step, s.Steps()) }

func (s *roundRobin) Next() (idx []int32, ok bool) {
	step, ok := s.at.advance()
	if !ok {
		return nil, false
	}
	lo := (step*s.size + s.rank) * s.batch
	s.idx = s.idx[:0]
	for i := lo; i < min(lo+s.batch, s.n); i++ {
		s.idx = append(s.idx, int32(i))
	}
	return s.idx, true
}

// streamInput is the PredictInput of a reader that reads sequentially. The reader's goroutine
// parses and encodes the next batches while the caller uses a batch. A fixed number of batches is
// reused, which limits the memory.
type streamInput struct {
	full  chan *Rows
	free  chan *Rows
	stop  chan struct{}
	ended sync.WaitGroup
	err   error // the reader's error, valid once full is closed
	last  *Rows // last result of Next
	skips *datafile.Skips
	// unseen is Unseen's result, filled by the reader and valid once full is closed.
	unseen map[string]int
	waits  bool // Close waits for the reader; false for the standard input, which may never end
}

// pushedAhead is the number of batches that the reader prepares in advance.
const pushedAhead = 4

// errStopped ends the reader of a closed PredictInput.
var errStopped = errors.New("closed")

// newPushed starts read in a goroutine. read calls hand for each batch, with a function that fills
// the batch.
func newPushed(bad *datafile.Skips, waits bool, read func(hand func(fill func(*Rows)) error) error) *streamInput {
	p := &streamInput{full: make(chan *Rows, pushedAhead+2), free: make(chan *Rows, pushedAhead+2), stop: make(chan struct{}), skips: bad, waits: waits}
	for range cap(p.free) {
		p.free <- new(Rows)
	}
	p.ended.Go(func() {
		defer close(p.full)
		p.err = read(p.hand)
	})
	return p
}

func (p *streamInput) hand(fill func(*Rows)) error {
	select {
	case rows := <-p.free:
		fill(rows)
		p.full <- rows // never blocks: capacity for all batches
		return nil
	case <-p.stop:
		return errStopped
	}
}

// Next returns the next batch.
func (p *streamInput) Next() (*Rows, bool, error) {
	if p.last != nil {
		p.free <- p.last
		p.last = nil
	}
	rows, ok := <-p.full
	if !ok {
		return nil, false, p.err
	}
	p.last = rows
	return rows, true, nil
}

func (p *streamInput) LeftOut() []LeftOut { return p.skips.LeftOut() }

// Unseen returns the reader's counts.
func (p *streamInput) Unseen() map[string]int { return p.unseen }

func (p *streamInput) Close() {
	close(p.stop)
	if p.waits {
		p.ended.Wait()
	}
}

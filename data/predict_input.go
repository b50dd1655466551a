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

// Rows are a batch of a PredictInput, without labels that mean anything.
type Rows struct {
	Batch
	// Numbers are those of the rows in the whole input, from 0: rows of a table, lines of a text,
	// or images in their order.
	Numbers []int64
	// Files name the images, where they lie in files of their own.
	Files []string
	// PassThrough are the columns of each row that were asked for, as words.
	PassThrough [][]string
}

// PredictInput gives samples that were not seen in training: a table or rows of Criteo are read
// from a file, several, or the standard input while they are needed, and never held; images are
// decoded ahead by several goroutines. Batches come in their order. It belongs to one goroutine.
type PredictInput interface {
	// Next returns the rank's next batch, which is good until the next call, or false at the end.
	// Rows that were bad and could be left out are missing in it: there may be none.
	Next() (rows *Rows, ok bool, err error)
	// LeftOut returns what was left out so far, by kind: files that are no images, which rank 0
	// counts, and bad rows.
	LeftOut() []LeftOut
	// Close ends reading.
	Close()
}

// InputConfig says what a PredictInput reads.
type InputConfig struct {
	// Path is a file or folder, Synthetic, or - for Stdin.
	Path  string
	Stdin io.Reader
	// Batch is how many rows come at a time, at least 1. Batches are dealt to the ranks in
	// turns: Rank has every Size-th one, from its own number on; a Size of 0 stands for 1.
	Batch, Rank, Size int
	// Threads read ahead; 0: GOMAXPROCS.
	Threads int
	// SkipBad is how many bad rows or images each rank leaves out and counts; more are an error.
	SkipBad int
	// Schema is that of the training, by which an array of samples that has another name than usual
	// is known.
	Schema table.Schema
	// Columns are those of a table that Rows.PassThrough has.
	Columns []string
	// Seed is that of synthetic data.
	Seed uint64
}

// Stdin in place of a path is the standard input.
const Stdin = "-"

// nameOfInput is a path, or what - stands for, in errors.
func nameOfInput(path string) string {
	if path == Stdin {
		return "standard input"
	}
	return path
}

// OpenInput opens what Path names as samples of the kind that is described, whose model they are
// for.
func OpenInput(d Description, c InputConfig) (PredictInput, error) {
	if c.Size, c.Threads = or(c.Size, 1), or(c.Threads, runtime.GOMAXPROCS(0)); c.Batch < 1 || c.Rank < 0 || c.Rank >= c.Size {
		return nil, fmt.Errorf("data: batches of %d for rank %d of %d: want at least 1, and a rank below their number", c.Batch, c.Rank, c.Size)
	}
	bad := &datafile.Skips{Max: c.SkipBad, All: true}
	switch {
	case c.Path == Stdin && c.Stdin == nil:
		return nil, errors.New("data: the standard input is to be read, but there is none")
	case d.Encoder == nil && len(c.Columns) > 0:
		return nil, errors.New("columns can be kept of tables alone, such as my.csv")
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
	case d.Name == "mnist" || d.Name == "cifar10" || d.Name == "images" || d.Name == "imagenet":
		return openAskedImages(d, c, bad)
	}
	return nil, fmt.Errorf("the model was trained on %s, of which no file can be read alone", nameOr(d.Name))
}

// nameOr is a set's name for a person.
func nameOr(name string) string {
	if name == "" {
		return "data of a program"
	}
	return name
}

// openAskedSet is the evaluation part of a set that OpenInput's caller names by its folder, or of a
// synthetic one.
func openAskedSet(d Description, c InputConfig) (PredictInput, error) {
	cfg := Config{Dir: c.Path, Seed: c.Seed, Rows: d.Rows, Keys: len(d.Shape.Slots) > 0, Threads: c.Threads, SkipBad: c.SkipBad}
	if len(d.Shape.Values) == 3 {
		cfg.ImageSize = d.Shape.Values[0]
	}
	if c.Path == Synthetic {
		cfg.SkipBad, cfg.TrainLimit = 0, 1 // of which nobody asks
	}
	set, err := Open(d.Name, cfg)
	if err != nil {
		return nil, err
	}
	if s, want := set.Eval.Shape(), d.Shape; s.Size() != want.Size() || s.IDs != want.IDs || s.Keys != want.Keys || !slices.Equal(s.Slots, want.Slots) {
		_ = set.Close() // it was only read
		return nil, fmt.Errorf("%s: samples of data set %s have %v values, %d ids and %d slots, but those the model was trained on had %v, %d and %d",
			c.Path, d.Name, s.Values, s.IDs, len(s.Slots), want.Values, want.IDs, len(want.Slots))
	}
	return newPicked(set.Eval, c, set.skips, set.left, set)
}

// indexedInput is the PredictInput of a source.
type indexedInput struct {
	loader *Loader
	inTurn roundRobin
	source Source
	skips  *datafile.Skips
	left   []LeftOut // files that are no images
	rows   Rows
	files  io.Closer
}

// newPicked reads a source in its order. files are those that samples are read from, which it
// closes; nil: there are none.
func newPicked(source Source, c InputConfig, bad *datafile.Skips, left []LeftOut, files io.Closer) (PredictInput, error) {
	if c.Rank > 0 {
		left = nil
	}
	p := &indexedInput{source: source, skips: bad, left: left, files: files, inTurn: roundRobin{n: source.Len(), batch: c.Batch, rank: c.Rank, size: c.Size}}
	order := p.inTurn
	loader, err := NewLoader(LoaderConfig{Source: source, Sampler: &order, Workers: c.Threads})
	if err != nil {
		return nil, err // of a configuration that OpenInput has checked
	}
	p.loader = loader
	p.inTurn.Start(1)
	p.loader.Start(1)
	return p, nil
}

// Next numbers the batch's samples, and takes out those in whose place others stand.
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

// cut leaves the first n samples.
func (b *Batch) cut(s Shape, n int) {
	b.N, b.Values, b.IDs, b.Keys = n, b.Values[:n*s.Size()], b.IDs[:n*s.IDs], b.Keys[:n*s.Keys]
	b.Labels, b.Targets = b.Labels[:n*s.Labels], b.Targets[:n*s.Targets]
}

func (p *indexedInput) LeftOut() []LeftOut { return slices.Concat(p.left, p.skips.LeftOut()) }

func (p *indexedInput) Close() {
	p.loader.Close()
	if p.files != nil {
		_ = p.files.Close() // they were only read
	}
}

// roundRobin is the sampler of batches in order, of which each rank gets one in turns. The order is
// that of the source, never shuffled, and every sample comes once: the last batch may be short, and
// ranks may have one batch more than others, unlike those of training and evaluation, who make
// their steps together.
type roundRobin struct {
	n, batch, rank, size int
	idx                  []int32
	at                   position
}

// Steps is how many batches this rank gets.
func (s *roundRobin) Steps() int {
	all := (s.n + s.batch - 1) / s.batch
	return max(0, (all-s.rank+s.size-1)/s.size)
}

// Start begins anew: the order is the same each time.
func (s *roundRobin) Start(int) { s.Seek(0) }

// Seek makes step the next one.
func (s *roundRobin) Seek(step int) { s.at.seek(step, s.Steps()) }

// Next returns the indices of the next batch.
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

// streamInput is the PredictInput of what is read from its beginning to its end, such as a stream,
// by a goroutine of its own: while one batch is used, the following ones are parsed and encoded.
// Batches are recycled, so that as many are held as there is room for, however far apart the two
// are. It is the PredictInput of a reader that hands its batches over, some ahead of those that are
// used.
type streamInput struct {
	full  chan *Rows
	free  chan *Rows
	stop  chan struct{}
	ended sync.WaitGroup
	err   error // of the reader, once full is closed
	last  *Rows // that Next has given
	skips *datafile.Skips
	waits bool // that the reader ends, which one of the standard input may never do
}

// pushedAhead is how many batches wait to be used.
const pushedAhead = 4

// errStopped ends a reader whose PredictInput was closed.
var errStopped = errors.New("closed")

// newPushed has read run in a goroutine of its own: fill gets a batch's memory, which is then given
// on.
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
		p.full <- rows // it has room for all
		return nil
	case <-p.stop:
		return errStopped
	}
}

// Next returns the next batch that was read.
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

func (p *streamInput) Close() {
	close(p.stop)
	if p.waits {
		p.ended.Wait()
	}
}

package data

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/data/prng"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
)

// ClickStreamConfig says what a ClickStream reads, and how. What decides the
// order of rows is the same on all ranks, but for Rank.
type ClickStreamConfig struct {
	// Files hold rows in Criteo's format, or by Layout, in the order in which they are read:
	// plain, or compressed if their names end in .gz, .zst or .zstd. See
	// ClickFiles. They must not change while they are read.
	Files []string
	// Batch is the number of rows of a batch, at least 1.
	Batch int
	// Rows is that of the table which Batch.IDs index, row 0 for what is missing;
	// 0: no ids are wanted. Keys asks for Batch.Keys, see ClickKey. At least one
	// of both is wanted.
	Rows int
	Keys bool
	// Layout is how samples lie in the files, where they are not in Criteo's format; then neither Rows nor Keys is wanted: a batch has Bags.
	Layout *layout.Layout
	// Window is how many rows are shuffled among each other: a multiple of Batch;
	// 0: rows come in the files' order. Each window of an epoch has an order of
	// its own, which depends on Seed, the epoch, the rank and the window's number.
	// Rows never move to another window: what comes in an order, of time or of
	// users, should be cut into many files and read with Interleave. Memory: about
	// 170 bytes a row with ids alone, 270 with keys alone, by a layout as many as
	// clicks in memory have and 24 more; and three blocks of text for each of Threads.
	Window int
	Seed   uint64
	// Rank and Size are this rank and the number of ranks that share the files; a
	// Size of 0 stands for 1. Rank r gets every Size-th block from block r on; or
	// with ByFile every Size-th file from file r on. Of a compressed file each rank
	// unpacks all blocks to get its own, unless ByFile is set.
	Rank, Size int
	ByFile     bool
	// Interleave is how many files are read at once, a block of each in turn; 0: 1.
	// Each compressed one is unpacked by a goroutine of its own.
	Interleave int
	// Steps ends an epoch after so many batches, as a job needs whose ranks make
	// their steps together; rows that do not suffice are an error. 0: an epoch has
	// all of the rank's rows, which are not equally many on all ranks.
	Steps int64
	// Remainder gives out the last rows of an epoch, fewer than Batch, instead of
	// leaving them out: for evaluation.
	Remainder bool
	// SkipBad is how many bad lines of a rank are left out and counted in an
	// epoch; more are an error.
	SkipBad int
	// Threads is how many goroutines read and parse; 0: GOMAXPROCS. They do not
	// change what is read.
	Threads int
	// BlockBytes is how much of a file is read and parsed at a time, and what ranks
	// share; 0: 1 MiB, or less for files so small that a rank would not have 64
	// blocks, down to 4 KiB.
	BlockBytes int
}

const (
	maxBlockBytes = 1 << 28
	maxWindow     = 1 << 28
	maxInterleave = 1 << 10
	usualBlock    = 1 << 20
	leastBlock    = 1 << 12
	blocksPerRank = 64 // that usual blocks are made smaller for
)

// Validate reports all faults together, those of the files' existence too.
func (c ClickStreamConfig) Validate() error {
	_, _, err := c.resolve()
	return err
}

// resolve is c with what its zero values stand for, and the files' sizes.
func (c ClickStreamConfig) resolve() (ClickStreamConfig, []int64, error) {
	c.Size, c.Interleave = or(c.Size, 1), or(c.Interleave, 1)
	c.Threads = or(c.Threads, runtime.GOMAXPROCS(0))
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("click stream: "+format, args...))
		}
	}
	fault(len(c.Files) == 0, "no files")
	fault(c.Batch < 1 || c.Batch > maxWindow, "batch %d: need 1 to %d", c.Batch, maxWindow)
	fault(c.Layout != nil && (c.Rows != 0 || c.Keys), "samples by a layout have bags, not ids of %d rows or one key a slot", c.Rows)
	fault(c.Layout == nil && c.Rows == 0 && !c.Keys, "neither ids (Rows) nor keys (Keys) are wanted")
	fault(c.Rows < 0 || c.Rows == 1 || c.Rows > datafile.MaxElements, "a table of %d rows: need 2 to %d, or 0 for no ids", c.Rows, datafile.MaxElements)
	fault(c.Window < 0 || c.Window > maxWindow, "a window of %d rows: need 0 to %d", c.Window, maxWindow)
	fault(c.Batch > 0 && c.Window > 0 && c.Window%c.Batch != 0, "a window of %d rows: need a multiple of the batch, %d", c.Window, c.Batch)
	fault(c.Size < 1, "%d ranks: need at least 1", c.Size)
	fault(c.Rank < 0 || c.Rank >= c.Size, "rank %d of %d: need 0 <= rank < ranks", c.Rank, c.Size)
	fault(c.ByFile && len(c.Files) < c.Size, "%d files for %d ranks: whole files need at least one each; share blocks instead", len(c.Files), c.Size)
	fault(c.Interleave < 1 || c.Interleave > maxInterleave, "%d files at once: need 1 to %d", c.Interleave, maxInterleave)
	fault(c.Steps < 0, "%d steps: need at least 0", c.Steps)
	fault(c.SkipBad < 0 || c.SkipBad > datafile.MaxElements, "%d bad lines to skip: need 0 to %d", c.SkipBad, datafile.MaxElements)
	fault(c.Threads < 1 || c.Threads > 1<<12, "%d threads: need 0 to %d", c.Threads, 1<<12)
	fault(c.BlockBytes < 0 || c.BlockBytes > maxBlockBytes, "blocks of %d bytes: need 0 to %d", c.BlockBytes, maxBlockBytes)
	sizes, total := make([]int64, len(c.Files)), int64(0)
	for i, path := range c.Files {
		fault(datafile.Typed(path), "%s: Parquet and Arrow are read into memory, not streamed: leave out --stream, or write the rows as text, compressed if you like", path)
		info, err := pathname.Check(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("click stream: %w", err))
			continue
		}
		sizes[i] = info.Size()
		total += sizes[i]
	}
	if c.BlockBytes == 0 && c.Size > 0 {
		each := total / int64(c.Size) / blocksPerRank / leastBlock * leastBlock
		c.BlockBytes = int(min(max(each, leastBlock), usualBlock))
	}
	return c, sizes, errors.Join(errs...)
}

// window is how many rows are taken together.
func (c *ClickStreamConfig) window() int { return or(c.Window, c.Batch) }

// run returns the configuration of a pass.
func (c *ClickStreamConfig) run() *clicks.RunConfig {
	return &clicks.RunConfig{Files: c.Files, Rank: c.Rank, Size: c.Size, ByFile: c.ByFile, Interleave: c.Interleave, Threads: c.Threads, BlockBytes: c.BlockBytes}
}

// digest stands for all that decides which rows this rank gets in which order.
func (c *ClickStreamConfig) digest(sizes []int64) string {
	h := sha256.New()
	fmt.Fprintln(h, c.Batch, c.Window, c.Seed, c.Rank, c.Size, c.ByFile, c.Interleave, c.BlockBytes)
	if c.Layout != nil {
		_ = json.NewEncoder(h).Encode(c.Layout) // of numbers and texts, to a hash: never fails
	}
	for i, path := range c.Files {
		fmt.Fprintf(h, "%q %d\n", filepath.Base(path), sizes[i])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// StreamPosition is where a ClickStream is between two batches. It is saved with
// a checkpoint and given to Resume.
type StreamPosition struct {
	Epoch int   `json:"epoch"`
	Step  int64 `json:"step"` // batches given out in this epoch
	// First is the step that the window of the last batch began with, Block and Row
	// where that window's rows begin, and Bad how many bad lines came before Block.
	First int64 `json:"first"`
	Block int64 `json:"block"`
	Row   int   `json:"row"`
	Bad   int   `json:"bad"`
	// Of stands for the files and the settings.
	Of string `json:"of"`
}

// ClickStream gives out the rows of files, in Criteo's format or by a layout, batch by batch,
// without ever holding them all: files are cut into blocks at line ends, blocks
// are read and parsed by several goroutines, and collected in the files' order,
// so that batches are the same whatever the number of goroutines. In the steady
// state a batch allocates nothing.
//
// It has Loader's methods, but for Steps: how many batches there are is not
// known before all rows were counted (Rows). It belongs to one goroutine.
type ClickStream struct {
	cfg    ClickStreamConfig // resolved
	of     string
	format *clicks.Format
	shape  Shape
	batch  Batch

	run        *clicks.Run // nil before the first epoch
	epoch      int
	step       int64
	err        error // told from now on
	ended      bool  // no more batches in this epoch
	window     [2]clickWindow
	now        *clickWindow // whose rows are given out
	nextWindow *clickWindow // filled meanwhile
	shelf      rowPages

	orderedCollector
}

// OpenClickStream checks the configuration and the files' existence; call Start
// or Resume before the first batch, and Close at the end.
func OpenClickStream(cfg ClickStreamConfig) (*ClickStream, error) {
	cfg, sizes, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	format := clicks.CriteoFormat(cfg.Rows, cfg.Keys)
	if cfg.Layout != nil {
		if format, err = clicks.LayoutFormat(cfg.Layout); err != nil {
			return nil, err
		}
	}
	s := &ClickStream{cfg: cfg, of: cfg.digest(sizes), format: format, shape: shapeOf(format.Shape()), ended: true}
	s.shelf = newClickShelf(format.Shape(), cfg.window())
	s.now, s.nextWindow = &s.window[0], &s.window[1]
	return s, nil
}

// Shape is that of the batches' rows.
func (s *ClickStream) Shape() Shape {
	return s.shape
}

// Start begins an epoch, giving up what is left of another.
func (s *ClickStream) Start(epoch int) { s.start(StreamPosition{Epoch: epoch}) }

// start begins with the window that a position is in.
func (s *ClickStream) start(p StreamPosition) {
	s.halt()
	s.epoch, s.step, s.err, s.ended = p.Epoch, p.First, nil, false
	s.orderedCollector = orderedCollector{limit: s.cfg.SkipBad, bad: p.Bad, skip: p.Row}
	s.now.begin = StreamPosition{Epoch: p.Epoch, Step: p.First, First: p.First, Block: p.Block, Row: p.Row, Bad: p.Bad, Of: s.of}
	s.now.bad = p.Bad
	s.run = clicks.NewRun(s.cfg.run(), s.format, p.Block, false)
}

// halt ends the pass and takes all rows back.
func (s *ClickStream) halt() {
	if s.run == nil {
		return
	}
	s.run.Close()
	s.run = nil
	s.shelf.drop(s.now)
	s.shelf.drop(s.nextWindow)
	s.ended = true
}

// Position is where the next batch is.
func (s *ClickStream) Position() StreamPosition {
	p := s.now.begin
	p.Step = s.step
	return p
}

// Resume makes the batch at a position the next one. It reads again at most a
// window, and of compressed files all that comes before it. A position of other
// files or settings is refused.
func (s *ClickStream) Resume(p StreamPosition) error {
	per := int64(s.cfg.window() / s.cfg.Batch) // batches of a window
	switch {
	case p.Of != s.of:
		return fmt.Errorf("click stream: the position is of other files or settings (%.8q, here %.8q): give the same files, sizes, batch, window, seed, ranks and blocks", p.Of, s.of)
	case p.First < 0 || p.First%per != 0 || p.Step < p.First || p.Step > p.First+per || p.Block < 0 || p.Row < 0 || p.Bad < 0 || p.Bad > s.cfg.SkipBad:
		return fmt.Errorf("click stream: step %d in a window from step %d, block %d, row %d on after %d bad lines (at most %d) is no position in windows of %d batches",
			p.Step, p.First, p.Block, p.Row, p.Bad, s.cfg.SkipBad, per)
	}
	s.start(p)
	return s.pass(p.Step)
}

// Seek makes a step the next one of the epoch that was started. Unlike Resume it
// parses all that comes before the step. A step that the epoch does not have is
// an error.
func (s *ClickStream) Seek(step int) error {
	s.start(StreamPosition{Epoch: s.epoch})
	if step < 0 {
		s.err = fmt.Errorf("click stream: there is no step %d", step)
		return s.err
	}
	return s.pass(int64(step))
}

// pass leaves batches out until a step is next.
func (s *ClickStream) pass(step int64) error {
	for s.step < step {
		rows, err := s.more()
		batches := int64(rows / s.cfg.Batch)
		if s.cfg.Remainder && rows%s.cfg.Batch > 0 {
			batches++
		}
		if err == nil && (batches == 0 || s.cfg.Steps > 0 && step > s.cfg.Steps) {
			err = fmt.Errorf("click stream: epoch %d has no step %d: rank %d of %d has %d batches", s.epoch, step, s.cfg.Rank, s.cfg.Size, s.step)
		}
		if err != nil {
			s.err = err
			return err
		}
		n := min(step-s.step, batches)
		// A window that is left out as a whole is left as it came.
		whole := n == batches && s.now.given == 0
		s.shelf.skip(s.now, min(int(n)*s.cfg.Batch, rows), s.cfg.Window > 0 && !whole)
		s.step += n
	}
	return nil
}

// Next returns the next batch, which is good until the next call of any method,
// or false when the epoch is over. An error comes in the place of the window
// that it spoilt, and then again until Start, Seek or Resume.
func (s *ClickStream) Next() (*Batch, bool, error) {
	ok, err := s.Read(&s.batch)
	return &s.batch, ok, err
}

// Read is Next into a batch of the caller's, who may thus hold several.
func (s *ClickStream) Read(b *Batch) (ok bool, err error) {
	if s.err != nil || s.ended {
		return false, s.err
	}
	if s.cfg.Steps > 0 && s.step == s.cfg.Steps {
		s.ended = true
		return false, nil
	}
	rows, err := s.more()
	if err != nil {
		s.err = err
		return false, err
	}
	n := min(rows, s.cfg.Batch)
	if n == 0 || n < s.cfg.Batch && !s.cfg.Remainder {
		s.err, s.ended, s.now.bad = s.end(n), true, s.bad
		return false, s.err
	}
	if s.err = s.shelf.take(s.now, b, s.shape, n, s.cfg.Window > 0); s.err != nil {
		return false, s.err
	}
	s.step++
	s.fill(false)
	return true, nil
}

// end says what is wrong with an epoch's end, n rows after the last batch.
func (s *ClickStream) end(n int) error {
	switch {
	case s.cfg.Steps > 0 && s.step < s.cfg.Steps:
		return fmt.Errorf("click stream: rank %d of %d has rows for %d batches of %d in epoch %d, but an epoch of %d was asked for: count with Rows",
			s.cfg.Rank, s.cfg.Size, s.step, s.cfg.Batch, s.epoch, s.cfg.Steps)
	case s.step == 0:
		return fmt.Errorf("click stream: rank %d of %d has %s of %s (%s, ...), fewer than one batch of %d: want %s",
			s.cfg.Rank, s.cfg.Size, quantity.Count(n, "row"), quantity.Count(len(s.cfg.Files), "file"), s.cfg.Files[0], s.cfg.Batch, s.format.Expects())
	}
	return nil
}

// more is how many rows are left in the window, after opening the next one if
// fewer than a batch are. 0: the epoch has no more.
func (s *ClickStream) more() (int, error) {
	if left := s.now.remaining(); left >= s.cfg.Batch || left > 0 && s.over {
		return left, nil
	}
	// A window is a multiple of the batch, so that nothing is left of a full one.
	s.fill(true)
	if s.broken() && s.nextWindow.remaining() < s.cfg.window() {
		return 0, s.badLineError()
	}
	if s.nextWindow.remaining() == 0 {
		return 0, nil
	}
	first := s.step
	s.shelf.drop(s.now)
	s.now, s.nextWindow = s.nextWindow, s.now
	s.now.begin.Epoch, s.now.begin.First, s.now.begin.Of = s.epoch, first, s.of
	window := uint64(first) / uint64(s.cfg.window()/s.cfg.Batch)
	s.now.order = prng.New(s.cfg.Seed, uint64(s.epoch), window*uint64(s.cfg.Size)+uint64(s.cfg.Rank))
	return s.now.remaining(), nil
}

// LeftOut returns the bad lines left out in this epoch, up to the end of the last block with rows
// in the window of the last batch. After the last row it returns all of them. Bad lines before the
// position of a resumed run are counted without names.
func (s *ClickStream) LeftOut() []LeftOut { return s.leftOut(s.now.bad) }

// Rows counts the rows of this rank's share by reading and unpacking it once. A rank can make rows
// / Batch steps, so that the least of that over all ranks is right for Steps on each. Without
// SkipBad every line has to be a row, and lines are counted without parsing them; with it they are
// checked, left has the bad ones, and more of them than that are the error that an epoch would end
// with. An epoch that is under way goes on.
func (s *ClickStream) Rows(ctx context.Context) (rows int64, left []LeftOut, err error) {
	format := s.format
	if s.cfg.Layout == nil {
		format = clicks.CriteoFormat(0, false) // neither ids nor keys
	}
	r := clicks.NewRun(s.cfg.run(), format, 0, s.cfg.SkipBad == 0)
	defer r.Close()
	bad := orderedCollector{limit: s.cfg.SkipBad}
	for b := range r.Order {
		select {
		case <-b.Done:
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		}
		if b.Err != nil {
			return 0, nil, b.Err
		}
		if bad.fault = bad.judge(b); bad.fault != nil {
			return 0, nil, bad.badLineError()
		}
		rows += int64(b.Lines - len(b.Faults))
		r.Free <- b
	}
	return rows, bad.leftOut(bad.bad), nil
}

// SetSteps is ClickStreamConfig.Steps, for ranks that agree on it after they
// have counted their Rows; 0 for all. It panics below 0.
func (s *ClickStream) SetSteps(steps int64) {
	if steps < 0 {
		panic(fmt.Sprintf("data: %d steps", steps))
	}
	s.cfg.Steps = steps
}

// Close ends the goroutines and waits for them.
func (s *ClickStream) Close() { s.halt() }

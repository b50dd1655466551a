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

// ClickStreamConfig configures a ClickStream. All ranks must have equal values of fields that
// determine the order of rows, except Rank.
type ClickStreamConfig struct {
	// Files lists the files in reading order, with rows in Criteo's format or by Layout, plain or
	// compressed (.gz, .zst, .zstd). See ClickFiles. Files must not change during reading.
	Files []string
	// Batch is the number of rows of a batch, at least 1.
	Batch int
	// Rows is the number of rows of the table for Batch.IDs, with row 0 for missing values; 0: no
	// ids. Keys enables Batch.Keys, see ClickKey. Without Layout, Rows or Keys is required.
	Rows int
	Keys bool
	// Layout describes samples in another format than Criteo's. Batches then have Bags, and Rows
	// and Keys must be zero.
	Layout *layout.Layout
	// Window is the number of rows shuffled together, a multiple of Batch; 0: file order. The order
	// of a window depends on Seed, epoch, rank and the window's number. Rows never move to another
	// window: if rows are sorted by time or user, cut them into many files, and read these with
	// Interleave. Memory per row: about 170 bytes with ids alone, 270 with keys alone, with a
	// layout 36, plus 4 for each number and slot and 8 for each key. Each thread also holds three
	// blocks of text.
	Window int
	Seed   uint64
	// Rank and Size are this rank and the number of ranks that share the files; Size 0 means 1.
	// Rank r reads every Size-th block from block r on, or with ByFile every Size-th file from file
	// r on. Each rank decompresses all blocks of a compressed file, except with ByFile.
	Rank, Size int
	ByFile     bool
	// Interleave is the number of files read simultaneously, block by block in rotation; 0: 1. One
	// goroutine per compressed file decompresses.
	Interleave int
	// Steps is the number of batches of an epoch, for jobs with ranks that make each step together;
	// too few rows are an error. 0: an epoch has all rows of the rank, and ranks can have different
	// numbers of rows.
	Steps int64
	// Remainder enables the last batch of an epoch with fewer than Batch rows, for evaluation.
	Remainder bool
	// SkipBad is the number of bad lines that a rank skips and counts per epoch; more are an error.
	SkipBad int
	// Threads is the number of goroutines that read and parse; 0: GOMAXPROCS. The result does not
	// depend on Threads.
	Threads int
	// BlockBytes is the size of a block, the unit of reading, parsing and division among ranks. 0:
	// 1 MiB, less for small files so that each rank has 64 blocks, at least 4 KiB.
	BlockBytes int
}

const (
	maxBlockBytes = 1 << 28
	maxWindow     = 1 << 28
	maxInterleave = 1 << 10
	usualBlock    = 1 << 20
	leastBlock    = 1 << 12
	blocksPerRank = 64 // blocks per rank for which default blocks shrink
)

// Validate returns all errors joined, also for missing files.
func (c ClickStreamConfig) Validate() error {
	_, _, err := c.resolve()
	return err
}

// resolve returns c with defaults filled in, and the files' sizes.
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
	fault(c.Layout == nil && c.Rows == 0 && !c.Keys, "neither Rows (ids) nor Keys is set: set one of the two")
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

// window returns the number of rows collected together.
func (c *ClickStreamConfig) window() int { return or(c.Window, c.Batch) }

// run returns the configuration for one pass over the files.
func (c *ClickStreamConfig) run() *clicks.RunConfig {
	return &clicks.RunConfig{Files: c.Files, Rank: c.Rank, Size: c.Size, ByFile: c.ByFile, Interleave: c.Interleave, Threads: c.Threads, BlockBytes: c.BlockBytes}
}

// digest returns a checksum of the settings and files that determine this rank's rows, in order.
func (c *ClickStreamConfig) digest(sizes []int64) string {
	h := sha256.New()
	fmt.Fprintln(h, c.Batch, c.Window, c.Seed, c.Rank, c.Size, c.ByFile, c.Interleave, c.BlockBytes)
	if c.Layout != nil {
		_ = json.NewEncoder(h).Encode(c.Layout) // numbers and strings only: never fails
	}
	for i, path := range c.Files {
		fmt.Fprintf(h, "%q %d\n", filepath.Base(path), sizes[i])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// StreamPosition is the position of a ClickStream between two batches. Checkpoints store the
// position for Resume.
type StreamPosition struct {
	Epoch int   `json:"epoch"`
	Step  int64 `json:"step"` // batches returned in this epoch
	// First is the first step of the last batch's window. Block and Row are the first row of that
	// window, and Bad is the number of bad lines before Block.
	First int64 `json:"first"`
	Block int64 `json:"block"`
	Row   int   `json:"row"`
	Bad   int   `json:"bad"`
	// Fingerprint is a checksum of the files and settings.
	Fingerprint string `json:"of"`
}

// ClickStream returns the rows of files in Criteo's format or by a layout, batch by batch, without
// loading all rows. Files are cut into blocks at line ends; several goroutines read and parse
// blocks, and rows are collected in file order. Batches are therefore independent of the number of
// goroutines. In the steady state a batch allocates no memory.
//
// ClickStream has the methods of Loader except Steps: the number of batches is known only after
// counting all rows (Rows). A ClickStream belongs to one goroutine.
type ClickStream struct {
	cfg    ClickStreamConfig // defaults filled in
	of     string
	format *clicks.Format
	shape  Shape
	batch  Batch

	run        *clicks.Run // nil before the first epoch
	epoch      int
	step       int64
	err        error // returned by later calls
	ended      bool  // no more batches in this epoch
	window     [2]clickWindow
	now        *clickWindow // window of the next batch
	nextWindow *clickWindow // filled during use of now
	shelf      rowPages

	orderedCollector
}

// OpenClickStream checks the configuration and that the files exist. Call Start or Resume before
// the first batch, and Close at the end.
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
	s.shelf = newRowPages(format.Shape(), cfg.window())
	s.now, s.nextWindow = &s.window[0], &s.window[1]
	return s, nil
}

// Shape returns the shape of a row.
func (s *ClickStream) Shape() Shape {
	return s.shape
}

// Start begins an epoch and abandons the current one.
func (s *ClickStream) Start(epoch int) { s.start(StreamPosition{Epoch: epoch}) }

// start begins with the window of a position.
func (s *ClickStream) start(p StreamPosition) {
	s.halt()
	s.epoch, s.step, s.err, s.ended = p.Epoch, p.First, nil, false
	s.orderedCollector = orderedCollector{limit: s.cfg.SkipBad, bad: p.Bad, skip: p.Row}
	s.now.begin = StreamPosition{Epoch: p.Epoch, Step: p.First, First: p.First, Block: p.Block, Row: p.Row, Bad: p.Bad, Fingerprint: s.of}
	s.now.bad = p.Bad
	s.run = clicks.NewRun(s.cfg.run(), s.format, p.Block, false)
}

// halt ends the pass over the files and releases all rows.
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

// Position returns the position of the next batch.
func (s *ClickStream) Position() StreamPosition {
	p := s.now.begin
	p.Step = s.step
	return p
}

// Resume makes the batch at a position the next one. Cost: reads at most one window again, and all
// earlier data of compressed files. A position of other files or settings is an error.
func (s *ClickStream) Resume(p StreamPosition) error {
	per := int64(s.cfg.window() / s.cfg.Batch) // batches per window
	switch {
	case p.Fingerprint != s.of:
		return fmt.Errorf("click stream: the position is of other files or settings (%.8q, here %.8q): give the same files, sizes, batch, window, seed, ranks and blocks", p.Fingerprint, s.of)
	case p.First < 0 || p.First%per != 0 || p.Step < p.First || p.Step > p.First+per || p.Block < 0 || p.Row < 0 || p.Bad < 0 || p.Bad > s.cfg.SkipBad:
		return fmt.Errorf("click stream: step %d in a window from step %d, block %d, row %d on after %d bad lines (at most %d) is no position in windows of %d batches",
			p.Step, p.First, p.Block, p.Row, p.Bad, s.cfg.SkipBad, per)
	}
	s.start(p)
	return s.pass(p.Step)
}

// Seek makes a step of the current epoch the next one. Unlike Resume, Seek parses all earlier rows.
// A step outside the epoch is an error.
func (s *ClickStream) Seek(step int) error {
	s.start(StreamPosition{Epoch: s.epoch})
	if step < 0 {
		s.err = fmt.Errorf("click stream: there is no step %d", step)
		return s.err
	}
	return s.pass(int64(step))
}

// pass skips batches until a step is next.
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
		whole := n == batches && s.now.drawn == 0
		s.shelf.skip(s.now, min(int(n)*s.cfg.Batch, rows), s.cfg.Window > 0 && !whole)
		s.step += n
	}
	return nil
}

// Next returns the next batch, valid until the next call of any method, or false at the end of the
// epoch. After an error, Next returns the error instead of the batches of that window and later
// ones, until Start, Seek or Resume.
func (s *ClickStream) Next() (*Batch, bool, error) {
	ok, err := s.Read(&s.batch)
	return &s.batch, ok, err
}

// Read is Next into a batch of the caller, so a caller can hold several batches.
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

// end returns the error, or nil, of an epoch that ends with n rows in no batch.
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

// more returns the number of rows left in the window, and first opens the next window if none is
// left. 0 is the end of the epoch.
func (s *ClickStream) more() (int, error) {
	if left := s.now.remaining(); left >= s.cfg.Batch || left > 0 && s.over {
		return left, nil
	}
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
	s.now.begin.Epoch, s.now.begin.First, s.now.begin.Fingerprint = s.epoch, first, s.of
	window := uint64(first) / uint64(s.cfg.window()/s.cfg.Batch)
	s.now.order = prng.New(s.cfg.Seed, uint64(s.epoch), window*uint64(s.cfg.Size)+uint64(s.cfg.Rank))
	return s.now.remaining(), nil
}

// LeftOut returns the bad lines skipped in this epoch up to the end of the last block with rows in
// the last batch's window; after the last row, all bad lines. Bad lines before a resumed position
// are counted without names.
func (s *ClickStream) LeftOut() []LeftOut { return s.leftOut(s.now.bad) }

// Rows counts the rows of this rank's share by reading and decompressing the files once. A rank can
// make rows / Batch steps; set Steps on all ranks to the minimum over the ranks. With SkipBad 0
// Rows counts lines, without parsing. Otherwise it parses lines: left lists the bad ones, and too
// many are an error, as in an epoch. The current epoch continues.
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

// SetSteps sets ClickStreamConfig.Steps after the ranks have counted Rows and agreed; 0 means all
// rows. A negative value panics.
func (s *ClickStream) SetSteps(steps int64) {
	if steps < 0 {
		panic(fmt.Sprintf("data: %d steps", steps))
	}
	s.cfg.Steps = steps
}

// Close stops the goroutines and waits for the end of each.
func (s *ClickStream) Close() { s.halt() }

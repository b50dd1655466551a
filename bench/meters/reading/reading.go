// Package reading is `meters read`: it times how fast click logs become batches, and what limits
// that.
package reading

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/train"
)

// command is `meters read`.
type command struct {
	batch, window, interleave int
	rows                      int // of the table that ids index; 0: keys
	threads                   int
	skipBad                   int
	repeat                    int
	cached                    bool
	json                      string
}

// result is a stage's line of JSON. Rates are of unpacked text, at the median.
type result struct {
	Bench   string  `json:"bench"` // "read"
	Stage   string  `json:"stage"` // "disk", "unpack" (of compressed files), "parse" or "pipeline"
	Files   int     `json:"files"`
	Threads int     `json:"threads"`
	MBPerS  float64 `json:"mb_s"` // of 10^6 bytes
	RowsPer float64 `json:"rows_s"`
	// FileMBPerS is what is read of the files themselves: less than MBPerS where
	// they are compressed; 0 where they are not touched.
	FileMBPerS float64 `json:"file_mb_s"`
	Cached     bool    `json:"cached"` // files may have been in memory
	MedianMS   float64 `json:"median_ms"`
	MinMS      float64 `json:"min_ms"`
	Iterations int     `json:"iterations"`
}

// pipelineResult is the whole, with its share of what its parts can do.
type pipelineResult struct {
	result
	Batch          int     `json:"batch"`
	Window         int     `json:"window"`
	Interleave     int     `json:"interleave"`
	Keys           bool    `json:"keys"`
	Bad            int     `json:"bad"`
	ShareOfDisk    float64 `json:"share_of_disk"`
	ShareOfUnpack  float64 `json:"share_of_unpack,omitempty"` // of as many as unpack at once
	ShareOfParsing float64 `json:"share_of_parsing"`          // of so many threads
	Limit          string  `json:"limit"`                     // the least of these
	ShareOfLimit   float64 `json:"share_of_limit"`
}

// Command is `meters read`.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "read PATH...",
		Short: "Benchmark reading Criteo files",
		Long: `Times how fast files in Criteo's format become batches, in turns with what limits
that: reading the files alone, on one core unpacking (of compressed files) and
parsing text in memory. A PATH is a file or a folder of them; .gz and .zst are
unpacked. All of the files is read in each turn. What the system keeps of them in
memory is dropped before they are read, where that is possible (Linux), unless
--cached says that it may stay.`,
		Example: "  go run ./bench/meters read criteo-10m/train.tsv\n  go run ./bench/meters read days --interleave 4 --shuffle-window 65536 --json -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("`meters read` needs files or folders, for instance of `ringo data criteo --generate 1M --like FILE --out DIR`")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.execute(cmd, args) },
	}
	fs := cmd.Flags()
	fs.IntVar(&c.batch, "batch", 512, "rows of a batch")
	fs.IntVar(&c.window, "shuffle-window", 0, "`rows` that are shuffled among each other, a multiple of --batch; 0: none")
	fs.IntVar(&c.interleave, "interleave", 1, "`files` read at once, a block of each in turn")
	fs.IntVar(&c.rows, "rows", 0, "give ids of a table of so many `rows`; 0: give 64-bit keys")
	fs.IntVar(&c.threads, "threads", 0, "`threads` that read and parse; 0: all cores")
	fs.IntVar(&c.skipBad, "skip-bad", 0, "leave out up to `N` bad lines, and count them")
	fs.IntVar(&c.repeat, "repeat", 3, "how often to measure")
	fs.BoolVar(&c.cached, "cached", false, "let the files stay in memory between turns")
	cli.JSON(cmd, &c.json, "stage")
	return cmd
}

func (c *command) execute(cmd *cobra.Command, paths []string) error {
	var faults cli.Faults
	faults.Range("threads", c.threads, 0, train.MaxThreads)
	faults.Range("repeat", c.repeat, 1, cli.MostTurns)
	if err := faults.Usage(); err != nil {
		return err
	}
	if c.threads == 0 {
		c.threads = runtime.GOMAXPROCS(0)
	}
	files, err := data.ClickFiles(paths...)
	if err != nil {
		return err
	}
	stream, err := data.OpenClickStream(data.ClickStreamConfig{
		Files: files, Batch: c.batch, Rows: c.rows, Keys: c.rows == 0, Window: c.window, Seed: 1,
		Interleave: c.interleave, Remainder: true, SkipBad: c.skipBad, Threads: c.threads,
	})
	if err != nil {
		return cli.Usage(err)
	}
	defer stream.Close()
	return cli.WithOutput(cmd, c.json, func(out *cli.Output) error { return c.measure(cmd.Context(), files, stream, out) })
}

// measure times the stages in turns and tells of each.
func (c *command) measure(ctx context.Context, files []string, stream *data.ClickStream, out *cli.Output) error {
	p, err := newPasses(ctx, files, clicks.NewCriteoParser(c.rows, c.rows == 0), stream, c.threads)
	if err != nil {
		return err
	}
	c.cached = c.cached || !canDropCache
	stages := []stage{{"disk", p.disk, nil}, {"unpack", p.unpack, nil}, {"parse", p.parse, nil}, {"pipeline", p.pipeline, nil}}
	if p.packed == 0 {
		stages = append(stages[:1], stages[2:]...)
	}
	for range c.repeat {
		for i := range stages {
			s := &stages[i]
			if !c.cached {
				if err := p.dropCache(); err != nil {
					return err
				}
			}
			start := time.Now()
			if err := s.pass(ctx); err != nil {
				return err
			}
			s.ms = append(s.ms, 1e3*time.Since(start).Seconds())
		}
	}
	return c.report(p, stages, out)
}

// stage is what is timed.
type stage struct {
	name string
	pass func(context.Context) error
	ms   []float64
}

// result turns a stage's times into rates: of how much text, and how much of the
// files, that it went through.
func (c *command) result(p *passes, s stage) result {
	text, file, threads := p.textBytes, p.fileBytes, c.threads
	switch s.name {
	case "unpack":
		text, file, threads = p.unpackedBytes, p.packedBytes, 1
	case "parse":
		text, file, threads = p.sampleBytes, 0, 1
	}
	r := result{
		Bench: "read", Stage: s.name, Files: len(p.files), Threads: threads, Cached: c.cached && s.name != "parse",
		MedianMS: median.Of(s.ms), Iterations: len(s.ms),
	}
	r.MinMS = s.ms[0] // sorted by median
	rate := func(n int64) float64 { return float64(n) / r.MedianMS / 1e3 }
	r.MBPerS, r.FileMBPerS = rate(text), rate(file)
	if p.textBytes > 0 {
		r.RowsPer = 1e6 * r.MBPerS * float64(p.rows) / float64(p.textBytes)
	}
	return r
}

func (c *command) report(p *passes, stages []stage, out *cli.Output) error {
	rates := map[string]result{}
	for _, s := range stages[:len(stages)-1] {
		r := c.result(p, s)
		rates[s.name] = r
		if err := out.Result(r, "%-8s  %8.1f MB/s  %10s rows/s  %s", s.name, r.MBPerS, cli.Grouped(int(r.RowsPer)), c.what(p, r)); err != nil {
			return err
		}
	}
	r := pipelineResult{
		result: c.result(p, stages[len(stages)-1]),
		Batch:  c.batch, Window: c.window, Interleave: c.interleave, Keys: c.rows == 0, Bad: p.bad,
	}
	r.ShareOfDisk = r.MBPerS / rates["disk"].MBPerS
	r.ShareOfParsing = r.MBPerS / rates["parse"].MBPerS / float64(min(c.threads, runtime.GOMAXPROCS(0)))
	r.Limit, r.ShareOfLimit = "disk", r.ShareOfDisk
	if r.ShareOfParsing > r.ShareOfLimit {
		r.Limit, r.ShareOfLimit = "parsing", r.ShareOfParsing
	}
	if p.packed == len(p.files) {
		r.ShareOfUnpack = r.MBPerS / rates["unpack"].MBPerS / float64(min(c.interleave, p.packed, runtime.GOMAXPROCS(0)))
		if r.ShareOfUnpack > r.ShareOfLimit {
			r.Limit, r.ShareOfLimit = "unpacking", r.ShareOfUnpack
		}
	}
	return out.Result(r, "%-8s  %8.1f MB/s  %10s rows/s  %.0f%% of its limit, %s (disk %.0f%%, parsing %.0f%%)", "pipeline",
		r.MBPerS, cli.Grouped(int(r.RowsPer)), 100*r.ShareOfLimit, r.Limit, 100*r.ShareOfDisk, 100*r.ShareOfParsing)
}

// what says what a stage went through.
func (c *command) what(p *passes, r result) string {
	switch {
	case r.Stage == "parse":
		return "one core, text in memory"
	case r.Stage == "unpack":
		return "one core"
	case r.Cached:
		return fmt.Sprintf("%s, %s, perhaps in memory already", cli.Counted(r.Files, "file"), quantity.Bytes(p.fileBytes))
	}
	return fmt.Sprintf("%s, %s, not in memory", cli.Counted(r.Files, "file"), quantity.Bytes(p.fileBytes))
}

// dropCache makes the system forget what it keeps of the files.
func (p *passes) dropCache() error {
	for _, path := range p.files {
		f, err := pathname.Open(path)
		if err == nil {
			err = errors.Join(dropCache(f), f.Close())
		}
		if err != nil {
			return fmt.Errorf("dropping what is in memory of %s: %w; --cached leaves it there", path, err)
		}
	}
	return nil
}

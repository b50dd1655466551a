package train

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
)

// clickFiles makes a folder of Criteo's rows: two files to train on, one of them
// compressed, with a bad line each, and one to evaluate on.
func clickFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for f, name := range []string{"train_9.tsv", "train_10.tsv.gz", "test.tsv"} {
		var text bytes.Buffer
		for i := range 150 {
			if i == 70 && f < 2 {
				text.WriteString("bad\n")
			}
			fmt.Fprintf(&text, "%d", (i+f)%3/2)
			for c := range 13 {
				fmt.Fprintf(&text, "\t%d", (i+f)*(c+1)%97)
			}
			for c := range 26 {
				fmt.Fprintf(&text, "\t%08x", (i+f)%(c+2))
			}
			text.WriteString("\n")
		}
		content := text.Bytes()
		if strings.HasSuffix(name, ".gz") {
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			if _, err := z.Write(content); err != nil || z.Close() != nil {
				t.Fatal(err)
			}
			content = packed.Bytes()
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runAlone is the error of a run on one rank.
func runAlone(t *testing.T, cfg Config) error {
	t.Helper()
	return failsOn(t, 1, cfg)
}

// failsOn is the error of a run on n ranks.
func failsOn(t *testing.T, n int, cfg Config) error {
	t.Helper()
	return ringo.Local(t.Context(), n, ringo.Config{}, func(job *ringo.Job) error {
		_, err := observed(job, cfg, new(recorder))
		return err
	})
}

func streaming(dir string) Config {
	c := custom(tinyClick())
	c.Data, c.Stream, c.SkipBad = dir, true, 3
	c.TrainLimit, c.EvalLimit, c.Batch, c.Epochs = 0, 0, 8, 2
	c.Window, c.Interleave = 40, 2
	return c
}

// A streamed run does not depend on threads, and one that goes on from any of its
// checkpoints ends with the same bits.
func TestStreamResume(t *testing.T) {
	for _, np := range []int{1, 2} {
		accumulation := np
		cfg := streaming(clickFiles(t))
		cfg.Exchange.Accumulation = accumulation
		if accumulation == 2 {
			cfg.Partition = PartitionFiles
		}
		want, whole := onRanks(t, np, cfg)
		// Bad rows do not count, but the number of steps allows for as many as may be bad.
		if most := (300/np + 8*accumulation - 1) / (8 * accumulation); whole.info.TrainSamples != 300 || whole.info.StepsPerEpoch > most || whole.info.StepsPerEpoch < most-3 {
			t.Fatalf("%d rows, %d steps, want at most %d", whole.info.TrainSamples, whole.info.StepsPerEpoch, most)
		}
		if l := want.LeftOut; np == 1 && (len(l) != 1 || l[0].Count != 2 || len(l[0].Names) != 2) {
			t.Errorf("left out %v, want 2 bad lines", l)
		}
		saving := cfg
		saving.Threads, saving.Checkpoint = 3, Checkpoint{Dir: t.TempDir(), Every: 3, Keep: 1000}
		saved, rec := onRanks(t, np, saving)
		checkSame(t, fmt.Sprintf("np %d, 3 threads", np), saved, rec.epochs, want, whole.epochs)
		files, _ := filepath.Glob(filepath.Join(saving.Checkpoint.Dir, "*"))
		if len(files) < 4 {
			t.Fatalf("%d checkpoints", len(files))
		}
		for _, file := range files {
			again := saving
			again.Checkpoint.Dir, again.Checkpoint.Resume, again.Threads = onlyFile(t, file), true, 2
			got, rec := onRanks(t, np, again)
			checkSame(t, fmt.Sprintf("np %d, from %s", np, filepath.Base(file)), got, rec.epochs, want, whole.epochs)
		}
	}
}

// A generous limit of bad lines takes nothing from a run: only lines that are bad do.
func TestStreamWithManySkips(t *testing.T) {
	dir := clickFiles(t)
	cfg := streaming(dir)
	want, first := onRanks(t, 2, cfg)
	cfg.SkipBad = 498
	got, rec := onRanks(t, 2, cfg)
	checkSame(t, "498 bad lines allowed", got, rec.epochs, want, first.epochs)
	cfg.SkipBad = 1
	if err := runAlone(t, cfg); err == nil || !strings.Contains(err.Error(), "train_10.tsv.gz: byte") || !strings.Contains(err.Error(), "1 more before it were left out") {
		t.Errorf("a bad line too many: %v", err)
	}
}

// The limit of bad lines is that of the job: streams of 1, 2 and 4 ranks and the file to evaluate
// on may have as many together.
func TestStreamSkipsAreOfTheJob(t *testing.T) {
	dir := clickFiles(t)
	f, err := os.OpenFile(filepath.Join(dir, "test.tsv"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("bad, too\n")
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, np := range []int{1, 2, 4} {
		cfg := streaming(dir)
		if cfg.Batch = 4; np == 2 {
			cfg.Partition = PartitionFiles
		}
		if sum, _ := onRanks(t, np, cfg); len(sum.LeftOut) != 1 || sum.LeftOut[0].Count != 3 {
			t.Errorf("%d ranks: %+v, want 3 bad samples", np, sum.LeftOut)
		}
		cfg.SkipBad = 2
		if err := failsOn(t, np, cfg); err == nil || !strings.Contains(err.Error(), "data.max-bad-records 2: all ranks' training and evaluation files together have more: left out 3 bad samples: ") {
			t.Errorf("%d ranks with a limit of 2: %v", np, err)
		}
	}
}

// Rows are shuffled as the settings say, and by the seed.
func TestStreamOrder(t *testing.T) {
	dir := clickFiles(t)
	seen := map[string]string{}
	for name, change := range map[string]func(*Config){
		"as it is": func(*Config) {}, "window": func(c *Config) { c.Window = 80 }, "usual window": func(c *Config) { c.Window = 0 },
		"no window": func(c *Config) { c.Window = -1 }, "one file": func(c *Config) { c.Interleave = 1 }, "seed": func(c *Config) { c.Seed++ },
	} {
		cfg := streaming(dir)
		change(&cfg)
		got, _ := onRanks(t, 1, cfg)
		if other, ok := seen[got.ParamsSHA256]; ok {
			t.Errorf("%s: as %s", name, other)
		}
		seen[got.ParamsSHA256] = name
	}
}

func TestStreamFaults(t *testing.T) {
	dir := clickFiles(t)
	for _, c := range []struct {
		change func(*Config)
		says   string
	}{
		{func(c *Config) { c.Stream = false }, "Interleave has no effect: it needs data.stream\ndata.shuffle-window has"},
		{func(c *Config) { c.Data = data.Synthetic }, "has no files to read synthetic rows from"},
		{func(c *Config) { c.TrainLimit = 7 }, "data.train-limit 7"},
		{func(c *Config) { c.Window = 41 }, "a multiple of training.batch 8"},
		{func(c *Config) { c.Interleave = -1 }, "Interleave -1"},
		{func(c *Config) { c.Model = zoo("mnist") }, "are read into memory"},
	} {
		cfg := streaming(dir)
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	cfg := streaming(dir)
	cfg.SkipBad = 0
	if err := runAlone(t, cfg); err == nil || !strings.Contains(err.Error(), "train_9.tsv: byte") || !strings.Contains(err.Error(), `line 71: label "bad"`) {
		t.Errorf("a bad line: %v", err)
	}
	cfg = streaming(dir)
	cfg.Batch, cfg.Window = 400, 0
	if err := runAlone(t, cfg); err == nil || !strings.Contains(err.Error(), "300 rows of 2 files") {
		t.Errorf("too large a batch: %v", err)
	}
	for _, file := range []string{"train_9.tsv", "train_10.tsv.gz"} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := FindData(cfg); err == nil || !strings.Contains(err.Error(), "no folder train") {
		t.Errorf("no files: %v", err)
	}
}

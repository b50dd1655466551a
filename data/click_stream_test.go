package data

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

func zstdOf(t *testing.T, text []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(text, nil)
}

// clickFolder writes files of so many lines each, numbered through, with a form
// each ("", ".gz", ".zst"), and returns their names and all text.
func clickFolder(t *testing.T, forms []string, counts ...int) (files []string, texts [][]byte) {
	t.Helper()
	dir, first := t.TempDir(), 0
	for i, n := range counts {
		text := bytes.Join(datatest.ClickLines(first, n), nil)
		if i%2 == 1 {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		first += n
		form := forms[i%len(forms)]
		name := fmt.Sprintf("part_%d%s", i, form)
		content := map[string]func() []byte{
			"": func() []byte { return text }, ".gz": func() []byte { return datatest.Compress(text) }, ".zst": func() []byte { return zstdOf(t, text) },
		}[form]()
		datatest.Write(t, dir, map[string][]byte{name: content})
		files, texts = append(files, filepath.Join(dir, name)), append(texts, text)
	}
	return files, texts
}

func openStream(t *testing.T, cfg ClickStreamConfig) *ClickStream {
	t.Helper()
	s, err := OpenClickStream(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// streamed is what is left of an epoch, batch by batch.
type streamed struct {
	clicks.Rows
	sizes []int
}

func drainStream(t *testing.T, s *ClickStream) (out streamed) {
	t.Helper()
	for {
		b, ok, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		out.Numbers, out.IDs, out.Keys = append(out.Numbers, b.Values...), append(out.IDs, b.IDs...), append(out.Keys, b.Keys...)
		out.Labels, out.sizes = append(out.Labels, b.Labels...), append(out.sizes, b.N)
	}
}

// order is the rows' line numbers.
func (s *streamed) order() (out []int) {
	for i := 0; i < len(s.Keys); i += clicks.CriteoSlots {
		out = append(out, int(s.Keys[i]&(1<<clicks.KeyBits-1)))
	}
	return out
}

func (s *streamed) same(o *streamed) bool {
	return sameRows(s.Rows, o.Rows) && slices.Equal(s.Keys, o.Keys) && slices.Equal(s.sizes, o.sizes)
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Whatever the form, the size of blocks and the number of goroutines: the rows
// that the twin reads, in the files' order.
func TestClickStreamTwin(t *testing.T) {
	leakcheck.Check(t)
	files, texts := clickFolder(t, []string{"", ".gz", ".zst"}, 700, 1, 0, 350, 90, 211)
	var want clicks.Rows
	for _, text := range texts {
		if len(text) == 0 {
			continue
		}
		part := naiveClicks(t, text, 1000)
		want.Numbers, want.IDs, want.Labels = append(want.Numbers, part.Numbers...), append(want.IDs, part.IDs...), append(want.Labels, part.Labels...)
	}
	for _, size := range []int{0, 7, 250, 4096, 1 << 20} {
		for _, threads := range []int{1, 2, 5} {
			s := openStream(t, ClickStreamConfig{Files: files, Batch: 64, Rows: 1000, Keys: true, Remainder: true, Threads: threads, BlockBytes: size})
			for epoch := range 2 {
				s.Start(epoch)
				got := drainStream(t, s)
				if !sameRows(got.Rows, want) || !slices.Equal(got.order(), upTo(1352)) {
					t.Fatalf("blocks of %d, %d threads, epoch %d: %d rows differ from the twin's", size, threads, epoch, len(got.Labels))
				}
				if last := got.sizes[len(got.sizes)-1]; len(got.sizes) != 22 || last != 1352%64 {
					t.Errorf("%d batches, the last of %d", len(got.sizes), last)
				}
			}
			s.Close()
		}
	}
}

// The same rows as the set in memory has, which is the mode of before.
func TestClickStreamAsSet(t *testing.T) {
	files, _ := clickFolder(t, []string{""}, 3000, 10)
	set, err := Open("criteo", Config{TrainFile: files[0], EvalFile: files[1], Rows: 5000})
	if err != nil {
		t.Fatal(err)
	}
	s := openStream(t, ClickStreamConfig{Files: files[:1], Batch: 100, Rows: 5000})
	s.Start(1)
	if got := drainStream(t, s); !sameRows(got.Rows, set.Train.(*clickPages).flat()) || len(got.Keys) != 0 {
		t.Errorf("%d rows differ", len(got.Labels))
	}
}

// naiveShares deals the lines of plain files to ranks: by the block that a line
// begins in, or by the file.
func naiveShares(texts [][]byte, size, block int, byFile bool) [][]int {
	out := make([][]int, size)
	line, before := 0, 0
	for f, text := range texts {
		offset := 0
		for _, l := range bytes.SplitAfter(text, []byte("\n")) {
			if len(l) == 0 {
				continue
			}
			rank := (before + offset/block) % size
			if byFile {
				rank = f % size
			}
			out[rank] = append(out[rank], line)
			offset += len(l)
			line++
		}
		before += (len(text) + block - 1) / block
	}
	return out
}

func TestClickStreamShares(t *testing.T) {
	kinds, most := [][]string{{""}, {".gz", ".zst"}, {"", ".gz"}}, 4
	if testing.Short() {
		kinds, most = kinds[:2], 2
	}
	for _, forms := range kinds {
		files, texts := clickFolder(t, forms, 300, 500, 120, 77)
		for _, byFile := range []bool{false, true} {
			for size := 1; size <= most; size++ {
				for _, at := range []int{1, 3} {
					var all []int
					naive := naiveShares(texts, size, 2000, byFile)
					for rank := range size {
						s := openStream(t, ClickStreamConfig{Files: files, Batch: 1, Keys: true, Rank: rank, Size: size, ByFile: byFile, Interleave: at, BlockBytes: 2000, Threads: 2})
						s.Start(0)
						got := drainStream(t, s)
						order := got.order()
						if at == 1 && (!slices.IsSorted(order) || len(forms[0]) == 0 && len(forms) == 1 && !slices.Equal(order, naive[rank])) {
							t.Errorf("%v, by file %v, rank %d of %d: %v", forms, byFile, rank, size, order)
						}
						if at == 3 && size == 1 && slices.IsSorted(order) {
							t.Errorf("%v: files are not interleaved", forms)
						}
						for _, line := range order {
							if byFile && !slices.Contains(naive[rank], line) {
								t.Fatalf("%v, rank %d of %d has line %d of another's file", forms, rank, size, line)
							}
						}
						all = append(all, order...)
						lines, _, err := s.Rows(t.Context())
						if err != nil || lines != int64(len(order)) {
							t.Errorf("%v, rank %d of %d: %d lines, %d rows, %v", forms, rank, size, lines, len(order), err)
						}
					}
					if slices.Sort(all); !slices.Equal(all, upTo(997)) {
						t.Errorf("%v, by file %v, %d ranks, %d at once: %d rows, not each once", forms, byFile, size, at, len(all))
					}
				}
			}
		}
	}
}

// Rows move within their window alone, in an order that depends on seed, epoch
// and window, but not on threads.
func TestClickStreamWindow(t *testing.T) {
	files, _ := clickFolder(t, []string{"", ".gz"}, 500, 300, 217)
	cfg := ClickStreamConfig{Files: files, Batch: 10, Keys: true, Window: 250, Seed: 3, Remainder: true, Threads: 1, BlockBytes: 5000}
	orders := map[string]bool{}
	for _, seed := range []uint64{3, 4} {
		for epoch := range 2 {
			var first *streamed
			for _, threads := range []int{1, 3} {
				cfg.Seed, cfg.Threads = seed, threads
				s := openStream(t, cfg)
				s.Start(epoch)
				got := drainStream(t, s)
				if first == nil {
					first = &got
				} else if !first.same(&got) {
					t.Errorf("%d threads: another order", threads)
				}
			}
			order := first.order()
			orders[fmt.Sprint(order[:250])] = true
			moves := map[string]bool{}
			for lo := 0; lo < 1017; lo += 250 {
				window := order[lo:min(lo+250, 1017)]
				relative := slices.Clone(window)
				for i := range relative {
					relative[i] -= lo
				}
				moves[fmt.Sprint(relative)] = true
				sorted := slices.Clone(window)
				if slices.Sort(sorted); slices.Equal(sorted, window) || sorted[0] != lo || sorted[len(sorted)-1] != lo+len(sorted)-1 {
					t.Errorf("the window of %d is %v", lo, window)
				}
			}
			if len(moves) != 5 {
				t.Errorf("%d orders in 5 windows", len(moves))
			}
		}
	}
	if len(orders) != 4 {
		t.Errorf("%d orders of 2 seeds and 2 epochs", len(orders))
	}
}

// The window that is filled has its rows in the places of those that were given out:
// whatever becomes of windows, there is room for one, and no block is held by it.
func TestClickStreamMemory(t *testing.T) {
	files, _ := clickFolder(t, []string{""}, 3000)
	const window = 200
	s := openStream(t, ClickStreamConfig{Files: files, Batch: 20, Rows: 50, Keys: true, Window: window, BlockBytes: 3000, Threads: 2})
	for epoch := range 3 {
		s.Start(epoch)
		for step := range 100 {
			if _, ok, err := s.Next(); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if held := len(s.now.rows) - s.now.drawn + len(s.nextWindow.rows); held > window || len(s.shelf.free) != window-held || len(s.shelf.pages) != 1 {
				t.Fatalf("epoch %d, step %d: %d rows are held, %d places of %d pages are free", epoch, step, held, len(s.shelf.free), len(s.shelf.pages))
			}
		}
		if err := s.Seek(70 * epoch); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if slices.Sort(s.shelf.free); len(s.shelf.free) != window || len(slices.Compact(s.shelf.free)) != window {
		t.Errorf("%d places are free in the end, want each of %d once", len(s.shelf.free), window)
	}
}

// From every position, by Resume and by Seek, the rest is what it would have
// been, bad lines counted.
func TestClickStreamResume(t *testing.T) {
	files, texts := clickFolder(t, []string{"", ".zst"}, 200, 170, 150)
	for _, i := range []int{0, 2} {
		lines := bytes.SplitAfter(texts[i], []byte("\n"))
		for l := 5; l < len(lines); l += 23 {
			lines[l] = append([]byte("bad "), lines[l]...)
		}
		datatest.Write(t, filepath.Dir(files[i]), map[string][]byte{filepath.Base(files[i]): bytes.Join(lines, nil)})
	}
	for _, cfg := range []ClickStreamConfig{
		{Batch: 7}, {Batch: 7, Window: 70}, {Batch: 16, Window: 16, Interleave: 2}, {Batch: 8, Window: 48, Rank: 1, Size: 2, Interleave: 3, Remainder: true},
		{Batch: 5, Window: 1000, ByFile: true, Size: 2}, {Batch: 4, Window: 40, Steps: 60, Remainder: true},
	} {
		cfg.Files, cfg.Keys, cfg.SkipBad, cfg.Seed, cfg.BlockBytes, cfg.Threads = files, true, 100, 5, 3000, 2
		s := openStream(t, cfg)
		s.Start(4)
		whole := drainStream(t, s)
		bad := badOf(s)
		if cfg.Steps == 0 && bad == 0 {
			t.Fatal("no bad lines")
		}
		s.Start(4)
		again := openStream(t, cfg)
		for step := 0; step <= len(whole.sizes); step++ {
			p := s.Position()
			text, err := json.Marshal(p)
			if err != nil || json.Unmarshal(text, &p) != nil || p.Step != int64(step) {
				t.Fatalf("%s, %v", text, err)
			}
			rest := streamed{sizes: whole.sizes[step:]}
			at := 0
			for _, n := range whole.sizes[:step] {
				at += n
			}
			rest.Keys, rest.Labels, rest.Numbers = whole.Keys[at*clicks.CriteoSlots:], whole.Labels[at:], whole.Numbers[at*clicks.CriteoNumbers:]
			if err := again.Resume(p); err != nil {
				t.Fatal(err)
			}
			if got := drainStream(t, again); !got.same(&rest) || badOf(again) != bad {
				t.Fatalf("%+v: resumed at %s: %d batches, %d bad lines; want %d and %d", cfg, text, len(got.sizes), badOf(again), len(rest.sizes), bad)
			}
			again.Start(4)
			if err := again.Seek(step); err != nil {
				t.Fatal(err)
			}
			if got := drainStream(t, again); !got.same(&rest) || badOf(again) != bad {
				t.Fatalf("%+v: sought step %d: %d batches, %d bad lines; want %d and %d", cfg, step, len(got.sizes), badOf(again), len(rest.sizes), bad)
			}
			if _, ok, err := s.Next(); err != nil || ok != (step < len(whole.sizes)) {
				t.Fatalf("step %d: %v, %v", step, ok, err)
			}
		}
		if err := again.Seek(len(whole.sizes) + 1); err == nil || !strings.Contains(err.Error(), "has no step") {
			t.Errorf("a step too far: %v", err)
		}
		if _, _, err := again.Next(); err == nil {
			t.Error("a batch after a step too far")
		}
	}
	s := openStream(t, ClickStreamConfig{Files: files, Batch: 5, Window: 50, Keys: true, SkipBad: 100})
	s.Start(0)
	p := s.Position()
	for _, damage := range []func(*StreamPosition){
		func(p *StreamPosition) { p.Fingerprint = "" }, func(p *StreamPosition) { p.First = 3 }, func(p *StreamPosition) { p.Step = -1 },
		func(p *StreamPosition) { p.Step = 11 }, func(p *StreamPosition) { p.Block = -1 }, func(p *StreamPosition) { p.Row = -1 }, func(p *StreamPosition) { p.Bad = 101 },
	} {
		broken := p
		if damage(&broken); s.Resume(broken) == nil {
			t.Errorf("%+v: taken", broken)
		}
	}
	if err := s.Seek(-1); err == nil {
		t.Error("step -1")
	}
}

func TestClickStreamSteps(t *testing.T) {
	files, _ := clickFolder(t, []string{""}, 400)
	least := int64(1 << 40)
	var streams []*ClickStream
	for rank := range 3 {
		s := openStream(t, ClickStreamConfig{Files: files, Batch: 8, Keys: true, Rank: rank, Size: 3, Window: 32})
		streams = append(streams, s)
		lines, _, err := s.Rows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		least = min(least, lines/8)
	}
	if least < 12 {
		t.Errorf("%d steps of 16 at most: blocks are too large for a small file", least)
	}
	short := 0
	for _, s := range streams {
		s.SetSteps(least)
		s.Start(0)
		if got := drainStream(t, s); int64(len(got.sizes)) != least {
			t.Errorf("%d steps, want %d", len(got.sizes), least)
		}
		s.SetSteps(20)
		s.Start(0)
		var err error
		for ok := true; ok && err == nil; {
			_, ok, err = s.Next()
		}
		if err != nil && strings.Contains(err.Error(), "an epoch of 20 was asked for") {
			short++
		}
	}
	if short != 3 {
		t.Errorf("%d of 3 ranks say that 20 steps are too many", short)
	}
}

// Rows goes on for as long as its context does.
func TestClickStreamRowsCancelled(t *testing.T) {
	leakcheck.Check(t)
	files, _ := clickFolder(t, []string{""}, 400)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := fmt.Errorf("enough")
	cancel(cause)
	s := openStream(t, ClickStreamConfig{Files: files, Batch: 8, Keys: true, BlockBytes: 64})
	if _, _, err := s.Rows(ctx); err != cause {
		t.Errorf("%v", err)
	}
}

// A stream may be given up anywhere.
func TestClickStreamClose(t *testing.T) {
	leakcheck.Check(t)
	files, _ := clickFolder(t, []string{"", ".gz", ".zst"}, 300, 300, 300, 300)
	r := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		s, err := OpenClickStream(ClickStreamConfig{Files: files, Batch: 16, Keys: true, Window: 64, BlockBytes: 1 + r.IntN(5000), Interleave: 1 + r.IntN(4), Threads: 1 + r.IntN(4)})
		if err != nil {
			t.Fatal(err)
		}
		for range r.IntN(3) {
			s.Start(0)
			for range r.IntN(90) {
				if _, _, err := s.Next(); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Close()
		s.Close()
		if _, ok, err := s.Next(); ok || err != nil {
			t.Errorf("after Close: %v, %v", ok, err)
		}
	}
}

// A batch costs no garbage.
func TestClickStreamAllocs(t *testing.T) {
	files, _ := clickFolder(t, []string{"", ".gz"}, 4000, 4000)
	s := openStream(t, ClickStreamConfig{Files: files, Batch: 8, Rows: 100, Keys: true, Window: 64, BlockBytes: 4096, Threads: 2, Interleave: 2})
	s.Start(0)
	next := func() {
		if _, ok, err := s.Next(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	for range 300 {
		next()
	}
	if n := testing.AllocsPerRun(500, next); n > 0.1 {
		t.Errorf("%.2f allocations for a batch", n)
	}
}

func TestClickStreamValidate(t *testing.T) {
	err := ClickStreamConfig{Files: []string{"/nowhere", t.TempDir()}, Batch: -1, Rows: 1, Window: -2, Size: 3, Rank: 3, ByFile: true, Interleave: -1, Steps: -1, SkipBad: -1, Threads: -1, BlockBytes: -1}.Validate()
	for _, want := range []string{"batch -1", "table of 1 rows", "window of -2", "rank 3 of 3", "2 files for 3 ranks", "-1 files at once", "-1 steps", "-1 bad lines", "-1 threads", "blocks of -1", "/nowhere", "it is a folder"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	err = ClickStreamConfig{Batch: 4, Window: 6}.Validate()
	for _, want := range []string{"no files", "neither Rows", "a window of 6 rows: need a multiple of the batch, 4"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func BenchmarkClickStream(b *testing.B) { // an epoch of 50,000 rows, from the page cache
	path := filepath.Join(b.TempDir(), "rows.tsv")
	text := datatest.ClickText(50_000)
	if err := os.WriteFile(path, text, 0o666); err != nil {
		b.Fatal(err)
	}
	for _, window := range []int{0, 16384} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			s, err := OpenClickStream(ClickStreamConfig{Files: []string{path}, Batch: 512, Keys: true, Window: window})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.SetBytes(int64(len(text)))
			rows := 0
			for b.Loop() {
				s.Start(0)
				for {
					batch, ok, err := s.Next()
					if err != nil {
						b.Fatal(err)
					}
					if !ok {
						break
					}
					rows += batch.N
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// badOf is the number of bad lines that a stream has left out.
func badOf(s *ClickStream) (n int) {
	for _, l := range s.LeftOut() {
		n += l.Count
	}
	return n
}

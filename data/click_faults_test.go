package data

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// failure is the error that ends an epoch, and how many rows come before it.
func failure(t *testing.T, s *ClickStream) (rows int, err error) {
	t.Helper()
	for {
		b, ok, err := s.Next()
		if err != nil {
			if _, _, again := s.Next(); again != err {
				t.Errorf("then %v", again)
			}
			return rows, err
		}
		if !ok {
			return rows, nil
		}
		rows += b.N
	}
}

// A bad line is named by file, line and offset, whichever block, goroutine or
// rank meets it; up to the limit all are counted and nothing else is lost.
func TestClickStreamBadLines(t *testing.T) {
	leakcheck.Check(t)
	numbers, categories := make([]string, 13), make([]string, 26)
	hex := append([]string{"zz"}, categories[1:]...)
	huge := append([]string{strings.Repeat("9", 19)}, numbers[1:]...)
	bad := map[int]struct{ line, says string }{
		40:  {datatest.ClickLine("1", numbers, categories[:25]), "the line ends in field 39 of 40"},
		41:  {datatest.ClickLine("1", numbers, append(categories, "")), "more than 40 fields"},
		260: {datatest.ClickLine("1", numbers, hex), `field 15 is "zz", want a category in hexadecimal`},
		261: {datatest.ClickLine("1", huge, categories), `field 2 is "9999999999999999999", want an integer of at most 18 digits`},
		399: {"", "the label is missing"},
	}
	order := []int{40, 41, 260, 261, 399}
	for _, form := range []string{"", ".gz", ".zst"} {
		files, _ := clickFolder(t, []string{form}, 50, 400)
		lines := datatest.ClickLines(50, 400)
		for at, b := range bad {
			lines[at] = []byte(b.line + "\n")
		}
		text := bytes.Join(lines, nil)
		offset := func(at int) int { return len(bytes.Join(lines[:at], nil)) }
		packed := map[string]func() []byte{"": func() []byte { return text }, ".gz": func() []byte { return datatest.Compress(text) }, ".zst": func() []byte { return zstdOf(t, text) }}[form]()
		datatest.Write(t, filepath.Dir(files[1]), map[string][]byte{filepath.Base(files[1]): packed})
		for _, threads := range []int{1, 3} {
			cfg := ClickStreamConfig{Files: files, Batch: 10, Keys: true, Remainder: true, Threads: threads, BlockBytes: 3000}
			for limit, at := range order {
				cfg.SkipBad = limit
				s := openStream(t, cfg)
				s.Start(0)
				rows, err := failure(t, s)
				var fault *datafile.FormatError
				if !errors.As(err, &fault) || fault.File != files[1] || fault.Offset < int64(offset(at)) || fault.Offset >= int64(offset(at+1)) {
					t.Fatalf("%s, limit %d: %v", form, limit, err)
				}
				wants := []string{fmt.Sprintf("line %d: ", at+1), bad[at].says, "data.max-bad-records"}
				if limit > 0 {
					wants = append(wants, fmt.Sprintf("%d more before it", limit), "line 41: "+bad[40].says)
				}
				for _, want := range wants {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s, limit %d: no %q in %v", form, limit, want, err)
					}
				}
				if _, _, counting := s.Rows(t.Context()); limit > 0 && (counting == nil || counting.Error() != err.Error()) {
					t.Errorf("%s, limit %d: counting says %v", form, limit, counting)
				}
				if good := 50 + at - limit; rows > good || rows < good-30 {
					t.Errorf("%s, limit %d: %d rows before the fault, %d good lines", form, limit, rows, good)
				}
			}
			cfg.SkipBad = len(bad)
			s := openStream(t, cfg)
			s.Start(0)
			if rows, err := failure(t, s); err != nil || rows != 445 || badOf(s) != 5 {
				t.Errorf("%s: %d rows, %d bad lines, %v", form, rows, badOf(s), err)
			}
			rows, skipped := 0, 0
			for rank := range 3 {
				cfg.Rank, cfg.Size = rank, 3
				s := openStream(t, cfg)
				s.Start(0)
				n, err := failure(t, s)
				if err != nil {
					t.Error(err)
				}
				if counted, _, err := s.Rows(t.Context()); err != nil || counted != int64(n) {
					t.Errorf("%s, rank %d: %d rows counted, %d given out, %v", form, rank, counted, n, err)
				}
				rows, skipped = rows+n, skipped+badOf(s)
			}
			if rows != 445 || skipped != 5 {
				t.Errorf("%s: 3 ranks have %d rows and %d bad lines", form, rows, skipped)
			}
		}
	}
}

func TestClickStreamFaults(t *testing.T) {
	leakcheck.Check(t)
	text := bytes.Join(datatest.ClickLines(0, 300), nil)
	gz, zst := datatest.Compress(text), zstdOf(t, text)
	flipped := bytes.Clone(zst)
	flipped[len(flipped)/2] ^= 0x40
	long := append(bytes.Clone(text), bytes.Repeat([]byte("x"), clicks.MaxLine+1)...)
	for name, c := range map[string]struct {
		content []byte
		says    string
		rows    int // at least, before it
	}{
		"cut.gz":      {gz[:len(gz)-30], "truncated", 100},
		"cut.zst":     {zst[:len(zst)-30], "truncated", 0},
		"flipped.zst": {flipped, "flipped.zst: byte", 0},
		"plain.gz":    {text, "not a gzip file", 0},
		"plain.zst":   {text, "no zstd frame here", 0},
		"long":        {long, fmt.Sprintf("byte %d: a line of more than %d bytes", len(text), clicks.MaxLine), 250},
		"long.gz":     {datatest.Compress(long), fmt.Sprintf("byte %d: a line of more than %d bytes", len(text), clicks.MaxLine), 250},
		"empty":       {nil, "has 0 rows of 1 file", 0},
		"empty.gz":    {datatest.Compress(nil), "has 0 rows of 1 file", 0},
		"few":         {bytes.Join(datatest.ClickLines(0, 4), nil), "has 4 rows of 1 file", 0},
	} {
		dir := t.TempDir()
		datatest.Write(t, dir, map[string][]byte{name: c.content})
		s := openStream(t, ClickStreamConfig{Files: []string{filepath.Join(dir, name)}, Batch: 5, Keys: true, BlockBytes: 1000, SkipBad: 1000})
		s.Start(0)
		rows, err := failure(t, s)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), c.says) || rows < c.rows {
			t.Errorf("%s: %d rows, %v; want %q", name, rows, err, c.says)
		}
		if name == "long" {
			_, _, err := s.Rows(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("counting: %v", err)
			}
		}
	}
	// A line as long as may be is only a bad line.
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"a": long[:len(long)-1], "b.gz": datatest.Compress(long[:len(long)-1]), "c": append(long[:len(long)-1:len(long)-1], '\n')})
	for _, name := range []string{"a", "b.gz", "c"} {
		s := openStream(t, ClickStreamConfig{Files: []string{filepath.Join(dir, name)}, Batch: 5, Keys: true, BlockBytes: 1000, SkipBad: 1})
		s.Start(0)
		if rows, err := failure(t, s); rows != 300 || err != nil || badOf(s) != 1 {
			t.Errorf("%s: %d rows, %d bad lines, %v", name, rows, badOf(s), err)
		}
	}
}

// Files that change or vanish after they were found are named.
func TestClickStreamFilesChange(t *testing.T) {
	leakcheck.Check(t)
	files, texts := clickFolder(t, []string{""}, 3000, 10)
	s := openStream(t, ClickStreamConfig{Files: files, Batch: 5, Keys: true, BlockBytes: 1000, Threads: 1})
	s.Start(0)
	if _, ok, err := s.Next(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := os.Truncate(files[0], int64(len(texts[0])/2)); err != nil {
		t.Fatal(err)
	}
	if _, err := failure(t, s); err == nil || !strings.Contains(err.Error(), files[0]) || !strings.Contains(err.Error(), "had "+fmt.Sprint(len(texts[0]))) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	datatest.Write(t, filepath.Dir(files[0]), map[string][]byte{filepath.Base(files[0]): texts[0]})
	s.Start(1)
	if rows, err := failure(t, s); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), files[1]) || rows != 3000 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// What was left out before a position is counted, but not known any more.
func TestClickStreamBadAfterResume(t *testing.T) {
	lines := datatest.ClickLines(0, 100)
	lines[3], lines[90] = []byte("x\n"), []byte("y\n")
	dir := t.TempDir()
	datatest.Write(t, dir, map[string][]byte{"f": bytes.Join(lines, nil)})
	cfg := ClickStreamConfig{Files: []string{filepath.Join(dir, "f")}, Batch: 2, Keys: true, BlockBytes: 1000, SkipBad: 1}
	s := openStream(t, cfg)
	s.Start(0)
	for range 30 {
		if _, ok, err := s.Next(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := s.Resume(s.Position()); err != nil {
		t.Fatal(err)
	}
	if _, err := failure(t, s); err == nil || !strings.Contains(err.Error(), `line 91: label "y"`) || !strings.Contains(err.Error(), "1 more before it were left out") {
		t.Errorf("%v", err)
	}
}

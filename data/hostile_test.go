package data

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/clicks"
	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/data/text"
)

// endless gives one byte for ever.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// What never ends, as a small compressed file may seem to, is a fault at a limit, for readers that
// hold all that comes.
func TestReadersEnd(t *testing.T) {
	check := func(what string, err error, says string) {
		t.Helper()
		var f *datafile.FormatError
		if !errors.As(err, &f) || f.File != "f" || !strings.Contains(f.Problem, says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	const most = 1 << 20
	_, err := text.ReadWords("f", endless('a'), text.NewVocabulary(), true, most, new(datafile.Skips))
	check("a word without end", err, "more than 1048576 tokens")
	_, err = text.ReadWords("f", endless('\n'), text.NewVocabulary(), true, most, new(datafile.Skips))
	check("lines without end", err, "more than 1048576 tokens")
	_, err = text.ReadBytes("f", endless('a'), most)
	check("bytes without end", err, "more than 1048576 tokens")
	_, err = readClicks("f", endless('a'), clicks.CriteoFormat(10, false), 2, 0, &datafile.Skips{Max: datafile.MaxElements})
	check("a row without end", err, "a line of more than")
	if !testing.Short() { // 3 GiB go by
		_, err = images.DecodeCIFAR("f", endless(0xff), &datafile.Skips{Max: datafile.MaxElements})
		check("images without end", err, "more than 65536 images")
	}
	content := []byte("a b\nc")
	if ids, err := text.ReadWords("f", bytes.NewReader(content), text.NewVocabulary(), true, 5, new(datafile.Skips)); len(ids) != 5 || err != nil {
		t.Errorf("%d tokens, %v", len(ids), err)
	}
	if ids, err := text.ReadBytes("f", bytes.NewReader(content), len(content)); len(ids) != len(content) || err != nil {
		t.Errorf("%d bytes, %v", len(ids), err)
	}
}

// What is behind or instead of a compressed file's content is a fault with file and offset,
// whatever reads it.
func TestCompressedGarbage(t *testing.T) {
	text := bytes.Repeat([]byte("some words of a text\n"), 200)
	rows := bytes.Join(datatest.ClickLines(0, 50), nil)
	dir := t.TempDir()
	behind := func(content []byte) []byte { return append(datatest.Compress(content), "garbage behind"...) }
	datatest.Write(t, dir, map[string][]byte{
		"text.gz": behind(text), "rows.gz": behind(rows), "cut.gz": datatest.Compress(text)[:40], "none.gz": nil, "plain": text, "rows": rows,
		"packed.tar.gz": behind(datatest.Pack(t, "", datatest.TreeFiles(8, 8))), "cut.tar.gz": datatest.Compress(datatest.Pack(t, "", datatest.TreeFiles(8, 8)))[:600],
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, open := range map[string]func(path string) error{
		"text.gz":       func(p string) error { _, err := Open("text", Config{TrainFile: p, EvalFile: at("plain")}); return err },
		"cut.gz":        func(p string) error { _, err := Open("chars", Config{TrainFile: at("plain"), EvalFile: p}); return err },
		"none.gz":       func(p string) error { _, err := Open("chars", Config{TrainFile: at("plain"), EvalFile: p}); return err },
		"rows.gz":       func(p string) error { _, err := Open("criteo", Config{TrainFile: p, EvalFile: at("rows")}); return err },
		"packed.tar.gz": func(p string) error { _, err := Open("images", Config{Dir: p}); return err },
		"cut.tar.gz":    func(p string) error { _, err := Open("cifar10", Config{Dir: p}); return err },
	} {
		var f *datafile.FormatError
		if err := open(at(name)); !errors.As(err, &f) || f.File != at(name) || !strings.Contains(err.Error(), "byte ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := datafile.OpenText(at("text.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err == nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
}

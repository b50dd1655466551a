package download

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// clickArchive is Criteo's sample in form: rows numbered in the first count.
func clickArchive(t *testing.T, rows int) []byte {
	var text bytes.Buffer
	for i := range rows {
		fmt.Fprintf(&text, "%d\t%d%s\n", i%2, i, strings.Repeat("\t", 38))
	}
	return datatest.Compress(datatest.Pack(t, "./", map[string][]byte{clickSampleText: text.Bytes(), "license.txt": []byte("x"), "readme.txt": nil}))
}

func TestFetchCriteo(t *testing.T) {
	archive := clickArchive(t, clickSampleRows)
	dir := t.TempDir()
	f, _ := Published("criteo")
	f.Dir, f.Stall = dir, 10*time.Second
	few := newMirror(t, serve(clickArchive(t, clickSampleRows-1)))
	page := newMirror(t, whole([]byte("<html>no more</html>")))
	good := newMirror(t, serve(archive))
	f.Mirrors = []string{page.URL, few.URL, good.URL}
	if err := f.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(few.asked) != 1 || few.asked[0] != "/dac_sample.tar.gz" || len(good.asked) != 1 {
		t.Errorf("asked %q, then %q", few.asked, good.asked)
	}
	for range 2 {
		if err := UnpackCriteo(dir); err != nil {
			t.Fatal(err)
		}
		checkFolder(t, dir, "dac_sample.tar.gz", "test.tsv", "train.tsv")
	}
	for name, want := range map[string][2]int{"train.tsv": {90_000, 0}, "test.tsv": {10_000, 90_000}} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if n := bytes.Count(text, []byte("\n")); err != nil || n != want[0] || !bytes.HasPrefix(text, fmt.Appendf(nil, "0\t%d\t", want[1])) {
			t.Errorf("%s: %d rows from %.20q on, want %v (%v)", name, n, text, want, err)
		}
	}
	good.asked = nil
	if err := f.Fetch(t.Context()); err != nil || len(good.asked) != 0 {
		t.Errorf("again: %v, asked %q", err, good.asked)
	}

	f.Dir, f.Mirrors = t.TempDir(), []string{page.URL, few.URL}
	err := f.Fetch(t.Context())
	for _, says := range []string{page.URL, "not a gzip file", few.URL, "99999 rows, want 100000", "copy the file into", "dac_sample.tar.gz", "data.dir synthetic"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v\ndoes not say %q", err, says)
		}
	}
	checkFolder(t, f.Dir)
	if err := UnpackCriteo(f.Dir); err == nil {
		t.Error("nothing was unpacked without an error")
	}
}

func TestCheckClickSample(t *testing.T) {
	whole := clickArchive(t, clickSampleRows)
	for _, c := range []struct {
		content []byte
		says    string
	}{
		{whole[:len(whole)/2], "truncated"},
		{datatest.Compress(datatest.Pack(t, "", map[string][]byte{"other.txt": nil})), "has no dac_sample.txt"},
		{datatest.Compress(datatest.Pack(t, "", map[string][]byte{clickSampleText: []byte("1\n")})), "line 1"},
	} {
		if err := checkClickSample(bytes.NewReader(c.content)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v\ndoes not say %q", err, c.says)
		}
	}
}

// A plain file is stored and verified under its own name, even one that is
// compressed.
func TestFetchPlain(t *testing.T) {
	file := describe("set.tar.gz", packed)
	file.Plain = true
	m := newMirror(t, serve(packed))
	dir := t.TempDir()
	f := &Fetcher{Dir: dir, Files: []File{file}, Mirrors: []string{m.URL}}
	datatest.Write(t, dir, map[string][]byte{"set.tar.gz.part": packed[:500]})
	for range 2 {
		if err := f.Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.asked) != 1 || m.asked[0] != "/set.tar.gz bytes=500-" {
		t.Errorf("asked %q", m.asked)
	}
	checkFolder(t, dir, "set.tar.gz")
}

// The texts have the numbers of tokens that were published.
func TestCheckTokens(t *testing.T) {
	if err := checkTokens(4)(strings.NewReader("a b\nc")); err == nil || !strings.Contains(err.Error(), "5 tokens, want 4") {
		t.Error(err)
	}
	root := os.Getenv("RINGO_DATA")
	if root == "" {
		t.Skip("RINGO_DATA is not set: no WikiText-2 in its folder text to read")
	}
	published, _ := Published("text")
	for i, name := range []string{"wikitext2-valid.txt", "wikitext2-test.txt"} {
		if err := published.Files[1+i].verify(filepath.Join(root, "text", name)); err != nil {
			t.Error(err)
		}
	}
}

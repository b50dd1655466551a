package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/data/datatest"
)

var (
	plain  = datatest.Noise(200_000)
	packed = datatest.Compress(plain)
	wanted = describe("set", plain)
)

func describe(name string, content []byte) File {
	sum := sha256.Sum256(content)
	return File{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

// mirror is a server that answers with handle and keeps what it was asked.
type mirror struct {
	*httptest.Server
	asked []string // path and range of each request; read when the fetch is over
}

func newMirror(t *testing.T, handle http.HandlerFunc) *mirror {
	m := new(mirror)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked = append(m.asked, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
		handle(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

// serve answers as a good mirror does, ranges and all.
func serve(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// whole ignores ranges.
func whole(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(content) }
}

// cut serves ranges, but breaks the connection off after n bytes.
func cut(content []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(&cutter{w, n}, r, "", time.Time{}, bytes.NewReader(content))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) <= c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	n, _ := c.ResponseWriter.Write(p[:c.left])
	c.left = 0
	return n, io.ErrShortWrite
}

func fetcher(dir string, mirrors ...*mirror) *Fetcher {
	f := &Fetcher{Dir: dir, Files: []File{wanted}, Stall: 10 * time.Second}
	for _, m := range mirrors {
		f.Mirrors = append(f.Mirrors, m.URL+"/mnist/")
	}
	return f
}

// checkFetched wants the file there and nothing besides but what is named.
func checkFetched(t *testing.T, dir string, besides ...string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, "set.gz"))
	if err != nil || !bytes.Equal(got, packed) {
		t.Errorf("set.gz: %d bytes (%v), want %d", len(got), err, len(packed))
	}
	checkFolder(t, dir, append(besides, "set.gz")...)
}

func checkFolder(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("in the folder: %q, want %q", names, want)
	}
}

func TestFetch(t *testing.T) {
	other := datatest.Noise(200_001)[1:]
	half := len(packed) / 2
	resumed := fmt.Sprintf("/mnist/set.gz bytes=%d-", half)
	for _, c := range []struct {
		name    string
		before  map[string][]byte // in the folder
		mirrors []http.HandlerFunc
		asked   [][]string
		besides []string
	}{
		{"plainly", nil, []http.HandlerFunc{serve(packed)}, [][]string{{"/mnist/set.gz"}}, nil},
		{"404, second mirror", nil, []http.HandlerFunc{http.NotFound, serve(packed)},
			[][]string{{"/mnist/set.gz"}, {"/mnist/set.gz"}}, nil},
		{"wrong content, second mirror", nil, []http.HandlerFunc{serve(datatest.Compress(other)), serve(packed)},
			[][]string{{"/mnist/set.gz"}, {"/mnist/set.gz"}}, nil},
		{"a page instead, second mirror", nil, []http.HandlerFunc{whole([]byte("<html>sign in</html>")), serve(packed)},
			[][]string{{"/mnist/set.gz"}, {"/mnist/set.gz"}}, nil},
		{"resume", map[string][]byte{"set.gz.part": packed[:half]}, []http.HandlerFunc{serve(packed)},
			[][]string{{resumed}}, nil},
		{"resume where ranges are ignored", map[string][]byte{"set.gz.part": packed[:half]}, []http.HandlerFunc{whole(packed)},
			[][]string{{resumed}}, nil},
		{"resume something else", map[string][]byte{"set.gz.part": other[:half]}, []http.HandlerFunc{serve(packed)},
			[][]string{{resumed, "/mnist/set.gz"}}, nil},
		{"part longer than the file", map[string][]byte{"set.gz.part": append(bytes.Clone(packed), other...)},
			[]http.HandlerFunc{serve(packed)},
			[][]string{{fmt.Sprintf("/mnist/set.gz bytes=%d-", len(packed)+len(other)), "/mnist/set.gz"}}, nil},
		{"part is all of it", map[string][]byte{"set.gz.part": packed}, []http.HandlerFunc{http.NotFound}, [][]string{nil}, nil},
		{"there already", map[string][]byte{"set.gz": packed}, []http.HandlerFunc{http.NotFound}, [][]string{nil}, nil},
		{"there but damaged", map[string][]byte{"set.gz": packed[:half]}, []http.HandlerFunc{serve(packed)},
			[][]string{{"/mnist/set.gz"}}, []string{"set.gz.damaged"}},
		{"plain and damaged", map[string][]byte{"set": other}, []http.HandlerFunc{serve(packed)},
			[][]string{{"/mnist/set.gz"}}, []string{"set.damaged"}},
		{"broken off twice", nil, []http.HandlerFunc{cut(packed, half)},
			[][]string{[]string{"/mnist/set.gz", resumed, fmt.Sprintf("/mnist/set.gz bytes=%d-", 2*half)}[:2+len(packed)%2]}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			datatest.Write(t, dir, c.before)
			var mirrors []*mirror
			for _, h := range c.mirrors {
				mirrors = append(mirrors, newMirror(t, h))
			}
			if err := fetcher(dir, mirrors...).Fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkFetched(t, dir, c.besides...)
			for i, m := range mirrors {
				if !slices.Equal(m.asked, c.asked[i]) {
					t.Errorf("mirror %d was asked %q, want %q", i, m.asked, c.asked[i])
				}
			}
		})
	}
}

func TestFetchFailures(t *testing.T) {
	bomb := func(w http.ResponseWriter, _ *http.Request) {
		for range 1000 {
			if _, err := w.Write(packed); err != nil {
				return
			}
		}
	}
	for _, c := range []struct {
		name   string
		handle http.HandlerFunc
		says   []string
		left   []string
	}{
		{"404", http.NotFound, []string{"/mnist/set.gz", "404 Not Found"}, nil},
		{"checksum", serve(datatest.Compress(datatest.Noise(200_001)[1:])), []string{"sha256", wanted.SHA256}, nil},
		{"shorter", serve(datatest.Compress(plain[1:])), []string{"only 199999 bytes decompressed, want 200000"}, nil},
		{"longer", serve(datatest.Compress(datatest.Noise(200_009))), []string{"at least 200001 bytes"}, nil},
		{"endless", bomb, []string{"more than"}, nil},
		{"empty", whole(nil), []string{"truncated"}, nil},
		{"always breaks off", cut(packed, 1000), []string{"broken off after 4000 bytes"}, []string{"set.gz.part"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			err := fetcher(dir, newMirror(t, c.handle)).Fetch(t.Context())
			if err == nil || errors.Is(err, ErrOffline) {
				t.Fatal(err)
			}
			for _, says := range append(c.says, "set.gz", "by hand", "data.dir synthetic", dir) {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v\ndoes not say %q", err, says)
				}
			}
			checkFolder(t, dir, c.left...)
		})
	}
}

func TestFetchOffline(t *testing.T) {
	a, b := newMirror(t, http.NotFound), newMirror(t, http.NotFound)
	a.Close()
	b.Close()
	dir := filepath.Join(t.TempDir(), "new", "folder")
	err := fetcher(dir, a, b).Fetch(t.Context())
	if !errors.Is(err, ErrOffline) {
		t.Fatal(err)
	}
	for _, says := range []string{"offline", a.URL, b.URL, "by hand", "data.dir synthetic", "set.gz"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v\ndoes not say %q", err, says)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %v", err)
	}
}

func TestFetchProgress(t *testing.T) {
	dir := t.TempDir()
	half := int64(len(packed) / 2)
	datatest.Write(t, dir, map[string][]byte{"set.gz.part": packed[:half]})
	f := fetcher(dir, newMirror(t, serve(packed)))
	var seen []int64
	f.Progress = func(file string, done, total int64) {
		if file != "set.gz" || total != int64(len(packed)) {
			t.Errorf("%s: %d of %d", file, done, total)
		}
		seen = append(seen, done)
	}
	if err := f.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(seen) || seen[0] != half || seen[len(seen)-1] != int64(len(packed)) {
		t.Errorf("progress %v", seen)
	}
	seen = nil
	if err := f.Fetch(t.Context()); err != nil || !slices.Equal(seen, []int64{int64(len(packed))}) {
		t.Errorf("kept: %v, progress %v", err, seen)
	}
}

// An interrupted fetch keeps what has come; the next call goes on from there.
func TestFetchInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := newMirror(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			w.Write(packed[:50_000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		serve(packed)(w, r)
	})
	f := fetcher(dir, m)
	f.Progress = func(_ string, done, _ int64) {
		if done == 50_000 {
			cancel()
		}
	}
	if err := f.Fetch(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	checkFolder(t, dir, "set.gz.part")
	if err := f.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkFetched(t, dir)
	if want := []string{"/mnist/set.gz", "/mnist/set.gz bytes=50000-"}; !slices.Equal(m.asked, want) {
		t.Errorf("asked %q, want %q", m.asked, want)
	}
}

// hang is a transport whose first mirror sends a little and then nothing.
type hang struct{ asked []string }

func (h *hang) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked = append(h.asked, r.URL.Host+r.Header.Get("Range"))
	w := httptest.NewRecorder()
	if r.URL.Host == "good" {
		serve(packed)(w, r)
		return w.Result(), nil
	}
	reply := w.Result()
	content, silence := io.Pipe()
	context.AfterFunc(r.Context(), func() { silence.CloseWithError(r.Context().Err()) })
	if r.Header.Get("Range") != "" {
		return nil, errors.New("hangs up")
	}
	reply.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(packed[:10]), content), content}
	return reply, nil
}

// A mirror that falls silent is given up after Stall for the next one, which
// carries on from there.
func TestFetchStalls(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := new(hang)
		f := &Fetcher{Dir: dir, Files: []File{wanted}, Mirrors: []string{"http://hangs", "http://good"}, Client: &http.Client{Transport: h}}
		start := time.Now()
		if err := f.Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("took %v, want the default stall of 30 s once", took)
		}
		if want := []string{"hangs", "hangsbytes=10-", "goodbytes=10-"}; !slices.Equal(h.asked, want) {
			t.Errorf("asked %q, want %q", h.asked, want)
		}
	})
	checkFetched(t, dir)
}

func TestFetchLocalFault(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "set.gz.part"), 0o777); err != nil {
		t.Fatal(err)
	}
	a, b := newMirror(t, serve(packed)), newMirror(t, serve(packed))
	err := fetcher(dir, a, b).Fetch(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is a directory") || len(b.asked) > 0 {
		t.Errorf("%v; the second mirror was asked %q", err, b.asked)
	}
	file := filepath.Join(dir, "file")
	datatest.Write(t, dir, map[string][]byte{"file": nil})
	if err := fetcher(filepath.Join(file, "below"), a).Fetch(t.Context()); err == nil {
		t.Error("a folder below a file")
	}
}

func TestFetcherValidate(t *testing.T) {
	f := &Fetcher{Mirrors: []string{"ftp://x", "https://ok/"}, Stall: -1, Files: []File{{Name: "../x"}}}
	err := errors.Join(f.Fetch(t.Context()), (&Fetcher{}).Validate())
	for _, says := range []string{"no folder", `"ftp://x"`, "-1ns", `"../x"`, "no files", "no mirrors"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v\ndoes not say %q", err, says)
		}
	}
	for set, files := range map[string]int{"mnist": 4, "cifar10": 1, "criteo": 1, "text": 3} {
		f, ok := Published(set)
		f.Dir = "x"
		c := f.complete()
		if !ok || len(c.Files) != files || len(c.Mirrors) == 0 || c.Stall != 30*time.Second || c.Client == nil {
			t.Errorf("%s: %+v", set, c)
		}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
	if _, ok := Published("nist"); ok {
		t.Error("a set that is not published")
	}
}

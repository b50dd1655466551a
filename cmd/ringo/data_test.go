package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/data"
)

// mirror serves two small files in the place of MNIST's.
type mirror struct {
	*httptest.Server
	files []data.File
	body  map[string][]byte // by path
	asked []string          // path and range; read when the fetch is over
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{body: map[string][]byte{}}
	for _, name := range []string{"images", "labels"} {
		content := make([]byte, 5000)
		rand.NewChaCha8([32]byte([]byte(name + strings.Repeat(" ", 26)))).Read(content)
		sum := sha256.Sum256(content)
		m.files = append(m.files, data.File{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
		m.body["/mnist/"+name+".gz"] = gzipped(content)
	}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked = append(m.asked, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
		if body, ok := m.body[r.URL.Path]; ok {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

func gzipped(content []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(content)
	z.Close()
	return b.Bytes()
}

// fetchFrom runs `ringo data mnist` against the mirror.
func (m *mirror) fetchFrom(line string) (status int, stdout, stderr string) {
	m.asked = nil
	return execute(newDataSet(setNamed("mnist"), data.Fetcher{Files: m.files}), line)
}

func TestDataMNIST(t *testing.T) {
	m := newMirror(t)
	dir := filepath.Join(t.TempDir(), "new", "mnist")
	line := "--out " + dir + " --mirror " + m.URL + "/mnist/"
	want := fmt.Sprintf("MNIST is complete in %s; train with `ringo train mnist --data %s`\n", dir, dir)

	status, out, errs := m.fetchFrom(line)
	if status != 0 || out != want || len(m.asked) != 2 {
		t.Errorf("status %d, stdout %q, stderr %q, asked for %q", status, out, errs, m.asked)
	}
	if said := fmt.Sprintf("images.gz: %s bytes\nlabels.gz: %s bytes\n", grouped(len(m.body["/mnist/images.gz"])), grouped(len(m.body["/mnist/labels.gz"]))); errs != said {
		t.Errorf("progress %q, want %q", errs, said)
	}
	for name, body := range m.body {
		if got, err := os.ReadFile(filepath.Join(dir, filepath.Base(name))); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}

	// What is there is not fetched again.
	if status, out, errs = m.fetchFrom(line + " --progress none"); status != 0 || out != want || errs != "" || len(m.asked) != 0 {
		t.Errorf("again: status %d, stdout %q, stderr %q, asked for %q", status, out, errs, m.asked)
	}

	// What is there in part is completed, after a mirror that knows nothing.
	whole := m.body["/mnist/labels.gz"]
	part := filepath.Join(dir, "labels.gz.part")
	if os.Remove(filepath.Join(dir, "labels.gz")) != nil || os.WriteFile(part, whole[:1000], 0o666) != nil {
		t.Fatal("cannot set the scene")
	}
	status, out, errs = m.fetchFrom("--progress bar --out " + dir + " --mirror " + m.URL + "/none," + m.URL + "/mnist")
	if wants := []string{"/none/labels.gz bytes=1000-", "/mnist/labels.gz bytes=1000-"}; status != 0 || out != want || !slices.Equal(m.asked, wants) {
		t.Errorf("resumed: status %d, stderr %q, asked for %q, want %q", status, errs, m.asked, wants)
	}
}

func TestDataMNISTFaults(t *testing.T) {
	m := newMirror(t)
	dead := httptest.NewServer(nil)
	dead.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	m.body["/bad/images.gz"] = gzipped(make([]byte, m.files[0].Size))
	for _, c := range []struct {
		out, mirror string
		want        []string
	}{
		{"", dead.URL, []string{"images.gz", "this machine seems to be offline", dead.URL, "by hand", "--data synthetic", "--mirror"}},
		{"", m.URL + "/bad", []string{m.URL + "/bad/images.gz", "sha256", m.files[0].SHA256}},
		{"", m.URL + "/none", []string{m.URL + "/none/images.gz", "404", "by hand"}},
		{file + "/dir", m.URL + "/mnist", []string{file, "not a directory"}},
	} {
		dir := t.TempDir()
		if c.out != "" {
			dir = c.out
		}
		status, out, errs := m.fetchFrom("--progress none --out " + dir + " --mirror " + c.mirror)
		if status != exitFailed || out != "" || strings.Contains(errs, "\n") {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.mirror, status, out, errs)
		}
		checkHolds(t, c.mirror, errs, c.want...)
		if n := strings.Count(errs, "by hand"); n > 1 {
			t.Errorf("the alternatives are told %d times: %s", n, errs)
		}
	}
}

// A long transfer is told about now and then, a file's end always.
func TestFetchProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &fetchProgress{style: "plain", out: &out, unit: "bytes"}
		for _, file := range []string{"a.gz", "b.gz"} {
			for done := range 26 {
				p.update(file, int64(done)*1000, 25000)
				time.Sleep(time.Second)
			}
		}
		p.finish()
		const one = "X.gz: 10,000 of 25,000 bytes\nX.gz: 20,000 of 25,000 bytes\nX.gz: 25,000 bytes\n"
		if want := strings.ReplaceAll(one, "X", "a") + strings.ReplaceAll(one, "X", "b"); out.String() != want {
			t.Errorf("got\n%swant\n%s", &out, want)
		}
		for _, columns := range []int{30, 80} {
			term := &terminal{}
			p := &fetchProgress{style: "bar", out: term, unit: "bytes", columns: columns}
			for done := range 26 {
				p.update("train-images-idx3-ubyte.gz", int64(done)*1e6, 25e6)
				time.Sleep(time.Second)
			}
			p.finish()
			if left := term.text(); left != "train-images-idx3-ubyte.gz: 25,000,000 bytes\n" || len(term.drawn) < 20 {
				t.Errorf("%d columns: %q stays of %d drawings", columns, left, len(term.drawn))
			}
			for _, drawn := range term.drawn {
				if len([]rune(drawn)) >= columns {
					t.Errorf("%d columns: a bar of %d: %q", columns, len([]rune(drawn)), drawn)
				}
			}
			if columns == 80 && !slices.ContainsFunc(term.drawn, func(s string) bool {
				return strings.Contains(s, "train-images-idx3-ubyte.gz  40% |") && strings.HasSuffix(s, "(10/25 MB, 1.0 MB/s) [10s:15s]")
			}) {
				t.Errorf("the bar at 40 %% is not among %q", term.drawn)
			}
		}
	})
}

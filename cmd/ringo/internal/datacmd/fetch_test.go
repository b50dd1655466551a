package datacmd

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
	"time"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/data/download"
)

// mirror serves two small files in the place of MNIST's.
type mirror struct {
	*httptest.Server
	files []download.File
	body  map[string][]byte // by path
	asked []string          // path and range; read when the fetch is over
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{body: map[string][]byte{}}
	for _, name := range []string{"images", "labels"} {
		content := make([]byte, 5000)
		rand.NewChaCha8([32]byte([]byte(name + strings.Repeat(" ", 26)))).Read(content)
		sum := sha256.Sum256(content)
		m.files = append(m.files, download.File{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
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

// runSet runs the command of a set whose files are others.
func runSet(name string, f download.Fetcher, line string) (status int, stdout, stderr string) {
	all := published()
	s := all[slices.IndexFunc(all, func(s set) bool { return s.name == name })]
	s.Fetcher = f
	cmd, _ := s.command()
	switch name {
	case "criteo":
		cmd = criteo(s)
	case "cifar10":
		cmd = cifar(s)
	}
	return commandtest.Run(cmd, line)
}

// fetchFrom runs `ringo data mnist` against the mirror.
func (m *mirror) fetchFrom(line string) (status int, stdout, stderr string) {
	m.asked = nil
	return runSet("mnist", download.Fetcher{Files: m.files}, line)
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
	if said := fmt.Sprintf("images.gz: %s bytes\nlabels.gz: %s bytes\n", cli.Grouped(len(m.body["/mnist/images.gz"])), cli.Grouped(len(m.body["/mnist/labels.gz"]))); errs != said {
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
		{"", dead.URL, []string{"images.gz", "this machine seems to be offline", dead.URL, "by hand", "data.dir synthetic", "--mirror"}},
		{"", m.URL + "/bad", []string{m.URL + "/bad/images.gz", "sha256", m.files[0].SHA256}},
		{"", m.URL + "/none", []string{m.URL + "/none/images.gz", "404", "by hand"}},
		{file + "/dir", m.URL + "/mnist", []string{file, "not a directory"}},
	} {
		dir := t.TempDir()
		if c.out != "" {
			dir = c.out
		}
		status, out, errs := m.fetchFrom("--progress none --out " + dir + " --mirror " + c.mirror)
		if status != cli.Failed || out != "" || strings.Contains(errs, "\n") {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.mirror, status, out, errs)
		}
		commandtest.Holds(t, c.mirror, errs, c.want...)
		if n := strings.Count(errs, "by hand"); n > 1 {
			t.Errorf("the alternatives are told %d times: %s", n, errs)
		}
	}
}

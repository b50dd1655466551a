package datacmd

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/data/download"
)

func TestDataCriteoGenerate(t *testing.T) {
	sample := commandtest.ClickRows(t, 300)
	var content [2][]byte
	for i, seed := range []string{"", " --seed 2"} {
		dir := filepath.Join(t.TempDir(), "made", "here")
		line := "--generate 2.5k --like " + sample + " --out " + dir + seed
		status, out, errs := runSet("criteo", download.Fetcher{}, line+" --progress plain")
		if want := fmt.Sprintf("2,500 rows like %s are in %s; train with `ringo train ctr-dnn --data %s`\n", sample, dir, dir); status != 0 || out != want {
			t.Fatalf("status %d, stdout %q, stderr %q", status, out, errs)
		}
		if want := "train.tsv: 2,500 rows\ntest.tsv: 250 rows\n"; errs != want {
			t.Errorf("progress %q, want %q", errs, want)
		}
		set, err := data.Open("criteo", data.Config{Dir: dir})
		if err != nil || set.Train.Len() != 2500 || set.Eval.Len() != 250 {
			t.Errorf("%+v, %v", set, err)
		}
		content[i], err = os.ReadFile(filepath.Join(dir, "train.tsv"))
		if err != nil {
			t.Fatal(err)
		}
		status, _, errs = runSet("criteo", download.Fetcher{}, line)
		if status != cli.Failed || !strings.Contains(errs, "is there already") {
			t.Errorf("again: status %d, stderr %q", status, errs)
		}
	}
	if bytes.Equal(content[0], content[1]) {
		t.Error("the seed does not matter")
	}
}

func TestDataCriteoFaults(t *testing.T) {
	sample := commandtest.ClickRows(t, 300)
	bad := filepath.Join(t.TempDir(), "bad.tsv")
	if err := os.WriteFile(bad, []byte("0\tx\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	for _, c := range []struct {
		line   string
		status int
		says   string
	}{
		{"", cli.UsageError, "needs --out DIR"},
		{"--like x --out y", cli.UsageError, "belong to --generate"},
		{"--generate 5 --out y", cli.UsageError, "needs --like FILE"},
		{"--generate 5 --like x", cli.UsageError, "needs --out DIR"},
		{"--generate 5 --like x --out y --mirror http://z", cli.UsageError, "fetches nothing"},
		{"--generate 5 --like x --out y --progress no", cli.UsageError, "no"},
		{"--generate 5 --like /nowhere --out " + out, cli.Failed, "/nowhere"},
		{"--generate 5 --like " + bad + " --out " + out, cli.Failed, "line 1"},
		{"--generate 5 --like " + sample + " --out " + bad + "/x", cli.Failed, "not a directory"},
	} {
		status, _, errs := runSet("criteo", download.Fetcher{}, c.line)
		if status != c.status || !strings.Contains(errs, c.says) {
			t.Errorf("%q: status %d, stderr %q, want %d and %q", c.line, status, errs, c.status, c.says)
		}
	}
	if left, err := os.ReadDir(out); err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// Every published set has its command, and the help names it.
func TestDataHelp(t *testing.T) {
	status, out, errs := commandtest.Run(Command(), "--help")
	if status != 0 {
		t.Fatalf("status %d, stderr %q", status, errs)
	}
	for _, says := range []string{"mnist", "cifar10", "text", "criteo", "--data synthetic", "train/CLASS/NAME.jpg"} {
		if !strings.Contains(out, says) {
			t.Errorf("the help does not say %q:\n%s", says, out)
		}
	}
	for _, set := range published() {
		if _, ok := download.Published(set.name); !ok {
			t.Errorf("%s is not published", set.name)
		}
	}
}

func TestDataCIFARFrom(t *testing.T) {
	for _, c := range []struct {
		line   string
		status int
		says   string
	}{{"--from x", cli.UsageError, "--from needs --out"}, {"--from /nowhere --out " + t.TempDir(), cli.Failed, "/nowhere"}} {
		if status, _, errs := runSet("cifar10", download.Fetcher{}, c.line); status != c.status || !strings.Contains(errs, c.says) {
			t.Errorf("%q: status %d, stderr %q", c.line, status, errs)
		}
	}
}

// cifar10 and text are fetched as mnist is, each file under its own name.
func TestDataPlainFile(t *testing.T) {
	m := newMirror(t)
	content := m.body["/mnist/images.gz"]
	sum := sha256.Sum256(content)
	file := download.File{Name: "images.tar.gz", Plain: true, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	m.body["/c/images.tar.gz"] = content
	dir := t.TempDir()
	status, out, errs := runSet("cifar10", download.Fetcher{Files: []download.File{file}}, "--progress none --out "+dir+" --mirror "+m.URL+"/c")
	if want := fmt.Sprintf("CIFAR-10 is complete in %s; train with `ringo train cifar-resnet20 --data %s`\n", dir, dir); status != 0 || out != want {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "images.tar.gz")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

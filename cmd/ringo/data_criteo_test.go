package main

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
)

// clickRows are rows in Criteo's format, as a sample.
func clickRows(t *testing.T, n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%d", i%3/2)
		for c := range 13 {
			fmt.Fprintf(&text, "\t%d", i*(c+1)%97)
		}
		for c := range 26 {
			fmt.Fprintf(&text, "\t%08x", i%(c+2))
		}
		text.WriteString("\n")
	}
	path := filepath.Join(t.TempDir(), "sample.tsv")
	if err := os.WriteFile(path, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDataCriteoGenerate(t *testing.T) {
	sample := clickRows(t, 300)
	var content [2][]byte
	for i, seed := range []string{"", " --seed 2"} {
		dir := filepath.Join(t.TempDir(), "made", "here")
		line := "--generate 2.5k --like " + sample + " --out " + dir + seed
		status, out, errs := execute(newDataCriteo(data.Fetcher{}), line+" --progress plain")
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
		status, _, errs = execute(newDataCriteo(data.Fetcher{}), line)
		if status != exitFailed || !strings.Contains(errs, "is there already") {
			t.Errorf("again: status %d, stderr %q", status, errs)
		}
	}
	if bytes.Equal(content[0], content[1]) {
		t.Error("the seed does not matter")
	}
}

func TestDataCriteoFaults(t *testing.T) {
	sample := clickRows(t, 300)
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
		{"", exitUsage, "needs --out DIR"},
		{"--like x --out y", exitUsage, "belong to --generate"},
		{"--generate 5 --out y", exitUsage, "needs --like FILE"},
		{"--generate 5 --like x", exitUsage, "needs --out DIR"},
		{"--generate 5 --like x --out y --mirror http://z", exitUsage, "fetches nothing"},
		{"--generate 5 --like x --out y --progress no", exitUsage, "no"},
		{"--generate 5 --like /nowhere --out " + out, exitFailed, "/nowhere"},
		{"--generate 5 --like " + bad + " --out " + out, exitFailed, "line 1"},
		{"--generate 5 --like " + sample + " --out " + bad + "/x", exitFailed, "not a directory"},
	} {
		status, _, errs := execute(newDataCriteo(data.Fetcher{}), c.line)
		if status != c.status || !strings.Contains(errs, c.says) {
			t.Errorf("%q: status %d, stderr %q, want %d and %q", c.line, status, errs, c.status, c.says)
		}
	}
	if left, err := os.ReadDir(out); err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

func TestRowCount(t *testing.T) {
	for text, want := range map[string]rowCount{"7": 7, "500k": 500_000, "10M": 10_000_000, "1.5m": 1_500_000, "2G": 2_000_000_000} {
		var n rowCount
		if err := n.Set(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "NaN", "1e30", "0.1", "M"} {
		var n rowCount
		if err := n.Set(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

// Every published set has its command, and the help names it.
func TestDataHelp(t *testing.T) {
	status, out, errs := execute(newData(), "--help")
	if status != 0 {
		t.Fatalf("status %d, stderr %q", status, errs)
	}
	for _, says := range []string{"mnist", "cifar10", "text", "criteo", "--data synthetic", "train/CLASS/NAME.jpg"} {
		if !strings.Contains(out, says) {
			t.Errorf("the help does not say %q:\n%s", says, out)
		}
	}
	for _, set := range publishedSets() {
		if _, ok := data.Published(set.name); !ok {
			t.Errorf("%s is not published", set.name)
		}
	}
}

func TestDataCIFARFrom(t *testing.T) {
	for _, c := range []struct {
		line   string
		status int
		says   string
	}{{"--from x", exitUsage, "--from needs --out"}, {"--from /nowhere --out " + t.TempDir(), exitFailed, "/nowhere"}} {
		if status, _, errs := execute(newDataCIFAR(data.Fetcher{}), c.line); status != c.status || !strings.Contains(errs, c.says) {
			t.Errorf("%q: status %d, stderr %q", c.line, status, errs)
		}
	}
}

// cifar10 and text are fetched as mnist is, each file under its own name.
func TestDataPlainFile(t *testing.T) {
	m := newMirror(t)
	content := m.body["/mnist/images.gz"]
	sum := sha256.Sum256(content)
	file := data.File{Name: "images.tar.gz", Plain: true, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	m.body["/c/images.tar.gz"] = content
	dir := t.TempDir()
	status, out, errs := execute(newDataSet(setNamed("cifar10"), data.Fetcher{Files: []data.File{file}}), "--progress none --out "+dir+" --mirror "+m.URL+"/c")
	if want := fmt.Sprintf("CIFAR-10 is complete in %s; train with `ringo train cifar-resnet20 --data %s`\n", dir, dir); status != 0 || out != want {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "images.tar.gz")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

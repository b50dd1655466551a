package datacmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

// Rows that are made are read by their layout, and files that several processes make are those of one.
func TestDataClicks(t *testing.T) {
	one := filepath.Join(t.TempDir(), "made", "here")
	status, out, errs := commandtest.Run(clicksCommand(), "--layout movielens --generate 5k --values 500 --progress plain --out "+one)
	if status != 0 || !strings.Contains(out, "the best of all models has AUC 0.") || !strings.Contains(out, "train with `ringo train wide-deep --data "+one+" --layout movielens`") {
		t.Fatalf("status %d, stdout %q, stderr %q", status, out, errs)
	}
	if want := "train.csv: 5,000 rows\ntest.csv: 500 rows\n"; errs != want {
		t.Errorf("progress %q, want %q", errs, want)
	}
	set, err := data.Open("clicks", data.Config{Dir: one, Layout: "movielens"})
	if err != nil || set.Train.Len() != 5000 || set.Eval.Len() != 500 {
		t.Errorf("%+v, %v", set, err)
	}
	several := t.TempDir()
	for _, more := range []string{" --file 0", " --file 1"} {
		if status, _, errs := commandtest.Run(clicksCommand(), "--layout movielens --generate 5k --values 500 --progress none --files 2 --out "+several+more); status != 0 {
			t.Fatalf("status %d, stderr %q", status, errs)
		}
	}
	var all []byte
	for i, name := range []string{"part-00000.csv", "part-00001.csv"} {
		text, err := os.ReadFile(filepath.Join(several, "train", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, rows, _ := bytes.Cut(text, []byte("\n")); i > 0 {
			text = rows
		}
		all = append(all, text...)
	}
	if whole, err := os.ReadFile(filepath.Join(one, "train.csv")); err != nil || !bytes.Equal(whole, all) {
		t.Errorf("%d bytes of two files, %d of one, %v", len(all), len(whole), err)
	}
	if status, _, errs := commandtest.Run(clicksCommand(), "--layout movielens --generate 5k --out "+one); status != cli.Failed || !strings.Contains(errs, "is there already") {
		t.Errorf("again: status %d, stderr %q", status, errs)
	}
}

func TestDataClicksFaults(t *testing.T) {
	for line, says := range map[string]string{
		"":                           "needs --layout FILE, --generate ROWS and --out DIR",
		"--layout movielens --out x": "needs --layout FILE",
		"--layout moviesens --out x --generate 5":            `did you mean "movielens"`,
		"--layout movielens --out x --generate 5 --values 0": "--values",
		"--layout movielens --out x --generate 5 --files 0":  "--files 0",
		"--layout movielens --out x --generate 5 --file 1":   "--file 1 of --files 1",
		"--layout movielens --out x --generate 5 --zipf 11":  "exponent 11",
	} {
		commandtest.Refused(t, clicksCommand(), cli.UsageError, line, says)
	}
}

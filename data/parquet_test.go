package data

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files that this binary does not read are refused by name, before anything is read of them, and with what to do.
func TestTablesThatAreNotRead(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "docs", "data.md"))
	if err != nil || !strings.Contains(string(manual), "    "+buildParquet+"\n") {
		t.Errorf("docs/data.md does not say %q: %v", buildParquet, err)
	}
	for name, want := range map[string]string{
		"x.parquet": buildParquet, "X.PARQUET": buildParquet, "x.parquet.gz": "unpack it first",
		"x.arrow": "this binary reads no Arrow", "x.feather": "this binary reads no Arrow", "x.arrows": "this binary reads no Arrow", "x.arrow.zst": "unpack it first",
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := OpenTable(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		missing := filepath.Join(t.TempDir(), name)
		if _, err := OpenTable(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
			t.Errorf("%s is not there: %v", name, err)
		}
		if got := NameOf("mnist", Config{Dir: path}); got != "table" {
			t.Errorf("%s is of the set %s", name, got)
		}
	}
}

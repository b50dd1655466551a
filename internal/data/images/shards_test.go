package images

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

// A shard that is cut anywhere is an error that names it.
func TestCutShards(t *testing.T) {
	whole := datatest.Tar(t, "a.jpg", string(datatest.EncodeJPEG(datatest.Colourful(9, 9, 1))), "a.cls", "1", "b.jpg", "x", "b.cls", "0")
	path := filepath.Join(t.TempDir(), "x.tar")
	last := len(whole) - 1024 // zeros, of which an archive that is cut may have half
	for n := 0; n < len(whole); n += 37 {
		if err := os.WriteFile(path, whole[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := IndexShards([]string{path}, 1, new(datafile.Skips), new(datafile.LeftOuts))
		var fault *datafile.FormatError
		if n < last+512 && (!errors.As(err, &fault) || fault.File != path) {
			t.Fatalf("cut at %d of %d: %v", n, len(whole), err)
		}
	}
}

// TestShardNamesRejectsRepeats: patterns that overlap are an error with the shard's name.
func TestShardNamesRejectsRepeats(t *testing.T) {
	t.Chdir(t.TempDir())
	want := []string{"a-0.tar", "a-1.tar", "b.tar"}
	for _, name := range want {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ShardNames("a-{0..1}.tar::b.tar"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for pattern, name := range map[string]string{"a-*.tar::./a-1.tar": "./a-1.tar", "b.tar::*.tar": "b.tar"} {
		if got, err := ShardNames(pattern); err == nil || !strings.HasPrefix(err.Error(), name+": the pattern names the shard twice") {
			t.Errorf("%s: %v, %v", pattern, got, err)
		}
	}
}

package images

import (
	"errors"
	"os"
	"path/filepath"
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

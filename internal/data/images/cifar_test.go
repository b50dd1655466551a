package images

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/data/datafile"
	"github.com/ringo-ml/ringo/internal/data/datatest"
)

func FuzzDecodeCIFAR(f *testing.F) {
	f.Add(make([]byte, 2*CIFARRecord), 0)
	f.Add(datatest.Noise(CIFARRecord+1), 5)
	f.Fuzz(func(t *testing.T, raw []byte, most int) {
		got, err := DecodeCIFAR("f", bytes.NewReader(raw), &datafile.Skips{Max: max(0, most)})
		if err != nil {
			var fault *datafile.FormatError
			if !errors.As(err, &fault) || fault.Offset < 0 || fault.Offset > int64(len(raw)) {
				t.Fatalf("%v in %d bytes", err, len(raw))
			}
			return
		}
		if len(got.Pix) != len(got.Labels)*3*CIFARPlane || len(raw)%CIFARRecord != 0 {
			t.Fatalf("%d pixels, %d labels of %d bytes", len(got.Pix), len(got.Labels), len(raw))
		}
	})
}

func FuzzWalkTar(f *testing.F) {
	f.Add(datatest.Pack(f, "x/", map[string][]byte{"train/a/1.jpg": datatest.Noise(700), "test/a/1.png": nil}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tr := newTree("f")
		total := 0
		keep := tr.keep("f")
		err := datafile.WalkTar("f", bytes.NewReader(raw), func(name string, size int64, r io.Reader) error {
			return keep(name, size, r)
		}, tr.addSpecial)
		for _, part := range tr.parts {
			for _, p := range part {
				total += len(p.Encoded)
			}
		}
		if total > len(raw)+1<<20 { // a sparse file reads as zeros
			t.Fatalf("%d bytes of images out of %d", total, len(raw))
		}
		var fault *datafile.FormatError
		if err != nil && (!errors.As(err, &fault) || fault.File == "") {
			t.Fatalf("%v", err)
		}
	})
}

// An archive's images are held in memory up to a limit.
func TestArchiveHasALimit(t *testing.T) {
	raw := datatest.Pack(t, "", map[string][]byte{"train/a/1.png": datatest.Noise(700), "test/a/1.png": datatest.Noise(700)})
	for room, whole := range map[int64]bool{1400: true, 1399: false, 0: false} {
		tr := newTree("f")
		tr.room = room
		err := datafile.WalkTar("f", bytes.NewReader(raw), tr.keep("f"), tr.addSpecial)
		var f *datafile.FormatError
		if whole && err != nil || !whole && (!errors.As(err, &f) || !strings.Contains(f.Problem, "unpack it")) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
}

package export_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/export"
	"github.com/ringo-ml/ringo/internal/server/export/exporttest"
)

// table is rows in batches.
func table(keys []uint64, weights []float32, dim, batch int) export.Rows {
	return func(do func([]uint64, []float32) error) error {
		for lo := 0; lo < len(keys); lo += batch {
			hi := min(len(keys), lo+batch)
			if err := do(keys[lo:hi], weights[lo*dim:hi*dim]); err != nil {
				return err
			}
		}
		return nil
	}
}

func random(n, dim int) ([]uint64, []float32) {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(dim)))
	keys, weights := make([]uint64, n), make([]float32, n*dim)
	for i := range keys {
		keys[i] = rng.Uint64()
	}
	for i := range weights {
		weights[i] = math.Float32frombits(rng.Uint32())
		if weights[i] != weights[i] {
			weights[i] = 0
		}
	}
	return keys, weights
}

func TestText(t *testing.T) {
	var b strings.Builder
	n, err := export.Write(&b, export.Text, 2, table([]uint64{42, math.MaxUint64}, []float32{0.25, -1.5, 1e-30, 3}, 2, 1))
	const want = "42 0.25 -1.5\n18446744073709551615 1e-30 3\n"
	if err != nil || n != 2 || b.String() != want {
		t.Errorf("%d rows %v: %q, want %q", n, err, b.String(), want)
	}
}

func TestBinary(t *testing.T) {
	for _, c := range []struct{ n, dim, batch int }{{0, 1, 1}, {1, 1, 1}, {1000, 16, 64}, {77, 5, 100}} {
		keys, weights := random(c.n, c.dim)
		path := filepath.Join(t.TempDir(), "rows")
		n, err := export.File(path, export.Binary, c.dim, table(keys, weights, c.dim, c.batch))
		if err != nil || n != int64(c.n) {
			t.Fatalf("%+v: %d rows, %v", c, n, err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		dim, rows, err := exporttest.Read(bytes.NewReader(b), int64(len(b)), func(key uint64, row []float32) error {
			for k, v := range row {
				if key != keys[i] || math.Float32bits(v) != math.Float32bits(weights[i*c.dim+k]) {
					t.Fatalf("%+v: row %d is %d %v", c, i, key, row)
				}
			}
			i++
			return nil
		})
		if err != nil || dim != c.dim || rows != int64(c.n) || i != c.n {
			t.Errorf("%+v: read %d rows of %d, %v", c, rows, dim, err)
		}
	}
}

// A file appears whole or not at all, and what is there stays when a new one fails.
func TestWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	keys, weights := random(10, 3)
	if _, err := export.File(path, export.Text, 3, table(keys, weights, 3, 4)); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	stop := errors.New("stop")
	_, err := export.File(path, export.Text, 3, func(do func([]uint64, []float32) error) error {
		return errors.Join(do(keys[:2], weights[:6]), stop)
	})
	after, _ := os.ReadFile(path)
	if !errors.Is(err, stop) || !bytes.Equal(before, after) || len(before) == 0 {
		t.Errorf("%v: %d bytes became %d", err, len(before), len(after))
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v %v", entries, err)
	}
	if _, err := export.Write(&bytes.Buffer{}, "csv", 3, table(keys, weights, 3, 4)); err == nil || !strings.Contains(err.Error(), "csv") {
		t.Errorf("another format: %v", err)
	}
	if _, err := export.Write(&bytes.Buffer{}, export.Text, 0, table(keys, weights, 3, 4)); err == nil {
		t.Error("rows of no weights were written")
	}
	if _, err := export.Write(&bytes.Buffer{}, export.Text, 4, table(keys, weights, 3, 4)); err == nil {
		t.Error("rows of another width were written")
	}
}

func FuzzRead(f *testing.F) {
	for _, n := range []int{0, 1, 5} {
		keys, weights := random(n, 3)
		var b bytes.Buffer
		if _, err := export.Write(&b, export.Binary, 3, table(keys, weights, 3, 2)); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var keys []uint64
		var weights []float32
		dim, _, err := exporttest.Read(bytes.NewReader(b), int64(len(b)), func(key uint64, row []float32) error {
			keys, weights = append(keys, key), append(weights, row...)
			return nil
		})
		if err != nil {
			return
		}
		var again bytes.Buffer
		if _, err := export.Write(&again, export.Binary, dim, table(keys, weights, dim, 7)); err != nil || !bytes.Equal(again.Bytes(), b) {
			t.Fatalf("%x became %x: %v", b, again.Bytes(), err)
		}
	})
}

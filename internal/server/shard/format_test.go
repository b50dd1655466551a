package shard

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/rows"
)

// testHeader is that of a file of rows of 2 weights and one value of state.
func testHeader(s section) *header {
	return &header{Table: "t", Section: s, Dim: 2, Rule: "r", Parts: []width{{"sum", 1}}, Seed: 9, Delta: true, Since: 3, Epoch: 5, Day: 1, Borders: []dayBoundary{{2, 1}}}
}

// write writes a file with some pieces.
func write(t testing.TB, s section) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), string(s))
	w, err := create(path, testHeader(s))
	must(t, err)
	if s == deletedSection {
		w.begin(keysPiece, 0, math.MaxUint64, nil)
		for _, key := range []uint64{5, 0, math.MaxUint64} {
			w.addKey(key)
		}
		must(t, w.flush())
	} else {
		w.begin(rowsPiece, 0, 99, []rows.AppliedSeq{{Session: 0, Seq: 4}, {Session: 1023, Seq: math.MaxUint64}})
		w.add(&rows.Row{Key: 7, Weights: []float32{1, -2}, State: [][]float32{{3}}}, rows.Usage{Last: 5, Touches: 6, Changed: true})
		w.add(&rows.Row{Key: 8, Weights: []float32{float32(math.NaN()), 0}, State: [][]float32{{-0.5}}}, rows.Usage{})
		must(t, w.flush())
		w.begin(rowsPiece, 100, math.MaxUint64, nil)
		must(t, w.flush())
	}
	must(t, w.finish())
	return path
}

func TestPieces(t *testing.T) {
	r, f, err := openFile(write(t, memorySection))
	must(t, err)
	defer f.Close()
	if want := testHeader(memorySection); r.header.Table != want.Table || r.header.Epoch != 5 || !slices.Equal(r.header.Parts, want.Parts) || !slices.Equal(r.header.Borders, want.Borders) {
		t.Errorf("%+v", r.header)
	}
	p, err := r.next()
	must(t, err)
	if p.n != 2 || p.first != 0 || p.last != 99 || !slices.Equal(p.marks, []rows.AppliedSeq{{Session: 0, Seq: 4}, {Session: 1023, Seq: math.MaxUint64}}) {
		t.Errorf("%+v", p)
	}
	values := make([]float32, 3)
	if f := p.row(0, values); p.key(0) != 7 || f != (rows.Usage{Last: 5, Touches: 6}) || !slices.Equal(values, []float32{1, -2, 3}) {
		t.Errorf("row 0: key %d, %v, %v", p.key(0), f, values)
	}
	if f := p.row(1, values); p.key(1) != 8 || f != (rows.Usage{}) || values[0] == values[0] || values[2] != -0.5 {
		t.Errorf("row 1: key %d, %v, %v", p.key(1), f, values)
	}
	if p, err = r.next(); err != nil || p.n != 0 || p.first != 100 || len(p.marks) != 0 {
		t.Errorf("%+v: %v", p, err)
	}
	if _, err = r.next(); err != io.EOF {
		t.Error(err)
	}
}

// The bytes are those of the format's description.
func TestBytes(t *testing.T) {
	got, err := os.ReadFile(write(t, deletedSection))
	must(t, err)
	text := `{"of":"","table":"t","section":"deleted","dim":2,"rule":"r","parts":[{"name":"sum","width":1}],"seed":9,"delta":true,"since":3,"epoch":5,"day":1,"borders":[{"epoch":2,"day":1}]}`
	want := append([]byte("RINGOROW\x02\x00\x00\x00"), byte(len(text)), 0, 0, 0)
	want = append(want, text...)
	sum := func(from int) {
		s := sumOf(want[from:])
		want = append(want, byte(s), byte(s>>8), byte(s>>16), byte(s>>24))
	}
	sum(0)
	for _, piece := range []string{
		"\x02\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
			"\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff" +
			"\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
			"\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00",
	} {
		from := len(want)
		want = append(want, piece...)
		sum(from)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the file is\n%x\nwant\n%x", got, want)
	}
}

// Whatever a file has, reading it ends, with an error or with pieces that are sound.
// Checksums are not looked at, so that what lies behind them is.
func FuzzReader(f *testing.F) {
	for _, s := range sections {
		b, err := os.ReadFile(write(f, s))
		must(f, err)
		f.Add(b)
		f.Add(b[:len(b)-10])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &reader{path: "fuzz", f: bytes.NewReader(b), size: int64(len(b)), noSums: true}
		err := r.readHeader()
		values := make([]float32, r.values)
		total := 0
		for err == nil {
			var p *piece
			if p, err = r.next(); err != nil {
				break
			}
			if len(p.body) != p.n*p.kind.rowBytes(r.values) || p.first > p.last || len(p.marks) > rows.MaxSessions {
				t.Fatalf("%d bytes in a piece of %d, from %d to %d", len(p.body), p.n, p.first, p.last)
			}
			if total += len(p.body); total > len(b) {
				t.Fatalf("%d bytes of pieces in %d", total, len(b))
			}
			for i := range p.n {
				p.key(i)
				if p.kind == rowsPiece {
					p.row(i, values)
				}
			}
		}
		var d *DamageError
		if err != io.EOF && !errors.As(err, &d) && !errors.Is(err, errVersion) {
			t.Fatal(err)
		}
		if d != nil && (d.Offset < 0 || d.Offset > int64(len(b))) {
			t.Fatalf("damage at %d of %d bytes", d.Offset, len(b))
		}
	})
}

// FuzzImage is for what a store gives back.
func FuzzImage(f *testing.F) {
	tb := newTable(f, small(nil))
	b := make([]byte, tb.imageBytes())
	putImage(b, &rows.Row{Weights: []float32{1, 2, 3}, State: [][]float32{{4}}, Usage: rows.Usage{Last: 9, Touches: 8}}, 77)
	f.Add(b)
	f.Add(b[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		values := make([]float32, tb.rows.Width())
		usage, day, err := tb.readImage(1, b, values)
		if (err == nil) != (len(b) == tb.imageBytes()) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		var r rows.Row
		tb.view(&r, 1, values)
		r.Usage = usage
		again := make([]byte, len(b))
		if putImage(again, &r, day); !bytes.Equal(b, again) {
			t.Fatalf("%x was read, %x written", b, again)
		}
	})
}

package engine

import (
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

func record(c change) []byte {
	var head [headBytes]byte
	c.putHead(&head)
	k, v := bytesview.Bytes(c.keys), bytesview.Bytes(c.values)
	return slices.Concat(head[:], k, v)
}

// The layout is what logs hold: it must not change.
func TestRecordGolden(t *testing.T) {
	got := record(change{kind: kindRows, session: 0x0102, table: 3, seq: 4, step: 5, at: 6, keys: []uint64{7}, values: []float32{1}})
	want := []byte{
		1, 0, 2, 1, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
		7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f,
	}
	if !slices.Equal(got, want) {
		t.Errorf("a record is %v, was %v", got, want)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(record(change{kind: kindRows, session: 1, seq: 2, step: 3, keys: []uint64{4, 5}, values: []float32{1, 2}}))
	f.Add(record(change{kind: kindDense, table: 1, at: 77, values: []float32{1, 2, 3}}))
	f.Add(record(change{kind: kindClock, session: 1023, seq: 1 << 60}))
	f.Add(record(change{kind: kinds}))
	f.Add(make([]byte, headBytes-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c change
		if err := c.decode(b); err != nil {
			return
		}
		if c.size() != len(b) || !slices.Equal(record(c), b) {
			t.Fatalf("%x became %x", b, record(c))
		}
	})
}

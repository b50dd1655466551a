package bytesview_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

func TestBytesAndBack(t *testing.T) {
	words := []uint64{1, 1 << 40, ^uint64(0)}
	var want []byte
	for _, w := range words {
		want = binary.NativeEndian.AppendUint64(want, w)
	}
	b := bytesview.Bytes(words)
	if !slices.Equal(b, want) {
		t.Errorf("got % x, want % x", b, want)
	}
	if b[0] ^= 0xff; words[0] == 1 {
		t.Error("the bytes are a copy")
	}
	if got := bytesview.As[uint64](b); &got[0] != &words[0] || len(got) != 3 {
		t.Errorf("back are %d values at %p, want 3 at %p", len(got), &got[0], &words[0])
	}
	if got := bytesview.As[float32](b[:11]); len(got) != 2 {
		t.Errorf("11 bytes are %d whole values", len(got))
	}
	if bytesview.Bytes[float32](nil) != nil || len(bytesview.As[int32](nil)) != 0 {
		t.Error("nothing is nothing")
	}
}

func TestSized(t *testing.T) {
	x := bytesview.Sized[int](nil, 8)
	if len(x) != 8 || cap(x) != 8 {
		t.Errorf("new memory of %d has %d and room for %d", 8, len(x), cap(x))
	}
	if y := bytesview.Sized(x, 3); &y[0] != &x[0] || len(y) != 3 {
		t.Error("less does not use the memory again")
	}
	if y := bytesview.Sized(x[:0], 8); &y[0] != &x[0] {
		t.Error("what has room is not used again")
	}
	if y := bytesview.Sized(x, 100); len(y) != 100 || cap(y) < 125 {
		t.Errorf("memory that grows has %d and room for %d", len(y), cap(y))
	}
	if n := testing.AllocsPerRun(100, func() { x = bytesview.Sized(x, 5) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package collective

import (
	"math"
	"testing"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// A rank reads another's values where that one says they lie, and nowhere else.
func TestPlaceAndAt(t *testing.T) {
	meshes := mem.NewShared(2, 1<<20)
	groups := make([]*Group, 2)
	for r, m := range meshes {
		var err error
		if groups[r], err = New(m, Config{}); err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		defer groups[r].Close()
	}
	_ = transport.SharedMemoryOf(meshes[0]).Alloc(100) // so that places differ from zero
	b := transport.SharedMemoryOf(meshes[0]).Alloc(40)
	x := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), 10)
	x[7] = 5
	place := SharedOffset(groups[0], x)
	got, err := SharedSlice[float32](groups[1], 0, place, 10)
	if err != nil || place <= 0 || got[7] != 5 {
		t.Fatalf("at %d: %v, %v", place, got, err)
	}
	if p := SharedOffset(groups[0], make([]float32, 10)); p != -1 {
		t.Errorf("memory of its own is at %d", p)
	}
	if p := SharedOffset(groups[0], []float32(nil)); p != 0 {
		t.Errorf("nothing is at %d", p)
	}
	for _, bad := range []struct {
		rank  int
		place int64
		n     int
	}{{0, -1, 1}, {0, 2, 1}, {0, math.MaxInt64 - 3, 1}, {0, 0, math.MaxInt}, {0, 0, -1}, {2, 0, 1}, {-1, 0, 1}} {
		if got, err := SharedSlice[float32](groups[1], bad.rank, bad.place, bad.n); err == nil {
			t.Errorf("%+v: %d values", bad, len(got))
		}
	}
}

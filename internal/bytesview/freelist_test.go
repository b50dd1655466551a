package bytesview_test

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/bytesview"
)

// TestFreeListReusesTheLast: Get returns the values of Put, the last one first, and then new ones.
func TestFreeListReusesTheLast(t *testing.T) {
	var l bytesview.FreeList[int]
	a, b := l.Get(), l.Get()
	if *a = 7; a == b || *b != 0 {
		t.Fatalf("%v and %v are one value, or not zero", a, b)
	}
	l.Put(a, b)
	if l.Get() != b || l.Get() != a || *l.Get() != 0 {
		t.Error("not the values of Put, the last one first")
	}
	if n := testing.AllocsPerRun(10, func() { l.Put(a); l.Get() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

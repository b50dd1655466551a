package store_test

import (
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/store"
	"github.com/ringo-ml/ringo/internal/server/store/storetest"
)

func init() {
	store.Kinds["Memory"] = func(_ testing.TB, limit int64) store.Store { return storetest.NewMemory(limit) }
}

// TestMemoryReportsWrongLengths: the store of tests compares the lengths of old rows.
func TestMemoryReportsWrongLengths(t *testing.T) {
	err := storetest.NewMemory(0).Put(1, &store.Rows{Keys: []uint64{1}, Ends: []int{0}, Old: []int32{5}})
	if err == nil || !strings.Contains(err.Error(), "the old row has -1 bytes, not 5") {
		t.Errorf("a wrong length: %v", err)
	}
}

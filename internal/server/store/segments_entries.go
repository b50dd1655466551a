package store

// mappedFrom is the minimum size of entries outside Go's heap: most of a store's memory is entries.
// On the heap they would take twice the memory, and old entries would remain until a collection.
const mappedFrom = 16 << 10

// newEntries returns n zeros, and their mapping outside the heap; nil for zeros on the heap.
func newEntries(n int) (entries []uint64, mapped []byte) {
	if 8*n >= mappedFrom {
		if entries, mapped = mapEntries(n); mapped != nil {
			return entries, mapped
		}
	}
	return make([]uint64, n), nil
}

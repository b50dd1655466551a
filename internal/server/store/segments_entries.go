package store

// mappedFrom is from how many bytes on entries lie outside Go's heap: they are most of what
// a store has in memory, and on the heap they would bring it as much again as the collector
// lets garbage grow to, and their old places until it has run.
const mappedFrom = 16 << 10

// newEntries returns n zeros, and the memory outside the heap that they lie in, nil if they are
// on it.
func newEntries(n int) (entries []uint64, mapped []byte) {
	if 8*n >= mappedFrom {
		if entries, mapped = mapEntries(n); mapped != nil {
			return entries, mapped
		}
	}
	return make([]uint64, n), nil
}

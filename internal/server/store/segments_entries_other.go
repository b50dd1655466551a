//go:build !linux || race

package store

// mapEntries returns nothing: the race detector does not see such memory.
func mapEntries(int) ([]uint64, []byte) { return nil, nil }

func freeEntries([]byte) {}

//go:build !race

package waiting

//go:noescape
func looks(f *Flag, n uint64, count int) bool

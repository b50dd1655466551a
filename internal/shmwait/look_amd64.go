//go:build !race

package shmwait

//go:noescape
func looks(f *Flag, n uint64, count int) bool

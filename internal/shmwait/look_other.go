//go:build !amd64 || race

package shmwait

// readsPerLook are about as long as the instruction that another processor pauses by.
const readsPerLook = 16

func looks(f *Flag, n uint64, count int) bool {
	for range count * readsPerLook {
		if f.n.Load() >= n {
			return true
		}
	}
	return false
}

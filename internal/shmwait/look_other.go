//go:build !amd64 || race

package shmwait

// readsPerLook reads take about the time of the pause instruction of other processors.
const readsPerLook = 16

func looks(f *Flag, n uint64, count int) bool {
	for range count * readsPerLook {
		if f.n.Load() >= n {
			return true
		}
	}
	return false
}

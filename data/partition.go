package data

import (
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/data/prng"
)

// partition returns the positions [lo, hi) of n for a rank of size, cut contiguously as in SINGA.
// With dropRemainder every rank gets n/size positions, and the last n mod size positions are
// dropped. Without dropRemainder the first n mod size ranks get one position more. 0 <= rank <
// size.
func partition(n, rank, size int, dropRemainder bool) (lo, hi int) {
	each, rest := n/size, n%size
	if dropRemainder {
		rest = 0
	}
	lo = rank*each + min(rank, rest)
	hi = lo + each
	if rank < rest {
		hi++
	}
	return lo, hi
}

// permutation returns a random order of 0..n-1 that depends only on (seed, epoch, n), so all ranks
// compute the same order without communication. It reuses dst if large enough. Fisher-Yates: O(n),
// about 5 ns per element while the order fits the cache.
func permutation(seed uint64, epoch, n int, dst []int32) []int32 {
	dst = bytesview.Sized(dst, n)
	for i := range dst {
		dst[i] = int32(i)
	}
	r := prng.New(seed, uint64(epoch), uint64(n))
	for i := n - 1; i > 0; i-- {
		j := r.Below(i + 1)
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

package schema

import (
	"fmt"
	"math/bits"
)

// Owner is the server that holds a key's row, of servers many, at least 1. It
// depends on nothing else: what a job has saved finds its rows again. The hash is
// the finaliser of MurmurHash3 (Appleby 2011), another one than that of tables in
// memory, whose segments and stripes are thus filled evenly on every server; the
// servers share its range. It takes some 2 ns.
func Owner(key uint64, servers int) int {
	key = (key ^ key>>33) * 0xff51afd7ed558ccd
	key = (key ^ key>>33) * 0xc4ceb9fe1a85ec53
	key ^= key >> 33
	server, _ := bits.Mul64(key, uint64(servers))
	return int(server)
}

// line is how many values servers take together: a cache line's.
const line = 16

// Cut is the range [lo, hi) of an array of so many values that server i holds. The
// ranges cover the array, each begins at a multiple of 16, and they differ by 16
// values at most, those that the array's end cuts apart. One of an array that is short may be
// empty. It panics where there is no such server.
func Cut(length, servers, i int) (lo, hi int) {
	if i < 0 || i >= servers || length < 0 {
		panic(fmt.Sprintf("schema: cut %d of %d of %d values", i, servers, length))
	}
	lines := uint64(length+line-1) / line
	return min(length, share(lines, i, servers)*line), min(length, share(lines, i+1, servers)*line)
}

// share is lines*i/servers.
func share(lines uint64, i, servers int) int {
	hi, lo := bits.Mul64(lines, uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(servers))
	return int(q)
}

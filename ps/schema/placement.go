package schema

import (
	"fmt"
	"math/bits"
)

// Owner returns the number of the server that has a key's row. It depends only on the arguments, so
// that a saved row belongs to the same server later. The hash is the finaliser of MurmurHash3
// (Appleby 2011); the servers' tables use another hash, so that a server's keys are spread over the
// whole table. Servers divide the hash's range equally. Cost: some 2 ns.
func Owner(key uint64, servers int) int {
	key = (key ^ key>>33) * 0xff51afd7ed558ccd
	key = (key ^ key>>33) * 0xc4ceb9fe1a85ec53
	key ^= key >> 33
	server, _ := bits.Mul64(key, uint64(servers))
	return int(server)
}

// line is the unit, in values, of the division between servers: a cache line.
const line = 16

// Cut returns server i's range [lo, hi) of an array of the given length. The ranges cover the
// array, start at multiples of 16, and differ by at most 16 values, except at the array's end. For
// a short array a range may be empty. Cut panics for an invalid server.
func Cut(length, servers, i int) (lo, hi int) {
	if i < 0 || i >= servers || length < 0 {
		panic(fmt.Sprintf("schema: cut %d of %d of %d values", i, servers, length))
	}
	lines := uint64(length+line-1) / line
	return min(length, share(lines, i, servers)*line), min(length, share(lines, i+1, servers)*line)
}

// share returns lines*i/servers.
func share(lines uint64, i, servers int) int {
	hi, lo := bits.Mul64(lines, uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(servers))
	return int(q)
}

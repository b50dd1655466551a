// Package freeport finds free addresses for tests with programs that listen later, or repeatedly.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// first and count select ports below the ephemeral ranges, from 32768 (Linux) or 49152 (macOS): the
// system could assign an ephemeral port to another listener before the test, or to a client, as a
// connection with itself.
const first, count = 10000, 6000

const trials = 100

// Address returns a free HOST:PORT of loopback.
func Address(t testing.TB) string {
	t.Helper()
	var err error
	for range trials {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(count)))); err == nil {
			address := l.Addr().String()
			_ = l.Close()
			return address
		}
	}
	t.Fatalf("no port from %d to %d is free: %v", first, first+count-1, err)
	return ""
}

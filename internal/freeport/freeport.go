// Package freeport finds addresses for tests whose programs listen later than they are told where, or again
// and again.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports are below those that systems hand out, from 32768 on (Linux) or 49152 (macOS): to listeners that take
// any, which would have the address by the time it is needed, and to connections, of which one that is made to
// an address where nobody listens yet may get that very port, and is then one with itself.
const first, count = 10000, 6000

// trials are how many ports are tried before the test fails.
const trials = 100

// Address is a HOST:PORT of loopback where nobody listens.
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

package freeport

import (
	"net"
	"strconv"
	"testing"
)

// Who is told the address can listen there, and what the system hands out is another one.
func TestAddress(t *testing.T) {
	for range 20 {
		address := Address(t)
		_, port, err := net.SplitHostPort(address)
		if n, _ := strconv.Atoi(port); err != nil || n < first || n >= first+count {
			t.Fatalf("%s: %v", address, err)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if other := Address(t); other == address {
			t.Errorf("%s, where somebody listens, is given", other)
		}
	}
}

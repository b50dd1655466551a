package hostport

import (
	"net"
	"strconv"
	"testing"
)

func TestSplit(t *testing.T) {
	for address, want := range map[string]struct {
		host  string
		port  int
		least int // from which on it is refused
	}{
		"host0:4000": {"host0", 4000, 4001}, ":0": {"", 0, 1}, "[::1]:65535": {"::1", 65535, 65536}, "127.0.0.1:1": {"127.0.0.1", 1, 2},
	} {
		host, port, err := Split(address, want.least-1)
		if err != nil || host != want.host || port != want.port {
			t.Errorf("%s: %q, %d, %v", address, host, port, err)
		}
		if _, _, err := Split(address, want.least); err == nil {
			t.Errorf("%s with a port of at least %d", address, want.least)
		}
	}
	for _, bad := range []string{"", "host", ":", "host:", "host:http", "host:65536", "host:-1", "host:+1", "::1:80", "[::1]", "a:b:1", "host: 1", "http://host:80"} {
		if host, port, err := Split(bad, 0); err == nil || err.Error() != "want HOST:PORT with a port from 0 to 65535" {
			t.Errorf("%q: %q, %d, %v", bad, host, port, err)
		}
	}
}

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "host0": false} {
		if Loopback(host) != want {
			t.Errorf("%q is of this host alone: want %v", host, want)
		}
	}
}

// What is taken is what net makes of host and port.
func FuzzSplit(f *testing.F) {
	f.Add("host:1", 0)
	f.Add("[::1]:0", 1)
	f.Fuzz(func(t *testing.T, address string, least int) {
		host, port, err := Split(address, least)
		if err != nil {
			return
		}
		again, same, err := Split(net.JoinHostPort(host, strconv.Itoa(port)), least)
		if port < least || port > 65535 || err != nil || again != host || same != port {
			t.Errorf("%q: %q, %d; again %q, %d, %v", address, host, port, again, same, err)
		}
	})
}

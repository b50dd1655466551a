package cluster

import (
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/dnstest"
	"github.com/ringo-ml/ringo/transport"
)

// Rank 0 whose host's own name is a loopback address there listens on all addresses, as do the meshes of ranks of that host, and
// the roster has loopback's address while all ranks are on one host.
func TestOwnNameIsLoopback(t *testing.T) {
	names, err := dnstest.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	before := net.DefaultResolver
	defer func() { net.DefaultResolver = before }()
	net.DefaultResolver = dnstest.Resolver(names.Address())
	names.Know()
	var told []string
	l, err := Listen(t.Context(), "nodea.test:0", time.Minute, func(line string) { told = append(told, line) })
	if err != nil {
		t.Fatal(err)
	}
	if at := l.Addr().(*net.TCPAddr); !at.IP.IsUnspecified() || len(told) != 1 || !strings.Contains(told[0], "nodea.test is 127.0.0.1 on this host") {
		t.Errorf("listens on %v, told %q", at, told)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_, cfg := job(t, 2, func(c *CoordinatorConfig) { c.Listener, c.Address = l, "" })
	cfg.Rendezvous = "nodea.test:" + port
	for r, m := range joinAll(t, cfg) {
		if at := m.Listener().Addr().(*net.TCPAddr); !at.IP.IsUnspecified() || !strings.HasPrefix(m.Addrs()[r], "127.0.0.1:") {
			t.Errorf("rank %d listens on %v and is announced at %s", r, at, m.Addrs()[r])
		}
	}
	_, err = Join(t.Context(), MemberConfig{Rank: 1, WorldSize: 2, Rendezvous: "nodea.test:1", Ticket: transport.NewTicket(), Version: "v", Times: Times{Join: 50 * time.Millisecond}})
	if err == nil || !strings.Contains(err.Error(), "nodea.test is a loopback address here (127.0.0.1) and leads to this host") {
		t.Errorf("where another host has that address for rank 0's: %v", err)
	}
}

// Names may differ between hosts, addresses and localhost may not.
func TestIsOwnName(t *testing.T) {
	for host, want := range map[string]bool{
		"nodea": true, "nodea.example": true, "localhoste": true, "localhost": false, "LocalHost": false, "localhost.localdomain": false, "a.localhost": false, "ip6-localhost": false,
		"": false, "127.0.1.1": false, "::1": false, "fe80::1%eth0": false, "10.0.0.1": false,
	} {
		if isOwnName(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
}

// An address such as 127.0.1.1 is reported, because it is meant for a host's own name; loopback's own addresses are not.
func TestAddressOfOwnName(t *testing.T) {
	for address, want := range map[string]int{"127.0.1.1:0": 1, "127.0.0.1:0": 0, "localhost:0": 0} {
		told := 0
		l, err := Listen(t.Context(), address, time.Minute, func(string) { told++ })
		if err != nil {
			t.Logf("%s: %v", address, err) // not all systems have all of 127.0.0.0/8
			continue
		}
		if l.Close(); told != want || !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("%s: %d lines, listening on %v", address, told, l.Addr())
		}
	}
}

// Ranks that listen on all addresses are announced where ranks of other hosts have reached the coordinator.
func TestReachable(t *testing.T) {
	near, far, link := net.IPv4(127, 0, 0, 1), net.IPv4(10, 9, 0, 1), net.ParseIP("fe80::1")
	for _, c := range []struct {
		addrs   string
		reached []net.IP
		want    string
	}{
		{"[::]:5 10.9.0.2:6", []net.IP{near, far}, "10.9.0.1:5 10.9.0.2:6"},
		{"0.0.0.0:5 [::]:7 10.9.0.2:6 [::]:8", []net.IP{near, near, far, nil}, "10.9.0.1:5 10.9.0.1:7 10.9.0.2:6 10.9.0.1:8"},
		{"[::]:5 [::]:6", []net.IP{near, near}, "127.0.0.1:5 127.0.0.1:6"},
		{"[::]:5 [fd00::2]:6", []net.IP{net.IPv6loopback, net.ParseIP("fd00::1")}, "[fd00::1]:5 [fd00::2]:6"},
		{"[::]:5 [fe80::2]:6", []net.IP{near, link}, "127.0.0.1:5 [fe80::2]:6"},
		{"127.0.0.1:5 10.9.0.2:6", []net.IP{near, far}, "127.0.0.1:5 10.9.0.2:6"}, // which checkReach rejects
	} {
		if got := reachable(strings.Fields(c.addrs), c.reached); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %q, want %s", c.addrs, got, c.want)
		}
	}
}

// An error of the network itself is explained, and another one is not.
func TestNoNetworkNeedsItsError(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), syscall.ECONNREFUSED, &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}} {
		if why := noNetwork(err); why != nil {
			t.Errorf("%v: %v", err, why)
		}
	}
}

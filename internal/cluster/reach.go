package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// errLoopbackDown is the error of processes of one host that cannot connect.
var errLoopbackDown = errors.New("the loopback interface of this host is down, over which processes of one host meet: bring it up, `ip link set lo up`")

// errNoNetwork is the error of a host that reaches no other host.
var errNoNetwork = errors.New("this host has no network: no interface but loopback is up and has an address: bring one up, or start all processes on this host")

// isOwnName reports whether host is a name that other hosts may resolve to another address, unlike
// an IP address or localhost.
func isOwnName(host string) bool {
	lower := strings.ToLower(host)
	address, _, _ := strings.Cut(host, "%") // without a zone
	return host != "" && net.ParseIP(address) == nil && lower != "localhost" && !strings.HasPrefix(lower, "localhost.") && !strings.HasSuffix(lower, ".localhost") && !strings.HasPrefix(lower, "ip6-")
}

// loopbackOf returns the first loopback address of a host name on this host, or nil.
func loopbackOf(ctx context.Context, host string) net.IP {
	ips, _ := net.DefaultResolver.LookupIP(ctx, "ip", host) // users of the name report the error
	for _, ip := range ips {
		if ip.IsLoopback() {
			return ip
		}
	}
	return nil
}

// onlyHere returns a hint for a rendezvous with a loopback address on this host, or "".
func onlyHere(ctx context.Context, rendezvous string) string {
	host, _, _ := net.SplitHostPort(rendezvous)
	if ip := loopbackOf(ctx, host); ip != nil && (isOwnName(host) || isOfName(ip)) {
		return fmt.Sprintf(" %s is a loopback address here (%v) and leads to this host, not to another one;", host, ip)
	}
	return ""
}

// isOfName reports whether ip is a loopback address such as 127.0.1.1, which some systems assign to
// the host's name.
func isOfName(ip net.IP) bool {
	return ip.IsLoopback() && !ip.Equal(net.IPv4(127, 0, 0, 1)) && !ip.Equal(net.IPv6loopback)
}

func loopbackDown() bool {
	all, err := net.Interfaces()
	down := false
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			if i.Flags&net.FlagUp != 0 {
				return false
			}
			down = true
		}
	}
	return err == nil && down
}

// noNetwork returns the error of a host without a network, if that is the cause of err, or nil.
func noNetwork(err error) error {
	if !errors.Is(err, syscall.ENETUNREACH) && !unknown(err) {
		return nil
	}
	var op *net.OpError
	if errors.As(err, &op) {
		if tcp, ok := op.Addr.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
			if loopbackDown() {
				return errLoopbackDown
			}
			return nil
		}
	}
	all, listing := net.Interfaces()
	for _, i := range all {
		if addrs, err := i.Addrs(); err != nil || i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 && len(addrs) > 0 {
			return nil
		}
	}
	if listing != nil {
		return nil // undecided
	}
	return errNoNetwork
}

// reachable replaces unspecified hosts in addrs: ranks on the coordinator's host may listen on all
// addresses. The new host is the coordinator address that a rank of another host has dialed, or
// loopback if all ranks are on this host. reached has the coordinator's end of each rank's
// connection. Both slices are by rank.
func reachable(addrs []string, reached []net.IP) []string {
	own := net.IPv4(127, 0, 0, 1)
	for _, ip := range reached {
		if ip != nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			own = ip
			break
		}
	}
	for r, a := range addrs {
		if host, port, err := net.SplitHostPort(a); err == nil {
			if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
				addrs[r] = net.JoinHostPort(own.String(), port)
			}
		}
	}
	return addrs
}

// checkReach refuses addresses, by rank, if only some are reachable from other hosts.
func checkReach(addrs []string) error {
	local, remote := -1, -1
	for r, a := range addrs {
		switch loopback(a) {
		case true:
			if local < 0 {
				local = r
			}
		case false:
			if remote < 0 {
				remote = r
			}
		}
	}
	if local < 0 || remote < 0 {
		return nil
	}
	return fmt.Errorf("rank %d listens on %s, which only its own host reaches, but rank %d is at %s: "+
		"give rank %d a rendezvous that is an address of the network, or name the network's interface",
		local, addrs[local], remote, addrs[remote], local)
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

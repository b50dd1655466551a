package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/callers"
	"github.com/ringo-ml/ringo/setting"
)

// PortRange is the ports that a rank may listen on. The zero value leaves the
// choice to the system.
type PortRange struct{ First, Last int }

// ParsePortRange reads FIRST-LAST or one port; "" is any.
func ParsePortRange(text string) (PortRange, error) {
	if text == "" {
		return PortRange{}, nil
	}
	first, last, ranges := strings.Cut(text, "-")
	if !ranges {
		last = first
	}
	var p PortRange
	var err, lastErr error
	p.First, err = strconv.Atoi(first)
	p.Last, lastErr = strconv.Atoi(last)
	if err != nil || lastErr != nil || p.First < 1 || p.Last < p.First || p.Last > 65535 {
		return PortRange{}, fmt.Errorf("%q: want FIRST-LAST within 1 to 65535, such as 20000-20100", text)
	}
	return p, nil
}

// String is what ParsePortRange reads.
func (p PortRange) String() string {
	if p == (PortRange{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// valid reports whether p is the zero value or a range of ports.
func (p PortRange) valid() bool {
	return p == (PortRange{}) || p.First >= 1 && p.First <= p.Last && p.Last <= 65535
}

// listen opens the listener of a rank's mesh. It is on the address by which this
// rank reaches the coordinator, local, which the other ranks can reach too
// wherever the coordinator can; or on the address of the named network interface.
func listen(local net.Addr, network string, ports PortRange) (net.Listener, error) {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("%v is not a TCP address", local)
	}
	at := net.TCPAddr{IP: tcp.IP, Zone: tcp.Zone}
	if network != "" {
		ip, err := addressOf(network, tcp.IP)
		if err != nil {
			return nil, setting.Faultf("network.interface", "%w", err)
		}
		at = net.TCPAddr{IP: ip}
	}
	if at.IP.IsLinkLocalUnicast() {
		return nil, fmt.Errorf("%v is valid on one link only and means something else on other hosts: use another address of the coordinator's host as rendezvous, or name an interface", at.IP)
	}
	for at.Port = ports.First; at.Port <= ports.Last; at.Port++ { // once at port 0, any, where there is no range
		l, err := net.ListenTCP("tcp", &at)
		if err == nil {
			callers.SpeakFirst(l) // now: ranks are let in later, and who says nothing must not fill the queue until then
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || ports == (PortRange{}) {
			return nil, err
		}
	}
	return nil, setting.Faultf("network.port-range", "%v: all ports are in use on %v: want a range with at least as many free ones as ranks on this host", ports, at.IP)
}

// CheckInterface reports whether this host has a network interface of a name, ""
// being any, with an address that other hosts could use. The error names the
// interfaces that there are.
func CheckInterface(network string) error {
	if network == "" {
		return nil
	}
	_, err := addressOf(network, nil)
	return err
}

// Listen opens the listener of a coordinator, whose host may be a name that this host's resolver does not know yet: it then tries for as
// long as within, and tells report so in one line, if that is set.
func Listen(ctx context.Context, address string, within time.Duration, report func(line string)) (net.Listener, error) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		l, err := new(net.ListenConfig).Listen(limited, "tcp", address)
		switch {
		case err == nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !unknown(err):
			return nil, fmt.Errorf("coordinator: listen for ranks on %s: %w", address, err)
		case report != nil:
			report(unknownYet(address, within))
			report = nil // once
		}
		select {
		case <-time.After(pause):
		case <-limited.Done():
			if ctx.Err() == nil {
				return nil, fmt.Errorf("coordinator: listen for ranks on %s: not known for %v: %w", address, within, err)
			}
		}
	}
}

// unknown says that a name has no address, as far as a resolver says that now.
func unknown(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && (dns.IsNotFound || dns.IsTimeout || dns.IsTemporary)
}

func unknownYet(address string, within time.Duration) string {
	return fmt.Sprintf("%s: this name is not known here: trying on for up to %v, as names of pods may come late", address, within)
}

// HostAddress is an address of this host at which the ranks of a job find one: of the named network interface, or else loopback's
// where all are on this host, or else that of the host's name, or of the first interface that has one. Where there is no
// network it is loopback's.
func HostAddress(network string, oneHost bool) (net.IP, error) {
	loopback := net.IPv4(127, 0, 0, 1)
	switch {
	case network != "":
		ip, err := addressOf(network, nil)
		if err != nil {
			return nil, setting.Faultf("network.interface", "%w", err)
		}
		return ip, nil
	case oneHost:
		return loopback, nil
	}
	var addrs []net.Addr
	if name, err := os.Hostname(); err == nil {
		limited, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		found, _ := net.DefaultResolver.LookupIP(limited, "ip", name) // unknown: the interfaces say
		for _, ip := range found {
			addrs = append(addrs, &net.IPNet{IP: ip})
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(append(addrs, all...), func(a net.Addr) bool { n, ok := a.(*net.IPNet); return !ok || n.IP.IsLoopback() })
	if ip := choose(others, loopback); ip != nil {
		return ip, nil
	}
	return loopback, nil
}

// addressOf returns the address of a network interface: of like's family if it
// has one, and the first of these in the system's order.
func addressOf(network string, like net.IP) (net.IP, error) {
	found, err := net.InterfaceByName(network)
	if err != nil {
		return nil, fmt.Errorf("%q: there is none of this name, but %s", network, strings.Join(interfaces(), ", "))
	}
	addrs, err := found.Addrs()
	if err != nil {
		return nil, fmt.Errorf("%q: %w", network, err)
	}
	if ip := choose(addrs, like); ip != nil {
		return ip, nil
	}
	return nil, fmt.Errorf("%q: it has no address that other hosts could use, only %v", network, addrs)
}

func interfaces() []string {
	all, _ := net.Interfaces() // none: nothing to name
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// choose returns the first of addrs that is of like's family, or else the first,
// leaving out those that are valid on one link only.
func choose(addrs []net.Addr, like net.IP) (other net.IP) {
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLinkLocalUnicast() || n.IP.IsMulticast() {
			continue
		}
		if (n.IP.To4() != nil) == (like.To4() != nil) {
			return n.IP
		}
		if other == nil {
			other = n.IP
		}
	}
	return other
}

// checkReach refuses a roster in which some ranks can be reached from their own
// host only, though others are elsewhere. addrs are by rank.
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

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

	"github.com/ringo-ml/ringo/internal/connpeek"
	"github.com/ringo-ml/ringo/internal/setting"
)

// PortRange is the range of a rank's listen ports. The zero value means any port.
type PortRange struct{ First, Last int }

// ParsePortRange parses FIRST-LAST or one port; "" means any.
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

// String returns the range in ParsePortRange's syntax.
func (p PortRange) String() string {
	if p == (PortRange{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

func (p PortRange) valid() bool {
	return p == (PortRange{}) || p.First >= 1 && p.First <= p.Last && p.Last <= 65535
}

// listen opens the listener of a rank's mesh on the named network interface or, without a name, on
// local, this rank's address toward the coordinator: other ranks can reach local if the coordinator
// can. If the rendezvous is this host's name and resolves to a loopback address, listen uses all
// addresses: the coordinator replaces the unspecified address (reachable).
func listen(local net.Addr, rendezvous, network string, ports PortRange) (net.Listener, error) {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("%v is not a TCP address", local)
	}
	at := net.TCPAddr{IP: tcp.IP, Zone: tcp.Zone}
	if network != "" {
		ip, err := addressOf(network, tcp.IP)
		if err != nil {
			return nil, setting.Errorf("network.interface", "%w", err)
		}
		at = net.TCPAddr{IP: ip}
	} else if host, _, err := net.SplitHostPort(rendezvous); err == nil && tcp.IP.IsLoopback() && isOwnName(host) {
		at = net.TCPAddr{}
	}
	if at.IP.IsLinkLocalUnicast() {
		return nil, fmt.Errorf("%v is a link-local address, valid on one link only: use another address of the coordinator's host as rendezvous, or set an interface", at.IP)
	}
	for at.Port = ports.First; at.Port <= ports.Last; at.Port++ { // a single pass with port 0, any, without a range
		l, err := net.ListenTCP("tcp", &at)
		if err == nil {
			connpeek.SpeakFirst(l) // before ranks are accepted: silent peers must not fill the queue
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || ports == (PortRange{}) {
			return nil, err
		}
	}
	return nil, setting.Errorf("network.port-range", "%v: all ports are in use on %v: want a range with at least as many free ones as ranks on this host", ports, at.IP)
}

// CheckInterface returns an error unless this host has the named network interface with an address
// usable by other hosts; "" means any. The error lists the existing interfaces.
func CheckInterface(network string) error {
	if network == "" {
		return nil
	}
	_, err := addressOf(network, nil)
	return err
}

// Listen opens the listener of a process that other processes of the job dial, at a common address.
// The host may be a name that the resolver cannot resolve yet: Listen then retries for within, and
// reports the retries in one line if report is set.
//
// A host's own name may resolve to a loopback address, such as 127.0.1.1 on Debian, unreachable
// from other hosts. Listen then listens on all addresses of this host and reports so: the process
// must admit only ticket holders. A host without the address's network is an immediate error.
func Listen(ctx context.Context, address string, within time.Duration, report func(line string)) (net.Listener, error) {
	if report == nil {
		report = func(string) {}
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	told := false
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		l, err := listenOnce(limited, address, report)
		switch {
		case err == nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !unknown(err):
			return nil, fmt.Errorf("listening on %s: %w", address, err)
		case noNetwork(err) != nil:
			return nil, fmt.Errorf("listening on %s: %w: %w", address, noNetwork(err), err)
		case !told:
			report(unknownYet(address, within))
			told = true
		}
		select {
		case <-time.After(pause):
		case <-limited.Done():
			if ctx.Err() == nil {
				return nil, fmt.Errorf("listening on %s: not known for %v: %w", address, within, err)
			}
		}
	}
}

func listenOnce(ctx context.Context, address string, report func(line string)) (net.Listener, error) {
	at := address
	if host, port, err := net.SplitHostPort(address); err == nil {
		switch ip := loopbackOf(ctx, host); {
		case ip != nil && loopbackDown():
			return nil, errLoopbackDown
		case ip != nil && isOwnName(host):
			at = net.JoinHostPort("", port)
			defer report(fmt.Sprintf("%s is %v on this host, which no other host reaches: listening on all addresses of this host", host, ip))
		case isOfName(ip):
			report(fmt.Sprintf("%v is a loopback address, as a host's own name may have in /etc/hosts: only processes of this host find this one", ip))
		}
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", at)
}

// unknown reports whether a name currently has no address.
func unknown(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && (dns.IsNotFound || dns.IsTimeout || dns.IsTemporary)
}

func unknownYet(address string, within time.Duration) string {
	return fmt.Sprintf("%s: the name does not resolve yet: trying for up to %v, because names of pods can be late", address, within)
}

// HostAddress returns this host's address for the job: of the named network interface, else
// loopback if all ranks are here, else of the host's name, the first interface, or loopback.
func HostAddress(network string, oneHost bool) (net.IP, error) {
	loopback := net.IPv4(127, 0, 0, 1)
	switch {
	case network != "":
		ip, err := addressOf(network, nil)
		if err != nil {
			return nil, setting.Errorf("network.interface", "%w", err)
		}
		return ip, nil
	case oneHost:
		return loopback, nil
	}
	var addrs []net.Addr
	if name, err := os.Hostname(); err == nil {
		limited, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		found, _ := net.DefaultResolver.LookupIP(limited, "ip", name) // otherwise the interfaces decide
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

// addressOf returns an interface's address: of like's family if possible, else the first.
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
	all, _ := net.Interfaces() // an error leaves no names to list
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// choose returns the first of addrs in like's family, else the first, without link-local ones.
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

// Package hostport parses addresses: HOST:PORT. All settings and Config fields use Split, with
// equal rules and error texts.
package hostport

import (
	"fmt"
	"net"
	"strconv"
)

// Split parses HOST:PORT with a numeric port from least to 65535: service names, such as "http",
// differ between hosts. HOST may be empty; callers must check if it is required. The error omits
// the address, for the caller to add.
func Split(address string, least int) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(text, 10, 16)
	if err != nil || bad != nil || int(n) < least {
		return "", 0, fmt.Errorf("want HOST:PORT with a port from %d to 65535", least)
	}
	return host, int(n), nil
}

// Loopback reports whether only this host can reach host: localhost, 127.0.0.0/8, or ::1. The empty
// host means all addresses, and is not loopback.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

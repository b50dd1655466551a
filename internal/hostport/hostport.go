// Package hostport reads addresses as people write them: HOST:PORT. Whatever takes one, a setting or a field of a Config, reads it here,
// so that all refuse the same and say it in the same words.
package hostport

import (
	"fmt"
	"net"
	"strconv"
)

// Split reads HOST:PORT with a port from least to 65535, a number: names of services, such as "http", differ between hosts. HOST may be
// empty; who cannot take that says so. The error does not have the address in it, so that who gives it can say whose it is.
func Split(address string, least int) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(text, 10, 16)
	if err != nil || bad != nil || int(n) < least {
		return "", 0, fmt.Errorf("want HOST:PORT with a port from %d to 65535", least)
	}
	return host, int(n), nil
}

// Loopback tells whether only this host reaches who listens at host: localhost, or an address of 127.0.0.0/8, or ::1. The empty host is
// all addresses, and so is not.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

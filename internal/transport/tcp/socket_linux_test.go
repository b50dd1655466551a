package tcp

import (
	"strings"

	"golang.org/x/sys/unix"
)

func (s *epollSocket) congestionControl() (string, error) {
	name, err := unix.GetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return strings.TrimRight(name, "\x00"), err
}

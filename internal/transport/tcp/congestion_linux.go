package tcp

import (
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckCongestionControl reports whether the kernel permits an algorithm to this process; "" is the
// default. The error lists the permitted algorithms.
func CheckCongestionControl(name string) error {
	if name == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	return congestionControl(fd, name)
}

// unpaced replaces a pacing default on connections within a host.
const unpaced = "reno"

// unpace replaces BBR, if the system default, on a connection within a host. BBR paces by timers at
// the estimated rate of the link; without a real link a large allreduce of two or four ranks takes
// 1.7 to 2.7 times as long. If the kernel refuses, the connection keeps its algorithm.
func unpace(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err == nil && paces(name) {
			_ = congestionControl(int(fd), unpaced)
		}
	})
}

// paces reports whether an algorithm is a version of BBR.
func paces(name string) bool { return strings.HasPrefix(name, "bbr") }

func setCongestionControl(c *net.TCPConn, name string) (err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if refused := raw.Control(func(fd uintptr) { err = congestionControl(int(fd), name) }); refused != nil {
		return refused
	}
	return err
}

func congestionControl(fd int, name string) error {
	err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	switch err {
	case nil:
		return nil
	case unix.ENOENT:
		return fmt.Errorf("%q: the kernel has no such algorithm; %s", name, offered("available"))
	case unix.EPERM:
		return fmt.Errorf("%q: this process may not use it; %s", name, offered("allowed"))
	}
	return fmt.Errorf("%q: %w", name, os.NewSyscallError("setsockopt", err))
}

// offered lists the algorithms that the kernel reports as available or allowed.
func offered(what string) string {
	file := "net.ipv4.tcp_" + what + "_congestion_control"
	text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(file, ".", "/"))
	if err != nil {
		return "see " + file
	}
	return fmt.Sprintf("%s: %s (%s)", what, strings.Join(strings.Fields(string(text)), ", "), file)
}

//go:build !linux

package tcp

import (
	"fmt"
	"net"
	"runtime"
)

// CheckCongestionControl accepts only the default: only Linux supports a choice per socket.
func CheckCongestionControl(name string) error {
	if name == "" {
		return nil
	}
	return fmt.Errorf("%q: only Linux lets a connection choose, this is %s", name, runtime.GOOS)
}

// unpace has no effect: only Linux supports a choice per socket.
func unpace(*net.TCPConn) {}

func setCongestionControl(_ *net.TCPConn, name string) error { return CheckCongestionControl(name) }

//go:build !linux

package tcp

import (
	"fmt"
	"net"
	"runtime"
)

// CheckCongestionControl refuses all but the default: only Linux lets a socket
// choose.
func CheckCongestionControl(name string) error {
	if name == "" {
		return nil
	}
	return fmt.Errorf("%q: only Linux lets a connection choose, this is %s", name, runtime.GOOS)
}

// unpace does nothing: only Linux lets a socket choose.
func unpace(*net.TCPConn) {}

func setCongestionControl(_ *net.TCPConn, name string) error { return CheckCongestionControl(name) }

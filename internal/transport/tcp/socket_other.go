//go:build !linux

package tcp

import (
	"net"
	"runtime"
)

// openSocket takes ownership of conn. Only Linux avoids a wake-up of the poller per arrival.
func openSocket(conn *net.TCPConn) (socket, error) { return newNetSocket(conn) }

// yieldCore yields to another goroutine; Go has no call for yielding to processes.
func yieldCore() { runtime.Gosched() }

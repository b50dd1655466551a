//go:build !linux

package tcp

import (
	"net"
	"runtime"
)

// openSocket takes conn over. Elsewhere than on Linux there is no epoll whose
// instances could be nested: the runtime's poller wakes for every arrival.
func openSocket(conn *net.TCPConn) (socket, error) { return newNetSocket(conn) }

// yieldCore lets another goroutine run; of processes Go says nothing.
func yieldCore() { runtime.Gosched() }

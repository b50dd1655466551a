package connpeek

import (
	"bytes"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// quiet is the time in seconds until a silent connection is accepted nevertheless: the kernel
// retries after 1 and 3 s and gives up at 7 s. Handshakes have longer limits.
const quiet = 7

func speakFirst(l net.Listener) {
	tcp, ok := l.(*net.TCPListener)
	if !ok || !cookies() {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // if unsupported, silent connections are accepted as before
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, quiet)
	})
}

// cookies reports whether the kernel uses SYN cookies: without them silent connections fill the
// queue.
func cookies() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_syncookies")
	return err == nil && !bytes.Equal(bytes.TrimSpace(text), []byte("0"))
}

func peek(conn net.Conn, p []byte) (n int, gone bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Read(func(fd uintptr) bool {
		var err error
		n, _, err = unix.Recvfrom(int(fd), p, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		n, gone = max(n, 0), err == nil && n == 0
		return true
	})
	return n, gone
}

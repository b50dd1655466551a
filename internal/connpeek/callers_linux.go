package connpeek

import (
	"bytes"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// quiet is how long a connection may say nothing before it is accepted all the same, in seconds: the kernel asks again after 1 and 3 and gives up
// at 7. Handshakes have longer.
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
	_ = raw.Control(func(fd uintptr) { // a kernel that refuses lets silent ones in, as before
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, quiet)
	})
}

// cookies says whether the kernel answers who connects when its queue is full: there those wait who have said nothing.
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

package tcp

import (
	"net"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// keepAlive finds a vanished host in 10 s: five probes a second apart, after
// five seconds of silence.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}

// tune sets the options of a connection. None of them is needed for
// correctness, so faults are left for the first read or write to show.
func tune(conn net.Conn, bufferBytes int) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	c.SetNoDelay(true)
	c.SetKeepAliveConfig(keepAlive)
	if bufferBytes > 0 {
		c.SetReadBuffer(bufferBytes)
		c.SetWriteBuffer(bufferBytes)
	}
}

// cut closes a connection with a reset, as the kernel does for a process that
// dies with unread data.
func cut(link *transport.Link) {
	if c, ok := link.Conn().(*net.TCPConn); ok {
		c.SetLinger(0)
	}
	link.Close()
}

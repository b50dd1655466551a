package tcp

import (
	"net"
	"time"
)

// keepAlive finds a vanished host in 10 s: five probes a second apart, after
// five seconds of silence.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}

// tune sets the options of a connection. None of them is needed for
// correctness, so faults are left for the first read or write to show.
func tune(c *net.TCPConn, bufferBytes int) {
	c.SetNoDelay(true)
	c.SetKeepAliveConfig(keepAlive)
	if bufferBytes > 0 {
		c.SetReadBuffer(bufferBytes)
		c.SetWriteBuffer(bufferBytes)
	}
}

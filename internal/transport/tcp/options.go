package tcp

import (
	"net"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// keepAlive finds a vanished host in 10 s: five probes a second apart, after
// five seconds of silence.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}

// tune sets the options of a connection. Most are not needed for correctness:
// their faults are left for the first read or write to show.
func tune(c *net.TCPConn, cfg Config) error {
	c.SetNoDelay(true)
	c.SetKeepAliveConfig(keepAlive)
	if cfg.SocketBufferBytes > 0 {
		c.SetReadBuffer(cfg.SocketBufferBytes)
		c.SetWriteBuffer(cfg.SocketBufferBytes)
	}
	if cfg.CongestionControl == "" {
		if withinHost(c) {
			unpace(c)
		}
		return nil
	}
	return setCongestionControl(c, cfg.CongestionControl)
}

// withinHost tells whether both ends are of one host.
func withinHost(c *net.TCPConn) bool {
	near, ok := c.LocalAddr().(*net.TCPAddr)
	far, same := c.RemoteAddr().(*net.TCPAddr)
	return ok && same && transport.SameHost(near.IP, far.IP)
}

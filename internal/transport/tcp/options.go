package tcp

import (
	"net"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// keepAlive detects a lost host in 10 s: five probes at intervals of a second, after five seconds
// of silence.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}

// tune sets the options of a connection. Most options are not needed for correctness: the first
// read or write reports errors.
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

// withinHost reports whether both ends are on one host.
func withinHost(c *net.TCPConn) bool {
	near, ok := c.LocalAddr().(*net.TCPAddr)
	far, same := c.RemoteAddr().(*net.TCPAddr)
	return ok && same && transport.SameHost(near.IP, far.IP)
}

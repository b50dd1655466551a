package tcp

import (
	"net"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

// keepAlive detects a lost host in 10 s: after 5 s of silence five probes, one each second.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}

// tune sets a connection's options. It returns an error for CongestionControl only.
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

func withinHost(c *net.TCPConn) bool {
	near, ok := c.LocalAddr().(*net.TCPAddr)
	far, same := c.RemoteAddr().(*net.TCPAddr)
	return ok && same && transport.SameHost(near.IP, far.IP)
}

package tcp

import (
	"net"
	"testing"

	"github.com/ringo-ml/ringo/transport"
	"github.com/ringo-ml/ringo/transport/meshtest"
)

func asMeshes(meshes []*Mesh) []transport.Mesh {
	out := make([]transport.Mesh, len(meshes))
	for i, m := range meshes {
		out[i] = m
	}
	return out
}

func TestSuite(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"polled":    func(c *Config) { c.LocalRanks = 1 },
		"crowded":   func(c *Config) { c.LocalRanks = c.Size },
		"streams":   func(c *Config) { c.Streams = 3 },
		"checksums": func(c *Config) { c.Streams, c.Checksum = 2, true },
		"runtime's poller": func(c *Config) {
			c.open = func(conn *net.TCPConn) (socket, error) { return newNetSocket(conn) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			meshtest.Run(t, func(t testing.TB, n int) []transport.Mesh { return asMeshes(formed(t, n, change)) })
		})
	}
}

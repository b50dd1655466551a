package tcp

import (
	"net"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/meshtest"
	"github.com/ringo-ml/ringo/transport"
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
		"polled":  func(c *Config) { c.LocalRanks = 1 },
		"crowded": func(c *Config) { c.LocalRanks = c.Size },
		"streams": func(c *Config) { c.Streams = 3 },
		"TLS":     func(c *Config) { c.TLS.Mode, c.Streams = transport.TLSOn, 2 },
		"TLS over the runtime's poller": func(c *Config) {
			c.TLS.Mode = transport.TLSOn
			c.open = func(conn *net.TCPConn) (socket, error) { return newNetSocket(conn) }
		},
		"checksums": func(c *Config) { c.Streams, c.Checksum = 2, true },
		"runtime's poller": func(c *Config) {
			c.open = func(conn *net.TCPConn) (socket, error) { return newNetSocket(conn) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			most := 0.0
			if strings.HasPrefix(name, "TLS") {
				most = 6 // crypto/tls allocates twice for each record, of which there are three
			}
			meshtest.RunAllowing(t, func(t testing.TB, n int) []transport.Mesh { return asMeshes(formed(t, n, change)) }, most)
		})
	}
}

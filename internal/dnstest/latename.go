// Package dnstest is a DNS server with names that appear late, as those of pods do, for tests and
// measurements.
package dnstest

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync/atomic"
)

// Server answers DNS queries by UDP. It has no names until Know is called, and then 127.0.0.1 for
// all.
type Server struct {
	conn  net.PacketConn
	known atomic.Bool
}

// Listen starts a server on a port of loopback.
func Listen() (*Server, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{conn: conn}
	go s.serve()
	return s, nil
}

// Address returns its HOST:PORT.
func (s *Server) Address() string { return s.conn.LocalAddr().String() }

// Know adds all names.
func (s *Server) Know() { s.known.Store(true) }

// Close stops the server.
func (s *Server) Close() error { return s.conn.Close() }

func (s *Server) serve() {
	for b := make([]byte, 1500); ; {
		n, from, err := s.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if out := answer(b[:n], s.known.Load()); out != nil {
			_, _ = s.conn.WriteTo(out, from) // clients retry
		}
	}
}

// answer returns the response to a query (RFC 1035): no such name or, for an IPv4 address,
// 127.0.0.1; nil for an invalid query.
func answer(question []byte, known bool) []byte {
	end := 12
	for end < len(question) && question[end] != 0 {
		end += 1 + int(question[end])
	}
	if end+5 > len(question) {
		return nil
	}
	kind := binary.BigEndian.Uint16(question[end+1:])
	out := slices.Clone(question[:end+5])
	binary.BigEndian.PutUint16(out[2:], 0x8180) // response without an error
	copy(out[6:], []byte{0, 0, 0, 0, 0, 0})
	switch {
	case !known:
		out[3] |= 3
	case kind == 1:
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1)
	}
	return out
}

// Resolver returns a resolver that queries only the server at address.
func Resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", address)
	}}
}

// Package dnstest is a server of names that come late, as those of pods do, for tests and
// measurements.
package dnstest

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync/atomic"
)

// Server answers questions of names by UDP. It knows no name until Know is called, and then says that each is 127.0.0.1.
type Server struct {
	conn  net.PacketConn
	known atomic.Bool
}

// Listen starts one on a port of loopback.
func Listen() (*Server, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{conn: conn}
	go s.serve()
	return s, nil
}

// Address is its HOST:PORT.
func (s *Server) Address() string { return s.conn.LocalAddr().String() }

// Know makes it know all names.
func (s *Server) Know() { s.known.Store(true) }

// Close ends it.
func (s *Server) Close() error { return s.conn.Close() }

func (s *Server) serve() {
	for b := make([]byte, 1500); ; {
		n, from, err := s.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if out := answer(b[:n], s.known.Load()); out != nil {
			_, _ = s.conn.WriteTo(out, from) // who has asked asks again
		}
	}
}

// answer is what is said to a question (RFC 1035): no such name, or, of an address of version 4, 127.0.0.1; nil where it is none.
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
	binary.BigEndian.PutUint16(out[2:], 0x8180) // an answer, and all is well
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

// Resolver asks the server at address, and nobody else.
func Resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", address)
	}}
}

package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Credentials authenticate one end of a connection: a Ticket, or the result of Ticket.Under. Both
// ends must have the same ticket.
type Credentials interface {
	secrets() *guarded
}

func (t Ticket) secrets() *guarded {
	return &guarded{ticket: t, ticketCert: sync.OnceValues(t.certificate)}
}

// Under returns the ticket with the TLS settings cfg. A ticket without Under has the zero TLS
// settings. Reuse the result: it caches the certificate derived from the ticket.
func (t Ticket) Under(cfg TLS) Credentials {
	g := t.secrets()
	g.tls = cfg
	return g
}

type guarded struct {
	ticket     Ticket
	tls        TLS
	ticketCert func() (tls.Certificate, error) // derived from the ticket, once
}

func (g *guarded) secrets() *guarded { return g }

// Values of TLS.Mode.
const (
	TLSAuto = "auto"
	TLSOn   = "on"
	TLSOff  = "off"
)

// TLS selects the encrypted connections and their certificates. With and without TLS both ends must
// prove that they have the ticket. On a TLS connection the proof includes a secret of the
// connection, so that a man in the middle fails; a certificate without the ticket is refused. The
// settings must be equal on both ends. The version is TLS 1.3.
type TLS struct {
	// Mode is TLSAuto: connections between hosts; TLSOn: all TCP connections; or TLSOff: none.
	// Empty means TLSAuto.
	Mode string
	// CA is a PEM file with the authorities for the peer's certificate; Cert and Key are this end's
	// PEM files. The files are read for each connection, so that new files need no restart. If all
	// three are empty, both ends derive a certificate from the ticket.
	CA, Cert, Key string
}

// Validate returns all errors of the configuration, including unreadable files.
func (c TLS) Validate() error {
	var faults []error
	switch c.Mode {
	case "", TLSAuto, TLSOn, TLSOff:
	default:
		faults = append(faults, setting.Errorf("network.tls", "%q: want %s, %s or %s", c.Mode, TLSAuto, TLSOn, TLSOff))
	}
	given := 0
	for _, f := range []string{c.CA, c.Cert, c.Key} {
		if f != "" {
			given++
		}
	}
	switch {
	case given == 0:
	case given < 3:
		faults = append(faults, setting.Errorf("network.tls", "files %q,%q,%q: give all three, or none for certificates that are made of the ticket", c.CA, c.Cert, c.Key))
	case c.Mode == TLSOff:
		faults = append(faults, setting.Errorf("network.tls", "off, with certificates in %s: nothing would use them", c.Cert))
	default:
		if _, err := c.files(); err != nil {
			faults = append(faults, setting.Errorf("network.tls", "%w", err))
		}
	}
	return errors.Join(faults...)
}

// applies reports whether to encrypt a connection. Both ends decide equally, because both see the
// same two addresses, or, if a router translates addresses (NAT), two of different hosts.
func (c TLS) applies(conn net.Conn) bool {
	near, ok := conn.LocalAddr().(*net.TCPAddr)
	far, same := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !same || c.Mode == TLSOff {
		return false
	}
	return c.Mode == TLSOn || !SameHost(near.IP, far.IP)
}

// SameHost reports whether both addresses of a connection belong to one host. For a local address
// the kernel uses the same address as the source, or another loopback address.
func SameHost(near, far net.IP) bool {
	return near.Equal(far) || near.IsLoopback() && far.IsLoopback()
}

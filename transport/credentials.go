package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Credentials are what an end of a connection proves itself with and what it asks of the connection: a Ticket, or one Under a
// TLS. Both ends must hold the same ticket.
type Credentials interface {
	secrets() *guarded
}

func (t Ticket) secrets() *guarded {
	return &guarded{ticket: t, ticketCert: sync.OnceValues(t.certificate)}
}

// Under returns the ticket with TLS as cfg says. A ticket alone is one under the zero TLS. Who has many connections keeps what this returns,
// and so a certificate that is made of the ticket.
func (t Ticket) Under(cfg TLS) Credentials {
	g := t.secrets()
	g.tls = cfg
	return g
}

type guarded struct {
	ticket     Ticket
	tls        TLS
	ticketCert func() (tls.Certificate, error) // the ticket's, made once
}

func (g *guarded) secrets() *guarded { return g }

// Values of TLS.Mode.
const (
	TLSAuto = "auto"
	TLSOn   = "on"
	TLSOff  = "off"
)

// TLS says which connections are encrypted and by whose certificates. Whatever it says, both ends also prove that they hold the
// ticket, and under TLS that proof is bound to the connection: who holds a certificate but no ticket is refused, and nobody
// can stand in between. It must be the same on both ends. The version is TLS 1.3.
type TLS struct {
	// Mode is TLSAuto: connections between hosts, not those within one; TLSOn: all over TCP; or TLSOff: none. Empty: TLSAuto.
	Mode string
	// CA is a file of certificates in PEM, of whom the other end's must come; Cert and Key are this end's, in PEM. They are read
	// again for each connection, so that renewed ones need no new start. All three empty: a certificate that the processes of a job
	// make of the ticket.
	CA, Cert, Key string
}

// Validate returns everything that is wrong with the configuration, files that cannot be read included.
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
		faults = append(faults, setting.Errorf("network.tls-files", "%q,%q,%q: give all three, or none for certificates that are made of the ticket", c.CA, c.Cert, c.Key))
	case c.Mode == TLSOff:
		faults = append(faults, setting.Errorf("network.tls", "off, with certificates in %s: nothing would use them", c.Cert))
	default:
		if _, err := c.files(); err != nil {
			faults = append(faults, setting.Errorf("network.tls-files", "%w", err))
		}
	}
	return errors.Join(faults...)
}

// applies says whether a connection is to be encrypted. Both ends see the same pair of addresses, unless something between
// them translates addresses: then neither sees its own.
func (c TLS) applies(conn net.Conn) bool {
	near, ok := conn.LocalAddr().(*net.TCPAddr)
	far, same := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !same || c.Mode == TLSOff {
		return false
	}
	return c.Mode == TLSOn || !SameHost(near.IP, far.IP)
}

// SameHost tells whether the addresses of a connection's two ends are of one host: the kernel gives a packet that is sent to an
// address of its own that same address, or another one of loopback.
func SameHost(near, far net.IP) bool {
	return near.Equal(far) || near.IsLoopback() && far.IsLoopback()
}

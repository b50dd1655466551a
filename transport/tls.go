package transport

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
)

// Constants that both ends of a TLS connection must share.
const (
	certificateLabel = "ringo tls certificate 1" // derives a job certificate's key from the ticket
	nameLabel        = "ringo tls name 1"        // derives the server name from the ticket
	bindingLabel     = "EXPORTER-ringo ticket 1" // binds the ticket's proof to the connection
	tlsRecord        = 0x16                      // first byte of a TLS connection: a handshake record
)

func (g *guarded) conf() (*tls.Config, error) {
	name, err := g.ticket.clientName()
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{
		ServerName: name, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { return nil, sameName(h.ServerName, name) },
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, // checked by VerifyConnection
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
	if g.tls.Cert == "" {
		own, err := g.ticketCert()
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{own}
		conf.VerifyConnection = func(s tls.ConnectionState) error { return sameKey(s, own.PrivateKey.(ed25519.PrivateKey)) }
		return conf, nil
	}
	f, err := g.tls.files()
	if err != nil {
		return nil, err
	}
	conf.Certificates = []tls.Certificate{f.certificate}
	conf.VerifyConnection = f.verify
	return conf, nil
}

// clientName returns the server name that clients of the ticket's job request. The name is not
// encrypted: an observer can see which connections belong to one job, but not the ticket. A server
// refuses other names before any cryptography; the name alone proves nothing.
func (t Ticket) clientName() (string, error) {
	b, err := hkdf.Key(sha256.New, t, nil, nameLabel, 16)
	return hex.EncodeToString(b), err
}

func sameName(asked, name string) error {
	if asked == name {
		return nil
	}
	return fmt.Errorf("%w: the other end belongs to another job, was given another ticket, or is no ringo process", ErrTicket)
}

// certificate derives a certificate from the ticket. Only processes with the ticket have its key.
func (t Ticket) certificate() (tls.Certificate, error) {
	seed, err := hkdf.Key(sha256.New, t, nil, certificateLabel, ed25519.SeedSize)
	if err != nil {
		return tls.Certificate{}, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ringo"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), // valid until the job ends, independent of clocks
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// sameKey accepts a peer that has the key derived from the ticket, as its handshake proves.
func sameKey(s tls.ConnectionState, key ed25519.PrivateKey) error {
	if theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); ok && theirs.Equal(key.Public()) {
		return nil
	}
	return fmt.Errorf("%w: one end belongs to another job or was given a wrong ticket, or has certificates from files and the other end has not", ErrTicket)
}

// ErrCertificate means that either end refused a certificate.
var ErrCertificate = errors.New("certificate refused")

// mostPEM is the maximum size of a certificate file, in bytes.
const mostPEM = 1 << 20

type certificates struct {
	certificate tls.Certificate
	roots       *x509.CertPool
	ca          string
}

func (c TLS) files() (f certificates, err error) {
	f.ca = c.CA
	cert, err := pathname.Read(c.Cert, mostPEM)
	if err != nil {
		return f, err
	}
	key, err := pathname.Read(c.Key, mostPEM)
	if err != nil {
		return f, err
	}
	if f.certificate, err = tls.X509KeyPair(cert, key); err != nil {
		return f, fmt.Errorf("%s with the key %s: %w", c.Cert, c.Key, err)
	}
	ca, err := pathname.Read(c.CA, mostPEM)
	if err != nil {
		return f, err
	}
	f.roots = x509.NewCertPool()
	if !f.roots.AppendCertsFromPEM(ca) {
		return f, fmt.Errorf("%s: no certificate in PEM", c.CA)
	}
	return f, nil
}

// verify accepts a currently valid certificate of the authority, for any usage and any host name,
// because the ticket determines membership.
func (f certificates) verify(s tls.ConnectionState) error {
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: f.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("%w: the other end's, of %q, against %s: %w", ErrCertificate, printable(s.PeerCertificates[0].Subject.CommonName), f.ca, err)
	}
	return nil
}

// encrypt starts TLS on the connection, and makes the proof of the ticket depend on a secret of
// this TLS connection.
func (c *handshaker) encrypt(end func(*SecureConn, *tls.Config)) error {
	conf, err := c.credentials.conf()
	if err != nil {
		return err
	}
	secure := &SecureConn{lower: below{conn: c.link.conn, buffered: bytes.Clone(c.link.in[c.link.from:c.link.to])}}
	c.link.from, c.link.to = 0, 0
	end(secure, conf)
	c.link.conn, c.link.secure = secure, secure
	if err := secure.HandshakeContext(c.ctx); err != nil {
		return err
	}
	state := secure.ConnectionState()
	c.binding, err = state.ExportKeyingMaterial(bindingLabel, nil, sha256.Size)
	return err
}

func asClient(s *SecureConn, conf *tls.Config) { s.Conn = tls.Client(&s.lower, conf) }
func asServer(s *SecureConn, conf *tls.Config) { s.Conn = tls.Server(&s.lower, conf) }

// explainTLS maps errors and alerts of a TLS handshake to errors for the user.
func (c *handshaker) explainTLS(err error) error {
	var record tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(err, &record):
		return fmt.Errorf("%w: no TLS: %w", ErrNotRingo, err)
	case !errors.As(err, &alert) || alert.Op != "remote error":
		return err
	}
	switch alert.Err.Error() {
	case alertNoTLS.Error():
		return fmt.Errorf("%w: this end encrypts the connection, the other one does not: give both the same network.tls", ErrRefused)
	case alertInternal.Error(): // sent by sameName
		return fmt.Errorf("%w: the other end belongs to another job or was given another ticket", ErrTicket)
	case alertBadCertificate.Error():
		if c.credentials.tls.Cert == "" {
			return fmt.Errorf("%w: the other end belongs to another job, was given another ticket, or has certificates from files", ErrTicket)
		}
		return fmt.Errorf("%w by the other end: %w", ErrCertificate, err)
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

// Alert numbers of TLS 1.3, from RFC 8446, section 6.2.
const (
	alertBadCertificate tls.AlertError = 42
	alertInternal       tls.AlertError = 80
	alertNoTLS          tls.AlertError = 70 // protocol_version: ringo never sends this alert for another reason
)

// noTLS is a TLS alert, the answer to a peer that starts TLS although this end has no TLS.
var noTLS = []byte{21, 3, 3, 0, 2, 2, byte(alertNoTLS)}

// guard determines whether the peer uses TLS, and returns an error if this end does not agree.
func (c *handshaker) guard() error {
	if err := c.listen(); err != nil {
		return err
	}
	encrypts, wanted := c.link.in[c.link.from] == tlsRecord, c.credentials.tls.applies(c.link.conn)
	switch {
	case encrypts && wanted:
		return c.encrypt(asServer)
	case encrypts:
		c.link.conn.Write(noTLS)
		c.drain()
		return fmt.Errorf("%w: the other end begins TLS, and this one does not encrypt the connection: if it is ringo, give both the same network.tls", ErrNotRingo)
	case !wanted:
		return nil
	}
	if err := c.readPreface(); err != nil {
		return err
	}
	if err := c.writePreface(); err != nil {
		return err
	}
	return c.refuse(fmt.Errorf("%w: the end that was called encrypts connections, the caller does not: give both the same network.tls", ErrRefused))
}

// listen waits for the peer's first byte before allocating the link: a silent peer uses no memory.
func (c *handshaker) listen() error {
	var first [1]byte
	for n := 0; n == 0; {
		var err error
		if n, err = c.conn.Read(first[:]); err != nil && n == 0 {
			return err
		}
	}
	c.link = newLink(c.conn)
	c.link.to = copy(c.link.in[:], first[:])
	return nil
}

package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
)

// authority signs certificates for tests.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("ca", nil, nil, time.Hour)
	return a
}

// sign writes NAME.pem and NAME.key, signed by parent or by itself, valid from an hour ago for so long from now.
func (a *authority) sign(name string, parent *x509.Certificate, by *ecdsa.PrivateKey, valid time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: parent == nil, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	must(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.t, err)
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", secret)
	cert, err := x509.ParseCertificate(der)
	must(a.t, err)
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	must(a.t, os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// under is a TLS with a certificate of this authority.
func (a *authority) under(name string, valid time.Duration) TLS {
	a.sign(name, a.cert, a.key, valid)
	path := func(file string) string { return filepath.Join(a.dir, file) }
	return TLS{Mode: TLSOn, CA: path("ca.pem"), Cert: path(name + ".pem"), Key: path(name + ".key")}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Two ends agree on TLS and on each other, or both say why not.
func TestTLSHandshake(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	ticket := NewTicket()
	on, off := TLS{Mode: TLSOn}, TLS{Mode: TLSOff}
	good := ours.under("rank", time.Hour)
	for _, c := range []struct {
		name             string
		dials, accepts   Credentials
		dialer, accepter error
		text             string // in one of the errors
	}{
		{"ticket", ticket.Under(on), ticket.Under(on), nil, nil, ""},
		{"off", ticket.Under(off), ticket, nil, nil, ""},
		{"files", ticket.Under(good), ticket.Under(ours.under("server", time.Hour)), nil, nil, ""},
		{"other ticket", ticket.Under(on), NewTicket().Under(on), ErrTicket, ErrTicket, "another job"},
		{"other ticket, same authority", ticket.Under(good), NewTicket().Under(good), ErrTicket, ErrTicket, ""},
		{"other authority", ticket.Under(good), ticket.Under(others.under("stranger", time.Hour)), ErrCertificate, ErrCertificate, "ca.pem"},
		{"expired", ticket.Under(good), ticket.Under(ours.under("old", -time.Minute)), ErrCertificate, ErrCertificate, "expired"},
		{"expired caller", ticket.Under(ours.under("older", -time.Minute)), ticket.Under(good), ErrCertificate, ErrCertificate, "expired"},
		{"files and ticket", ticket.Under(good), ticket.Under(on), ErrCertificate, ErrTicket, ""},
		{"on and off", ticket.Under(on), ticket.Under(off), ErrRefused, ErrNotRingo, "network.tls"},
		{"off and on", ticket.Under(off), ticket.Under(on), ErrRefused, ErrRefused, "network.tls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := listen(t)
			mine := Hello{Version: "1", Purpose: MeshLink, Rank: 1, WorldSize: 2}
			answer := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					answer <- err
					return
				}
				link, _, err := ServerHandshake(context.Background(), conn, c.accepts, mine, nil)
				if err == nil {
					defer link.Close()
					h, err := link.ReadHeader()
					p := make([]byte, h.Length)
					if err == nil {
						_, err = link.ReadPayload(p)
					}
					if err == nil {
						err = link.WriteFrame(h, p, time.Minute)
					}
					answer <- err
					return
				}
				answer <- err
			}()
			link, _, err := Dial(context.Background(), l.Addr().String(), c.dials, mine)
			if err == nil {
				defer link.Close()
				echo(t, link)
			}
			other := <-answer
			if !errors.Is(err, c.dialer) || !errors.Is(other, c.accepter) {
				t.Fatalf("the dialer: %v\nthe acceptor: %v\nwant %v and %v", err, other, c.dialer, c.accepter)
			}
			if c.text != "" && !strings.Contains(err.Error()+other.Error(), c.text) {
				t.Errorf("neither says %q:\n%v\n%v", c.text, err, other)
			}
		})
	}
}

// echo has the other end send a frame of several records back.
func echo(t *testing.T, link *Link) {
	t.Helper()
	payload := make([]byte, 1<<20)
	rand.Read(payload)
	go link.WriteFrame(wire.Header{Type: wire.Data}, payload, time.Minute)
	h, err := link.ReadHeader()
	must(t, err)
	got := make([]byte, h.Length)
	_, err = link.ReadPayload(got)
	must(t, err)
	if string(got) != string(payload) {
		t.Error("the frame came back changed")
	}
}

// Who stands in between, with a certificate that both ends accept, cannot have the ticket's proof for another connection. It
// holds invariant[ticket-first].
func TestTLSBindsTheTicket(t *testing.T) {
	ours := newAuthority(t)
	good := ours.under("rank", time.Hour)
	ticket := NewTicket()
	server, between := listen(t), listen(t)
	answer := make(chan error, 1)
	go func() {
		conn, err := server.Accept()
		if err == nil {
			_, _, err = ServerHandshake(context.Background(), conn, ticket.Under(good), Hello{Version: "1"}, nil)
		}
		answer <- err
	}()
	go func() {
		conf, err := ticket.Under(good).secrets().conf()
		must(t, err)
		near, err := between.Accept()
		must(t, err)
		far, err := net.Dial("tcp", server.Addr().String())
		must(t, err)
		a, b := tls.Server(near, conf), tls.Client(far, conf)
		go func() { io.Copy(a, b); a.Close() }()
		io.Copy(b, a)
		b.Close()
	}()
	_, _, err := Dial(context.Background(), between.Addr().String(), ticket.Under(good), Hello{Version: "1"})
	if !errors.Is(err, ErrTicket) {
		t.Errorf("the dialer: %v", err)
	}
	if err := <-answer; !errors.Is(err, ErrTicket) {
		t.Errorf("the acceptor: %v", err)
	}
}

// By itself a ticket encrypts between hosts only.
func TestTLSApplies(t *testing.T) {
	for _, c := range []struct {
		near, far string
		mode      string
		want      bool
	}{
		{"127.0.0.1", "127.0.0.1", "", false}, {"10.0.0.1", "10.0.0.1", TLSAuto, false}, {"10.0.0.1", "10.0.0.2", "", true},
		{"10.0.0.1", "10.0.0.2", TLSOff, false}, {"127.0.0.1", "127.0.0.1", TLSOn, true}, {"::1", "::1", "", false},
	} {
		conn := placed{near: c.near, far: c.far}
		if got := (TLS{Mode: c.mode}).applies(conn); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if (TLS{Mode: TLSOn}).applies(a) {
		t.Error("what is no TCP connection would be encrypted")
	}
}

type placed struct {
	net.Conn
	near, far string
}

func (p placed) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.ParseIP(p.near)} }
func (p placed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(p.far)} }

// What is wrong with the settings is said before anything connects.
func TestTLSValidate(t *testing.T) {
	good := newAuthority(t).under("rank", time.Hour)
	for _, c := range []struct {
		change func(*TLS)
		want   string
	}{
		{func(c *TLS) {}, ""},
		{func(c *TLS) { *c = TLS{} }, ""},
		{func(c *TLS) { c.Mode = "maybe" }, "maybe"},
		{func(c *TLS) { c.Mode = TLSOff }, "nothing would use them"},
		{func(c *TLS) { c.Key = "" }, "all three"},
		{func(c *TLS) { c.Key = c.CA }, "ca.pem"},
		{func(c *TLS) { c.CA = c.Key }, "no certificate"},
		{func(c *TLS) { c.Cert += "x" }, "rank.pemx"},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", cfg, err, c.want)
		}
	}
}

// A certificate that was renewed is used for the next connection.
func TestTLSRenewed(t *testing.T) {
	ours := newAuthority(t)
	cfg := ours.under("rank", -time.Minute)
	ticket := NewTicket()
	meetOnce := func() error {
		l := listen(t)
		answer := acceptOne(t, l, ticket.Under(cfg), Hello{Version: "1"}, nil)
		link, _, err := Dial(context.Background(), l.Addr().String(), ticket.Under(cfg), Hello{Version: "1"})
		if err == nil {
			link.Close()
		}
		if a := <-answer; a.link != nil {
			a.link.Close()
		}
		return err
	}
	if err := meetOnce(); !errors.Is(err, ErrCertificate) {
		t.Errorf("expired: got %v", err)
	}
	ours.under("rank", time.Hour)
	must(t, meetOnce())
}

// Who begins TLS without the name that the ticket gives is refused before this end has computed or shown anything.
func TestTLSWithoutTheName(t *testing.T) {
	l, ticket := listen(t), NewTicket()
	answer := acceptOne(t, l, ticket.Under(TLS{Mode: TLSOn}), Hello{Version: "1"}, nil)
	conn, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer conn.Close()
	other, err := NewTicket().clientName()
	must(t, err)
	shown := false
	stranger := tls.Client(conn, &tls.Config{ServerName: other, InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { shown = true; return nil }})
	var alert tls.AlertError
	if err := stranger.Handshake(); !errors.As(err, &alert) && !strings.Contains(err.Error(), alertInternal.Error()) || shown {
		t.Errorf("the stranger: %v; it has seen a certificate: %v", err, shown)
	}
	if a := <-answer; !errors.Is(a.err, ErrTicket) {
		t.Errorf("the acceptor: %v", a.err)
	}
}

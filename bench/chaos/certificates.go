package main

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"math/rand/v2"
	"net"
	"time"
)

// strangeTLS begins TLS on a connection with a certificate that nobody has asked for: signed by itself, and valid, expired or
// not valid yet. It returns when the port has refused it, or has not answered in time.
func strangeTLS(conn net.Conn, rng *rand.Rand) error {
	seed := (&trap{rng: rng}).bytes(ed25519.SeedSize)
	key := ed25519.NewKeyFromSeed(seed)
	begin := time.Now().AddDate(rng.IntN(3)-1, 0, -1)
	form := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ringo"}, NotBefore: begin, NotAfter: begin.AddDate(0, 6, 0)}
	der, err := x509.CreateCertificate(nil, form, form, key.Public(), key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	end := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err := end.HandshakeContext(ctx); err != nil {
		return err
	}
	conn.SetReadDeadline(time.Now().Add(time.Second))
	_, err = end.Read(make([]byte, 1)) // of TLS 1.3 the client's certificate is refused behind the handshake
	return err
}

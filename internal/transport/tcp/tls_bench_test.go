package tcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/transport"
)

func underTLS(c *Config) { c.TLS.Mode = transport.TLSOn }

func BenchmarkPingPongTLS(b *testing.B) { pingPong(b, underTLS) }

// BenchmarkExchangeTLS is BenchmarkExchange under TLS, whose limit is BenchmarkBareTLS.
func BenchmarkExchangeTLS(b *testing.B) { ringOfTwo(b, underTLS) }

// BenchmarkBareTLS is the same by crypto/tls alone: both ends write and read at once.
func BenchmarkBareTLS(b *testing.B) {
	for _, size := range []int{256 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			near, far := bareTLS(b)
			step := func(c net.Conn, out, in []byte) error {
				sent := make(chan error, 1)
				go func() {
					_, err := c.Write(out)
					sent <- err
				}()
				if _, err := io.ReadFull(c, in); err != nil {
					return err
				}
				return <-sent
			}
			go func() {
				out, in := make([]byte, size), make([]byte, size)
				for step(far, out, in) == nil {
				}
			}()
			out, in := make([]byte, size), make([]byte, size)
			b.SetBytes(int64(size)) // per direction
			for b.Loop() {
				if err := step(near, out, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// bareTLS is a connection under TLS between two ends here, which accept each other because a test says so.
func bareTLS(b *testing.B) (near, far *tls.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	near = tls.Client(dialed, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	far = tls.Server(accepted, &tls.Config{Certificates: []tls.Certificate{selfSigned(b)}, MinVersion: tls.VersionTLS13})
	go far.HandshakeContext(context.Background())
	if err := near.HandshakeContext(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { near.NetConn().Close(); far.NetConn().Close() })
	return near, far
}

func selfSigned(b *testing.B) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		b.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

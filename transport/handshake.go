package transport

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/ringo-ml/ringo/internal/wire"
)

// The handshake. D dials, A accepts; both hold the ticket T.
//
//	D -> A   preface: magic, D's version
//	A -> D   preface: magic, A's version
//	D -> A   hello of D, nonce of D
//	A -> D   hello of A, nonce of A
//	D -> A   HMAC(T, "dial", everything above)
//	A -> D   HMAC(T, "accept", everything above)
//
// On an encrypted connection (TLS) the whole handshake is inside TLS, with D as the TLS client, and
// "everything above" includes keying material of the TLS connection. A detects TLS by the first
// byte, and checks the server name in the first TLS message, which is derived from the ticket
// (clientName): a peer with another name is refused before any cryptography.
//
// D proves first that it has the ticket, so that a stranger learns at most A's TLS certificate. A's
// proof also means that A accepts D. The order ensures invariant[ticket-first]: a peer without
// proof of the ticket never enters a job, gets no information about a job, and uses no memory of A
// except for one short frame or the state of the TLS handshake. A may replace any of its messages
// by a refusal with the reason.
const (
	// HandshakeTimeout limits a whole handshake, in addition to the context.
	HandshakeTimeout = 10 * time.Second

	maxHandshake = 1024 // bytes of any handshake frame
	maxReason    = 512  // bytes of a refusal's text
	roleDial     = "dial"
	roleAccept   = "accept"
)

// Dial connects to addr, proves that it has the ticket, verifies the peer's proof, and returns the
// peer's hello. ctx limits the whole call, and HandshakeTimeout the handshake.
func Dial(ctx context.Context, addr string, who Credentials, mine Hello) (*Link, Hello, error) {
	dialer := net.Dialer{Timeout: HandshakeTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	link, theirs, err := handshake(ctx, conn, (*handshaker).dial, who, mine, nil)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return link, theirs, nil
}

// ClientHandshake is Dial on an existing connection. ClientHandshake takes ownership of conn.
func ClientHandshake(ctx context.Context, conn net.Conn, who Credentials, mine Hello) (*Link, Hello, error) {
	link, theirs, err := handshake(ctx, conn, (*handshaker).dial, who, mine, nil)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("connection to %v: %w", conn.RemoteAddr(), err)
	}
	return link, theirs, nil
}

// ServerHandshake is the accepting end of Dial, for a connection from a listener. ServerHandshake
// takes ownership of conn. If the peer's hello has the purpose of mine, and the peer has the
// ticket, check decides whether to accept it; the peer receives the text of check's error. A nil
// check accepts all.
func ServerHandshake(ctx context.Context, conn net.Conn, who Credentials, mine Hello, check func(Hello) error) (*Link, Hello, error) {
	link, theirs, err := handshake(ctx, conn, (*handshaker).accept, who, mine, check)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("connection from %v: %w", conn.RemoteAddr(), err)
	}
	return link, theirs, nil
}

type handshaker struct {
	ctx         context.Context
	conn        net.Conn
	link        *Link // nil on the accepting side until the first byte arrives
	credentials *guarded
	check       func(Hello) error

	binding                      []byte // keying material of a TLS connection, equal at both ends only; nil without TLS
	mine, theirs                 Hello
	myPreface, theirPreface      []byte
	myHelloBytes, theirHelloByte []byte
}

func handshake(ctx context.Context, conn net.Conn, run func(*handshaker) error, who Credentials, mine Hello, check func(Hello) error) (*Link, Hello, error) {
	c := &handshaker{ctx: ctx, conn: conn, mine: mine, check: check}
	c.credentials = who.secrets()
	err := c.prepare()
	if err == nil {
		deadline := time.Now().Add(HandshakeTimeout)
		if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
			deadline = d
		}
		conn.SetDeadline(deadline)
		stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
		err = run(c)
		if !stop() && err == nil {
			err = context.Cause(ctx) // the function above may still set a past deadline on the finished link
		}
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err == nil && c.link.secure != nil {
		c.link.secure.lower.buffer = make([]byte, readBelow)
	}
	if err != nil {
		conn.Close()
		return nil, Hello{}, c.explain(err)
	}
	return c.link, c.theirs, nil
}

func (c *handshaker) prepare() (err error) {
	if err := c.credentials.ticket.validate(); err != nil {
		return err
	}
	if c.myPreface, err = wire.AppendPreface(nil, c.mine.Version); err != nil {
		return err
	}
	nonce := make([]byte, nonceBytes)
	rand.Read(nonce)
	c.myHelloBytes, err = appendHello(nil, c.mine, nonce)
	return err
}

func (c *handshaker) dial() error {
	c.link = newLink(c.conn)
	if c.credentials.tls.applies(c.link.conn) {
		if err := c.encrypt(asClient); err != nil {
			return err
		}
	}
	if err := c.writePreface(); err != nil {
		return err
	}
	if err := c.readPreface(); err != nil {
		return err
	}
	if err := c.send(wire.Hello, c.myHelloBytes); err != nil {
		return err
	}
	if err := c.readHello(); err != nil {
		return err
	}
	said := c.transcript(c.myPreface, c.theirPreface, c.myHelloBytes, c.theirHelloByte)
	if err := c.send(wire.Proof, c.credentials.ticket.prove(roleDial, said...)); err != nil {
		return err
	}
	return c.readProof(c.credentials.ticket.prove(roleAccept, said...))
}

func (c *handshaker) accept() error {
	if err := c.guard(); err != nil {
		return err
	}
	err := c.readPreface()
	if errors.Is(err, ErrNotRingo) || errors.Is(err, ErrVersion) {
		c.writePreface()
		return c.refuse(err)
	}
	if err != nil {
		return err
	}
	if err := c.writePreface(); err != nil {
		return err
	}
	if err := c.readHello(); err != nil {
		return err
	}
	if err := c.send(wire.Hello, c.myHelloBytes); err != nil {
		return err
	}
	said := c.transcript(c.theirPreface, c.myPreface, c.theirHelloByte, c.myHelloBytes)
	if err := c.readProof(c.credentials.ticket.prove(roleDial, said...)); err != nil {
		return c.refuse(err)
	}
	if err := c.decide(); err != nil {
		return c.refuse(err)
	}
	return c.send(wire.Proof, c.credentials.ticket.prove(roleAccept, said...))
}

// transcript returns, in order, all messages before the proofs, which cover them.
func (c *handshaker) transcript(parts ...[]byte) [][]byte {
	if c.binding != nil {
		parts = append(parts, c.binding)
	}
	return parts
}

// decide accepts or refuses a peer that holds the ticket.
func (c *handshaker) decide() error {
	if c.theirs.Purpose != c.mine.Purpose {
		return fmt.Errorf("%w: this is a %v port, not a %v port", ErrRefused, c.mine.Purpose, c.theirs.Purpose)
	}
	if c.check == nil {
		return nil
	}
	if err := c.check(c.theirs); err != nil {
		return refusal{err}
	}
	return nil
}

// refusal is an error of check, as an ErrRefused.
type refusal struct{ err error }

func (r refusal) Error() string   { return "refused: " + r.err.Error() }
func (r refusal) Unwrap() []error { return []error{ErrRefused, r.err} }

func (c *handshaker) writePreface() error {
	n, err := c.link.conn.Write(c.myPreface)
	c.link.sent.Add(int64(n))
	return err
}

func (c *handshaker) readPreface() error {
	p, err := wire.ReadPreface(readerFunc(c.link.read))
	if errors.Is(err, wire.ErrPreface) {
		return fmt.Errorf("%w: %w", ErrNotRingo, err)
	}
	if err != nil {
		return err
	}
	if p.Handshake != wire.HandshakeVersion || p.Version != c.mine.Version {
		return fmt.Errorf("%w: this end is ringo %s (handshake %d), the other is ringo %s (handshake %d)",
			ErrVersion, c.mine.Version, wire.HandshakeVersion, printable(p.Version), p.Handshake)
	}
	c.theirs.Version = p.Version
	c.theirPreface, err = wire.AppendPreface(nil, p.Version)
	return err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (c *handshaker) readHello() error {
	b, err := c.receive(wire.Hello)
	if err != nil {
		return err
	}
	h, err := parseHello(b)
	if err != nil {
		return err
	}
	if bytes.Equal(b[:nonceBytes], c.myHelloBytes[:nonceBytes]) {
		return fmt.Errorf("%w: the other end repeats this end's words", ErrTicket)
	}
	h.Version = c.theirs.Version
	c.theirs, c.theirHelloByte = h, b
	return nil
}

func (c *handshaker) readProof(want []byte) error {
	b, err := c.receive(wire.Proof)
	if err != nil {
		return err
	}
	if !hmac.Equal(b, want) {
		return fmt.Errorf("%w: one end belongs to another job or was given a wrong ticket", ErrTicket)
	}
	return nil
}

func (c *handshaker) send(t wire.Type, payload []byte) error {
	l := c.link
	if err := wire.PutHeader(&l.head, wire.Header{Type: t, Length: len(payload)}); err != nil {
		return err
	}
	n, err := l.conn.Write(append(l.head[:], payload...))
	l.sent.Add(int64(n))
	return err
}

// receive reads a frame of type t, or the refusal sent instead.
func (c *handshaker) receive(t wire.Type) ([]byte, error) {
	h, b, err := c.link.readFrame(maxHandshake)
	if err != nil {
		return nil, err
	}
	if h.Type == wire.Refusal {
		return nil, parseRefusal(b)
	}
	if h.Type != t {
		return nil, fmt.Errorf("%w: a %v frame in place of %v", ErrNotRingo, h.Type, t)
	}
	return b, nil
}

// reasons are the errors by the number in a refusal's first byte.
var reasons = [...]error{1: ErrNotRingo, 2: ErrVersion, 3: ErrTicket, 4: ErrRefused}

// refuse sends the reason to the peer and returns it. It then reads the peer's remaining bytes,
// because closing a connection with unread bytes could discard the refusal.
func (c *handshaker) refuse(reason error) error {
	code := byte(0)
	for i, r := range reasons {
		if r != nil && errors.Is(reason, r) {
			code = byte(i)
			break
		}
	}
	if theirs := (*refused)(nil); code == 0 || errors.As(reason, &theirs) {
		return reason // network error, or a refusal by the peer
	}
	text := reason.Error()
	if own := (refusal{}); errors.As(reason, &own) {
		text = own.err.Error()
	}
	text = text[:min(len(text), maxReason)]
	if c.send(wire.Refusal, append([]byte{code}, text...)) == nil {
		c.drain()
	}
	return reason
}

// drain reads until the peer closes, for a limited time.
func (c *handshaker) drain() {
	const patience = time.Second
	conn := c.link.conn
	if w, ok := conn.(interface{ CloseWrite() error }); ok {
		w.CloseWrite()
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	if c.ctx.Err() != nil {
		return // overwrites the deadline that ended the handshake
	}
	io.CopyN(io.Discard, conn, 64<<10)
}

func parseRefusal(b []byte) error {
	cause := ErrRefused
	if len(b) > 0 && int(b[0]) < len(reasons) && reasons[b[0]] != nil {
		cause = reasons[b[0]]
	}
	text := cause.Error()
	if len(b) > 1 {
		text = printable(string(b[1:]))
	}
	return &refused{cause: cause, text: text}
}

// refused is a refusal by the peer. refused unwraps to ErrRefused and to the cause.
type refused struct {
	cause error
	text  string
}

func (r *refused) Error() string   { return "the other end refused: " + r.text }
func (r *refused) Unwrap() []error { return []error{ErrRefused, r.cause} }

// printable replaces characters in text from an unauthenticated peer that could control a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func (c *handshaker) explain(err error) error {
	if c.link != nil && c.link.secure != nil {
		err = c.explainTLS(err)
	}
	err = linkError(err)
	switch {
	case err == ErrTimeout && errors.Is(c.ctx.Err(), context.Canceled):
		return context.Cause(c.ctx)
	case err == ErrTimeout:
		return fmt.Errorf("%w in the handshake: the other end did not answer; is it a ringo process?", ErrTimeout)
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return fmt.Errorf("the other end closed the connection during the handshake: %w", err)
	case errors.Is(err, wire.ErrMagic), errors.Is(err, wire.ErrVersion), errors.Is(err, wire.ErrChecksum), errors.Is(err, wire.ErrTooLong), errors.Is(err, errHello):
		return fmt.Errorf("%w: %w", ErrNotRingo, err)
	}
	return err
}

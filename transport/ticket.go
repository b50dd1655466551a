package transport

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

const ticketBytes = 32

// Ticket is the secret of a job, which all its processes have. Any process with the ticket may
// join. The ticket is never sent: both ends of a connection prove that they have it.
type Ticket []byte

// NewTicket returns a ticket of 32 random bytes.
func NewTicket() Ticket {
	t := make(Ticket, ticketBytes)
	rand.Read(t) // never fails
	return t
}

// ParseTicket parses String's result, ignoring surrounding spaces. The error does not contain the
// text, which may be a mistyped secret.
func ParseTicket(s string) (Ticket, error) {
	s = strings.TrimSpace(s)
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != ticketBytes {
		return nil, fmt.Errorf("a ticket is %d hexadecimal digits, this text of %d characters is not", 2*ticketBytes, len(s))
	}
	return b, nil
}

// String returns the ticket as 64 hexadecimal digits.
func (t Ticket) String() string { return hex.EncodeToString(t) }

func (t Ticket) validate() error {
	if len(t) != ticketBytes {
		return fmt.Errorf("transport: a ticket has %d bytes, this one %d; use NewTicket or ParseTicket", ticketBytes, len(t))
	}
	return nil
}

// prove returns a proof that this end has the ticket. The proof covers all previous messages,
// including random nonces, so that it fits one handshake only. role differs between both ends, so
// that a proof cannot be sent back to its author.
func (t Ticket) prove(role string, said ...[]byte) []byte {
	mac := hmac.New(sha256.New, t)
	for _, part := range append([][]byte{[]byte("ringo handshake 2"), []byte(role)}, said...) {
		var n [4]byte
		binary.LittleEndian.PutUint32(n[:], uint32(len(part)))
		mac.Write(n[:])
		mac.Write(part)
	}
	return mac.Sum(nil)
}

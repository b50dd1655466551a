package wire

import (
	"errors"
	"fmt"
	"io"
)

// The preface is each side's first message. The layout never changes, so that any two versions can
// identify each other:
//
//	offset size
//	     0    8  magic "\x8bringo\r\n"; the first byte is no text, and the line
//	             end shows whether something translates text on the way
//	     8    1  version of the handshake that follows
//	     9    1  length of the program's version
//	    10       the program's version
const (
	// PrefaceMagic opens every connection.
	PrefaceMagic = "\x8bringo\r\n"
	// HandshakeVersion is the version of the handshake after the preface.
	HandshakeVersion = 3
	// MaxVersion is the largest length of a program's version in bytes.
	MaxVersion = 64

	prefaceSize = len(PrefaceMagic) + 2
)

// ErrPreface: not a preface, so the other end is a different program.
var ErrPreface = errors.New("wire: not a ringo preface")

// Preface opens a connection.
type Preface struct {
	Handshake int    // HandshakeVersion of the other end
	Version   string // the program's version
}

// AppendPreface appends the preface of a program's version to b.
func AppendPreface(b []byte, version string) ([]byte, error) {
	if len(version) == 0 || len(version) > MaxVersion {
		return nil, fmt.Errorf("wire: a version has 1 to %d bytes, %q has %d", MaxVersion, version, len(version))
	}
	b = append(b, PrefaceMagic...)
	b = append(b, HandshakeVersion, byte(len(version)))
	return append(b, version...), nil
}

// ReadPreface reads exactly a preface, and fails at the first wrong byte, without waiting for more.
// An invalid content is an ErrPreface.
func ReadPreface(r io.Reader) (Preface, error) {
	var buf [prefaceSize + MaxVersion]byte
	got := 0
	for got < prefaceSize {
		n, err := r.Read(buf[got:prefaceSize])
		got += n
		if m := min(got, len(PrefaceMagic)); string(buf[:m]) != PrefaceMagic[:m] {
			return Preface{}, fmt.Errorf("%w: it begins with %q", ErrPreface, buf[:got])
		}
		if err != nil && got < prefaceSize {
			return Preface{}, unexpected(err, got)
		}
	}
	n := int(buf[prefaceSize-1])
	if n == 0 || n > MaxVersion {
		return Preface{}, fmt.Errorf("%w: a version of %d bytes, expected 1 to %d", ErrPreface, n, MaxVersion)
	}
	version := buf[prefaceSize : prefaceSize+n]
	if _, err := io.ReadFull(r, version); err != nil {
		return Preface{}, unexpected(err, got)
	}
	return Preface{Handshake: int(buf[prefaceSize-2]), Version: string(version)}, nil
}

func unexpected(err error, got int) error {
	if err == io.EOF && got > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

package transport

import "time"

// ZeroCopySender is a mesh that can send directly from a slice: for large messages the copy into
// system buffers costs more than the rest of the send.
type ZeroCopySender interface {
	// SendZeroCopy is Send of a slice that must stay unchanged until the receiver has all bytes,
	// even after SendZeroCopy returns. Writing to or reusing the slice earlier makes the received
	// data undefined. The caller learns of the receipt from the receiver, for example by a message.
	SendZeroCopy(to int, tag Tag, p []byte, timeout time.Duration) error
}

// Wrapper is a mesh around another mesh that may be a ZeroCopySender.
type Wrapper interface {
	// Lender returns the wrapped mesh as a ZeroCopySender, possibly wrapped, or nil.
	Lender() ZeroCopySender
}

// ZeroCopyOf returns m as a ZeroCopySender, or nil if m copies all messages. The result is the same
// on all ranks with the same kind of mesh, regardless of the operating system: a ZeroCopySender may
// also copy.
func ZeroCopyOf(m Mesh) ZeroCopySender {
	switch m := m.(type) {
	case Wrapper:
		return m.Lender()
	case ZeroCopySender:
		return m
	}
	return nil
}

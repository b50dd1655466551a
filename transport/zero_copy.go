package transport

import "time"

// ZeroCopySender is a mesh that can send from where a slice lies: the copy into the
// system's buffers costs more than all the rest of a large message.
type ZeroCopySender interface {
	// SendZeroCopy is Send of a slice that keeps its contents until its receiver has it all,
	// not only until SendZeroCopy returns. If it is written before, or freed and used again,
	// what the receiver gets is not defined. That it has everything only the receiver
	// can tell.
	SendZeroCopy(to int, tag Tag, p []byte, timeout time.Duration) error
}

// Wrapper is a mesh around another one that may be a ZeroCopySender.
type Wrapper interface {
	// Lender returns the wrapped mesh's, or one that stands before it, or nil.
	Lender() ZeroCopySender
}

// ZeroCopyOf returns m as a ZeroCopySender, nil where its messages are not lent. It is the
// same on all ranks of a job whose meshes are of the same kind, whatever their
// systems can do: a ZeroCopySender may also copy.
func ZeroCopyOf(m Mesh) ZeroCopySender {
	switch m := m.(type) {
	case Wrapper:
		return m.Lender()
	case ZeroCopySender:
		return m
	}
	return nil
}

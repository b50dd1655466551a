// Package transport moves bytes between the ranks of a job.
//
// A Mesh joins every rank to every other. Messages carry a Tag and are matched
// to receives by (sender, tag), never by arrival order, so that several
// operations can be in flight on one mesh and finish in any order. The
// implementations are internal/transport/tcp (a process per rank), internal/transport/mem
// (goroutines of one process) and internal/transport/fault, which wraps another mesh and
// injects faults.
package transport

import (
	"fmt"
	"time"
)

// Tag names one message between two ranks.
//
// Group and Seq name the operation: Seq counts the operations started on a
// group, which every rank starts in the same order. Part is the algorithm's own
// number of the message within the operation, for instance a step and a
// segment. A (sender, Group, Seq, Part) is used for at most one message in the
// life of a mesh.
//
// Sig says what the operation is, in the caller's own code, and is no part of
// the name: messages and receives of one operation between two ranks must have
// the same. Where they differ, in whatever part, the receive fails at once with
// a *MismatchError.
type Tag struct {
	Group uint32
	Seq   uint32
	Part  uint32
	Sig   uint64
}

// operation reports whether t and other name parts of the same operation.
func (t Tag) operation(other Tag) bool { return t.Group == other.Group && t.Seq == other.Seq }

// String returns the tag as group/sequence/part.
func (t Tag) String() string { return fmt.Sprintf("%d/%d/%d", t.Group, t.Seq, t.Part) }

// Mesh joins the ranks of a job. Its methods may be called from any number of
// goroutines.
type Mesh interface {
	// Rank is this process's place in the job, 0 <= Rank < Size.
	Rank() int
	// Size is the number of ranks, at least 1.
	Size() int

	// Send delivers p to rank `to` under tag and returns when p may be
	// written again. It never waits for the receiver to post: a message that
	// comes before its receive is kept there, up to a limit in bytes.
	// Sending to oneself is an error. A fault is an *Error naming the peer.
	Send(to int, tag Tag, p []byte, timeout time.Duration) error

	// Post asks for the message from rank `from` under tag to be written to
	// dst, whose length must be the message's. r belongs to the mesh until
	// r.Wait returns; it may then be posted again. Post never blocks; faults
	// are reported by r.Wait. dst must not be touched between.
	Post(r *Recv, from int, tag Tag, dst []byte)

	// Fault returns why nothing more will come from a peer: it is gone, or this
	// rank's mesh was aborted or closed. While all is well it is nil and costs
	// about as much as reading a variable: waits on shared memory ask it often.
	Fault(peer int) error

	// Traffic returns what this rank has sent and received so far.
	Traffic() Traffic

	// Abort makes every pending and later operation of this rank fail with
	// cause, and tells the peers why as far as the links still work. The
	// first cause wins.
	Abort(cause error)

	// Close releases everything the mesh holds. Pending operations fail.
	Close() error
}

// Traffic counts bytes and messages of one rank since its mesh was made.
// Payload is what callers passed to Send; Wire adds headers and handshakes.
type Traffic struct {
	PayloadSent, PayloadReceived int64
	WireSent, WireReceived       int64
	MessagesSent                 int64
}

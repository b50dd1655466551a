// Package transport moves bytes between the ranks of a job.
//
// A Mesh connects every rank to every other. Messages have a Tag and are matched to receives by
// (sender, tag), never by arrival order: several operations can be in flight on one mesh and finish
// in any order. The implementations are internal/transport/tcp (a process per rank),
// internal/transport/mem (goroutines of one process) and internal/transport/fault, a wrapper that
// injects faults.
package transport

import (
	"fmt"
	"time"
)

// Tag identifies a message between two ranks.
//
// Group and Seq identify the operation: Seq counts the operations on a group, which all ranks start
// in the same order. Part is the algorithm's number of the message within the operation, such as a
// step and a segment. A sender uses each (Group, Seq, Part) for at most one message to a rank.
//
// Sig describes the operation, in a code of the caller, and does not identify the message: all
// messages and receives of an operation between two ranks must have the same Sig. If not, the
// receive fails immediately with a *MismatchError.
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

// Mesh connects the ranks of a job. The methods are safe for concurrent use.
type Mesh interface {
	// Rank returns this process's rank, 0 <= Rank < Size.
	Rank() int
	// Size returns the number of ranks, at least 1.
	Size() int

	// Send sends p to rank `to` under tag and returns when p may be overwritten. Send does not wait
	// for the receiver's Post: an early message is buffered at the receiver, up to a limit in
	// bytes. A rank cannot send to itself. Errors are an *Error with the peer.
	Send(to int, tag Tag, p []byte, timeout time.Duration) error

	// Post requests the message from rank `from` under tag into dst, of exactly the message's
	// length. The mesh owns r and dst until r.Wait returns; then r may be posted again. Post never
	// blocks; r.Wait returns errors.
	Post(r *Recv, from int, tag Tag, dst []byte)

	// Fault returns the reason why no more messages arrive from a peer: the peer is lost, or this
	// rank's mesh was aborted or closed. Otherwise Fault returns nil, in about the time of reading
	// a variable: waits on shared memory call Fault often.
	Fault(peer int) error

	// Traffic returns this rank's totals until now.
	Traffic() Traffic

	// Abort makes every pending and later operation of this rank fail with cause, and sends the
	// cause to the peers over all working links. The first cause wins.
	Abort(cause error)

	// Close releases the resources of the mesh. Pending operations fail.
	Close() error
}

// Traffic counts the bytes and messages of a rank since the mesh was created. Payload counts the
// bytes passed to Send; Wire includes headers and handshakes.
type Traffic struct {
	PayloadSent, PayloadReceived int64
	WireSent, WireReceived       int64
	MessagesSent                 int64
}

// The declarations below are for implementations of Mesh.

// Cutter is a mesh with links that can be cut without a goodbye, as by a dead process or a broken
// cable. Tests inject faults with it.
type Cutter interface {
	Cut(peer int)
}

// CheckPeer returns an error if peer is not a peer of m.
func CheckPeer(m Mesh, peer int) error {
	if peer < 0 || peer >= m.Size() {
		return fmt.Errorf("there is no rank %d in a mesh of %d", peer, m.Size())
	}
	if peer == m.Rank() {
		return fmt.Errorf("rank %d is this rank itself", peer)
	}
	return nil
}

// PostFault makes r a receive that has failed with err.
func PostFault(r *Recv, err error) {
	r.arm(new(Inbox), Tag{}, nil) // no peer: r is complete from the start
	r.complete(err)
}

// Lost returns the error for a link to rank that ended without a goodbye.
func Lost(rank int) *LostError {
	return &LostError{Rank: rank, Reason: "connection closed without a goodbye: the process has probably died"}
}

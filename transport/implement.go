package transport

import "fmt"

// The declarations below are for implementations of Mesh.

// Cutter is a mesh with links that can be cut without a goodbye, as by a dead process or a broken
// cable. Fault injection uses Cutter.
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

// Lost returns the cause for a link to rank that ended without a goodbye.
func Lost(rank int) *LostError {
	return &LostError{Rank: rank, Reason: "connection closed without a goodbye: the process has probably died"}
}

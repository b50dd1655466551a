package transport

import "fmt"

// What follows is for those who implement a Mesh.

// Cutter is a mesh whose links can be cut without a goodbye, as the death of a
// process or a cable would. Fault injection uses it.
type Cutter interface {
	Cut(peer int)
}

// CheckPeer refuses a rank that is not a peer of m.
func CheckPeer(m Mesh, peer int) error {
	if peer < 0 || peer >= m.Size() {
		return fmt.Errorf("there is no rank %d in a mesh of %d", peer, m.Size())
	}
	if peer == m.Rank() {
		return fmt.Errorf("rank %d is this rank itself", peer)
	}
	return nil
}

// PostFault makes r a receive that has already failed with err.
func PostFault(r *Recv, err error) {
	r.arm(new(Inbox), Tag{}, nil) // of no peer: r is complete from the start
	r.complete(err)
}

// Lost is the cause of a link to rank that ended without a goodbye.
func Lost(rank int) *LostError {
	return &LostError{Rank: rank, Reason: "connection closed without a goodbye: the process has probably died"}
}

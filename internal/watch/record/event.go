package record

import "fmt"

// Kind is what an event is.
type Kind uint8

// The kinds.
const (
	// Operation is one of a group of ranks, which all of them start in the same order.
	Operation Kind = iota + 1
	// Message is a send or a receive between two ranks.
	Message
	// Request is asked of a server, or answered by it.
	Request
	// PhaseKind is a stretch of a step, or of what is between steps: see Phase.
	PhaseKind
	// Step is a whole step.
	Step
	// Fault is what ends a job, in words in Name.
	Fault
	// Change is of how the job works, such as another plan, in words in Name.
	Change
	kinds
)

// String returns the kind's name.
func (k Kind) String() string {
	if k > 0 && k < kinds {
		return [...]string{"operation", "message", "request", "phase", "step", "fault", "change"}[k-1]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// common says that events of the kind come by the step, and tell little of why a job fails.
func (k Kind) common() bool { return k == PhaseKind || k == Step }

// AggregationGroup is the Group of exchanges through servers that sum gradients (package
// aggregate): ranks record them as operations, which all begin in the same order, and servers as
// the requests that these are to them.
const AggregationGroup = 1<<32 - 1

// Phase is what a rank does.
type Phase uint8

// The phases, in the order in which a timeline shows them.
const (
	Data       Phase = iota // waiting for the next batch
	Forward                 // the loss of a batch
	Backward                // its gradients; what Compress shows meanwhile is part of it
	Compress                // selecting or rounding a bucket
	Exchange                // a bucket's way, from its start until it was agreed
	Update                  // the optimizer's rule
	Evaluation              // the whole of it
	Checkpoint              // writing, and gathering what is written
	Pull                    // waiting for rows and values of servers
	Exposed                 // from the end of backward until the last gradient was agreed: what backward did not hide
	phases
)

// String returns the phase's name.
func (p Phase) String() string {
	if p < phases {
		return [...]string{"data wait", "forward", "backward", "compress", "exchange", "update", "evaluation", "checkpoint", "pull", "wait"}[p]
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// Name is a text that a Recorder keeps, as a number; 0 is "".
type Name uint16

// Event is one thing that went on in a process. Times are nanoseconds of the Recorder's clock.
type Event struct {
	Kind  Kind
	Phase Phase // of PhaseKind
	// Failed says that it ended with a fault.
	Failed bool
	// Name is "allreduce" of an operation, of a phase what it is of, such as a bucket, or "", and a fault's or a change's words.
	Name Name
	// Algorithm is the algorithm.
	Algorithm Name
	// Bucket is its number in the plan, -1 for what is of none, and Label is what it is called.
	Bucket int32
	Label  Name
	// Step is how many steps had been done, -1 before the first; of a request the number that it names, -1: none.
	Step int64
	// Group is the group's ID, or the table's, and Seq which of its operations it is, from 0; of a message, or a request,
	// which of those to or from Other.
	Group, Seq uint32
	// Other is the other rank of a message, the server of a request or whom it serves, an
	// operation's root, or of a fault the rank that is lost; -1: none.
	Other int32
	// Peer is, while it goes on, for whom it waits, as the mesh numbers ranks, or a server; of one that failed for whom it waited then. -1: nobody.
	Peer int32
	// Since is since when it waits for Peer.
	Since int64
	// Size is the bytes of its operand on this rank, and Sent how many bytes of payload this rank has sent for it; -1: that is not known.
	Size, Sent int64
	// Sig is the same on all ranks that do the same: of an operation its signature; of a request how many rows it has.
	Sig uint64
	// Begun and Done are when it began and ended. Done is 0 as long as it goes on.
	Begun, Done int64
}

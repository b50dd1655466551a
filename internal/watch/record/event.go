package record

import "fmt"

// Kind is the kind of an event.
type Kind uint8

// Values of Kind.
const (
	// Operation is a collective operation, started by all ranks of a group in the same order.
	Operation Kind = iota + 1
	// Message is a send or a receive between two ranks.
	Message
	// Request is a request to a server, at either end.
	Request
	// PhaseKind is a part of a step, or of the work between steps: see Phase.
	PhaseKind
	// Step is a whole step.
	Step
	// Fault is an error that ends a job, with the text in Name.
	Fault
	// Change is a change of the job's configuration, such as a new plan, with the text in Name.
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

// common reports whether the kind occurs in every step, with little information on failures.
func (k Kind) common() bool { return k == PhaseKind || k == Step }

// AggregationGroup is the Group of exchanges through aggregation servers (package aggregate): ranks
// record the exchanges as operations, beginning in the same order, and servers as requests.
const AggregationGroup = 1<<32 - 1

// Phase is an activity of a rank.
type Phase uint8

// Values of Phase, in the order of a timeline.
const (
	Data       Phase = iota // waiting for the next batch
	Forward                 // computing the loss of a batch
	Backward                // computing the gradients, including concurrent Compress
	Compress                // selecting or quantizing a bucket
	Exchange                // exchange of a bucket, from start to end
	Update                  // applying the optimizer
	Evaluation              // whole evaluation
	Checkpoint              // gathering and writing a checkpoint
	Pull                    // waiting for rows and values from servers
	Exposed                 // time from the end of backward to the end of the last exchange
	phases
)

// String returns the phase's name.
func (p Phase) String() string {
	if p < phases {
		return [...]string{"data wait", "forward", "backward", "compress", "exchange", "update", "evaluation", "checkpoint", "pull", "wait"}[p]
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// Name is the number of a text stored by a Recorder; 0 is "".
type Name uint16

// Event is a recorded event of a process. Times are nanoseconds of the Recorder's clock.
type Event struct {
	Kind  Kind
	Phase Phase // set for PhaseKind
	// Failed reports whether the event ended with an error.
	Failed bool
	// Name is the operation, such as "allreduce", a phase's object, or an error's text.
	Name Name
	// Algorithm is the algorithm.
	Algorithm Name
	// Bucket is the bucket's number in the plan, -1 without a bucket, and Label the bucket's name.
	Bucket int32
	Label  Name
	// Step is the number of steps done before the event, or of a Request its step; -1: none.
	Step int64
	// Group is the ID of the group or table, and Seq the number of the operation in the group, from
	// 0; for a Message or Request, the number among events with Other.
	Group, Seq uint32
	// Other is the peer of a Message, the server or client of a Request, the root of an Operation,
	// or the lost rank of a Fault; -1 means none.
	Other int32
	// Peer is the awaited rank or server, in progress or at the failure. -1 means none.
	Peer int32
	// Since is the start of the wait for Peer.
	Since int64
	// Size is the operand bytes on this rank, and Sent its payload bytes; -1 means unknown.
	Size, Sent int64
	// Sig is equal on all ranks for equal work: an Operation's signature, a Request's rows.
	Sig uint64
	// Begun and Done are the begin and end times. Done is 0 while in progress.
	Begun, Done int64
}

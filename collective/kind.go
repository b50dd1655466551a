package collective

// kind is an operation.
type kind uint8

const (
	kindAllReduce kind = iota
	kindBroadcast
	kindAllGather
	kindBarrier
	kindAllGatherV
	kindReduceScatter
	kindReduce
	kindGather
	kindScatter
	kindAllToAll
	kindAllToAllV
	kindSend
	kindReceive
	kindSharded
	kinds
)

var kindNames = [kinds]string{
	"allreduce", "broadcast", "allgather", "barrier", "allgatherv", "reducescatter",
	"reduce", "gather", "scatter", "alltoall", "alltoallv", "send", "receive", "sharded update",
}

func (k kind) String() string { return kindNames[k] }

// reduces reports whether the operation has a reduction, and rooted whether it has a root.
func (k kind) reduces() bool {
	return k == kindAllReduce || k == kindReduceScatter || k == kindReduce
}

func (k kind) rooted() bool {
	return k == kindBroadcast || k == kindReduce || k == kindGather || k == kindScatter
}

// pairs reports whether only two ranks take part, for any group size.
func (k kind) pairs() bool { return k == kindSend || k == kindReceive }

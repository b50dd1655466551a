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

// reduces says that the operation has a reduction, rooted that it has a root.
func (k kind) reduces() bool {
	return k == kindAllReduce || k == kindReduceScatter || k == kindReduce
}

func (k kind) rooted() bool {
	return k == kindBroadcast || k == kindReduce || k == kindGather || k == kindScatter
}

// pairs says that two ranks take part, whoever else is in the group.
func (k kind) pairs() bool { return k == kindSend || k == kindReceive }

package bindings

import (
	"unsafe"

	"github.com/ringo-ml/ringo/collective"
)

// Run runs r to its end. Run itself allocates no memory.
func (r Request) Run(g *collective.Group) error {
	if err := r.measure(g); err != nil {
		return err
	}
	switch r.Type { // each by name: with a table of functions r would escape
	case Float32:
		return run[float32](g, &r)
	case Float64:
		return run[float64](g, &r)
	case Int32:
		return run[int32](g, &r)
	case Int64:
		return run[int64](g, &r)
	case Uint8:
		return run[uint8](g, &r)
	case Float16:
		return run[collective.Float16](g, &r)
	}
	return run[collective.BFloat16](g, &r)
}

// Start begins r in the background: the operands are in use until the Work's Wait returns. An error
// means no start.
func (r Request) Start(g *collective.Group) (*collective.Work, error) {
	if err := r.measure(g); err != nil {
		return nil, err
	}
	switch r.Type {
	case Float32:
		return start[float32](g, &r), nil
	case Float64:
		return start[float64](g, &r), nil
	case Int32:
		return start[int32](g, &r), nil
	case Int64:
		return start[int64](g, &r), nil
	case Uint8:
		return start[uint8](g, &r), nil
	case Float16:
		return start[collective.Float16](g, &r), nil
	}
	return start[collective.BFloat16](g, &r), nil
}

func run[T collective.Number](g *collective.Group, r *Request) error {
	dst, src := at[T](r.Dst, r.dst), at[T](r.Src, r.src)
	switch r.Kind {
	case AllReduce:
		return collective.AllReduce(g, dst, r.Op)
	case Broadcast:
		return collective.Broadcast(g, dst, r.Peer)
	case Reduce:
		return collective.Reduce(g, dst, r.Op, r.Peer)
	case Send:
		return collective.Send(g, dst, r.Peer)
	case Receive:
		return collective.Receive(g, dst, r.Peer)
	case Listen:
		return collective.StartReceiveNoTimeout(g, dst, r.Peer).Wait()
	case ReduceScatter:
		return collective.ReduceScatter(g, dst, src, r.Op)
	case AllGather:
		return collective.AllGather(g, dst, src)
	case AllGatherTo:
		return collective.AllGatherTo(g, parts[T](r.Parts, r.N), src)
	case Gather:
		return collective.Gather(g, dst, src, r.Peer)
	case Scatter:
		return collective.Scatter(g, dst, src, r.Peer)
	case AllToAll:
		return collective.AllToAll(g, dst, src)
	case AllGatherV:
		return collective.AllGatherV(g, dst, src, r.DstCounts)
	case AllToAllV:
		return collective.AllToAllV(g, dst, src, r.SrcCounts, r.DstCounts)
	}
	return collective.Barrier(g)
}

func start[T collective.Number](g *collective.Group, r *Request) *collective.Work {
	dst, src := at[T](r.Dst, r.dst), at[T](r.Src, r.src)
	switch r.Kind {
	case AllReduce:
		return collective.StartAllReduce(g, dst, r.Op)
	case Broadcast:
		return collective.StartBroadcast(g, dst, r.Peer)
	case Reduce:
		return collective.StartReduce(g, dst, r.Op, r.Peer)
	case Send:
		return collective.StartSend(g, dst, r.Peer)
	case Receive:
		return collective.StartReceive(g, dst, r.Peer)
	case Listen:
		return collective.StartReceiveNoTimeout(g, dst, r.Peer)
	case ReduceScatter:
		return collective.StartReduceScatter(g, dst, src, r.Op)
	case AllGather:
		return collective.StartAllGather(g, dst, src)
	case AllGatherTo:
		return collective.StartAllGatherTo(g, parts[T](r.Parts, r.N), src)
	case Gather:
		return collective.StartGather(g, dst, src, r.Peer)
	case Scatter:
		return collective.StartScatter(g, dst, src, r.Peer)
	case AllToAll:
		return collective.StartAllToAll(g, dst, src)
	case AllGatherV:
		return collective.StartAllGatherV(g, dst, src, r.DstCounts)
	case AllToAllV:
		return collective.StartAllToAllV(g, dst, src, r.SrcCounts, r.DstCounts)
	}
	return collective.StartBarrier(g)
}

// Convert rounds n floats to a 16-bit type, or converts back.
func Convert(t Type, back bool, halves, floats unsafe.Pointer, n int) {
	switch x := at[float32](floats, n); {
	case t == Float16 && back:
		collective.FromFloat16(x, at[collective.Float16](halves, n))
	case t == Float16:
		collective.ToFloat16(at[collective.Float16](halves, n), x)
	case back:
		collective.FromBFloat16(x, at[collective.BFloat16](halves, n))
	default:
		collective.ToBFloat16(at[collective.BFloat16](halves, n), x)
	}
}

package collective

import "fmt"

// A signature describes an operation in 64 bits (transport.Tag.Sig). invariant[signed-operations]:
// ranks with different operations get an error with both, and no data of different operations are
// added. Every message carries a signature. The layout:
//
//	bits  0-4   kind
//	      5-8   type of the values
//	      9-11  reduction
//	     12-15  algorithm
//	     16-25  root, modulo 1024; of a sharded update its operands, and a hash of the partition
//	     26-63  values of the operand
//
// If the operand's length differs among ranks, the signature has the common length, or 0.
type signature uint64

func (w *Work) signature() signature {
	if w.kind.pairs() { // sender and receiver, with different kinds and roots, need one signature
		return signature(kindSend) | signature(w.elem)<<5 | signature(w.shared())<<26
	}
	return signature(w.kind) | signature(w.elem)<<5 | signature(w.op)<<9 | signature(w.algorithm)<<12 |
		signature(w.root&1023)<<16 | signature(w.shared())<<26
}

// shared returns the operand's length in values, or 0 if ranks can have different lengths.
func (w *Work) shared() int {
	n := len(w.x)
	switch w.kind {
	case kindGather, kindScatter:
		n = w.share() // only the root has x
	case kindAllGather:
		n = w.whole()
	case kindAllToAllV:
		n = 0
	}
	return n / w.elem.size()
}

// String describes the operation as its caller started it.
func (s signature) String() string {
	k, e, op, how := kind(s&31), element(s>>5&15), ReduceOp(s>>9&7), algorithm(s>>12&15)
	if k >= kinds || e >= elements || op >= reductions || how >= methods {
		return fmt.Sprintf("an unknown operation (%#x)", uint64(s))
	}
	out := k.String()
	if k.reduces() {
		out += fmt.Sprintf(" (%v)", op)
	}
	if k != kindBarrier {
		out += fmt.Sprintf(" of %d %v", uint64(s>>26), e)
	}
	if k == kindSharded {
		out += shardsText(int(s >> 16 & 1023))
	}
	if k.rooted() {
		out += fmt.Sprintf(" with root %d", uint64(s>>16&1023))
	}
	if how != byRules {
		out += " by " + how.String()
	}
	return out
}

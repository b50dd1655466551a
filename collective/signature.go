package collective

import "fmt"

// A signature says what an operation is in 64 bits that travel with each of its
// messages (transport.Tag.Sig). invariant[signed-operations]: ranks that do not run
// the same operation are told which ones, and nothing is added that does not belong
// together. Its layout:
//
//	bits  0-4   kind
//	      5-8   type of the values
//	      9-11  reduction
//	     12-15  algorithm
//	     16-25  root, modulo 1024; of a sharded update what takes part, and a hash of the cut
//	     26-63  values of the operand
//
// An operation whose operand differs in length from rank to rank gives the
// length that all share, or 0.
type signature uint64

func (w *Work) signature() signature {
	if w.kind.pairs() { // the two have different roots, and only one sends
		return signature(kindSend) | signature(w.elem)<<5 | signature(w.shared())<<26
	}
	return signature(w.kind) | signature(w.elem)<<5 | signature(w.op)<<9 | signature(w.algorithm)<<12 |
		signature(w.root&1023)<<16 | signature(w.shared())<<26
}

// shared is the length, in values, that all ranks' operands have.
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

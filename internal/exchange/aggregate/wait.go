package aggregate

import (
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// waitState is the member that a goroutine waits for, readable by other goroutines.
type waitState struct {
	rec   *record.Recorder
	op    record.Op    // exchange in progress, used by the goroutine only
	peer  atomic.Int64 // member plus one; 0: no wait
	since atomic.Int64 // nanoseconds of the Unix epoch
	seq   atomic.Uint32
}

// begin starts a wait for a member.
func (w *waitState) begin(peer int, seq uint32) { w.from(peer, seq, time.Now()) }

func (w *waitState) from(peer int, seq uint32, since time.Time) {
	if wait := w.op.Wait(); wait != nil {
		wait.For(peer, w.rec.At(since))
	}
	w.since.Store(since.UnixNano())
	w.seq.Store(seq)
	w.peer.Store(int64(peer) + 1)
}

func (w *waitState) end() { w.peer.Store(0) }

// over ends a wait. The record of a failed wait retains the member.
func (w *waitState) over(err error) {
	if w.end(); err == nil {
		w.op.Wait().Clear()
	}
}

func (w *waitState) load(op string) (collective.Wait, bool) {
	p := w.peer.Load()
	if p == 0 {
		return collective.Wait{}, false
	}
	return collective.Wait{Op: op, Seq: w.seq.Load(), Peer: int(p) - 1, Since: time.Unix(0, w.since.Load())}, true
}

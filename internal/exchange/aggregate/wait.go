package aggregate

import (
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// waitState is whom a goroutine waits for, for others to read.
type waitState struct {
	rec   *record.Recorder
	op    record.Op    // the exchange under way, of the goroutine alone
	peer  atomic.Int64 // plus one; 0: nobody
	since atomic.Int64 // nanoseconds of the Unix epoch
	seq   atomic.Uint32
}

// begin notes a wait for a member from now on.
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

// over is end of a wait for what came, or did not: what is recorded of one that failed says for whom it waited.
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

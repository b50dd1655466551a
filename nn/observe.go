package nn

import (
	"fmt"
	"time"
)

// Timing is how long a pass of one recorded operation took.
type Timing struct {
	// Node is the operation. Of one that does not say what it is, Op is its type's name.
	Node Node
	// Index is its place in the recording.
	Index int
	// Pass is "forward", "backward" or, of operations that compute them one after the other,
	// "weights" and "input": the gradients of the parameters and of the first operand.
	Pass string
	// Took is all of its time, Shared what of it threads were given parts to share.
	Took, Shared time.Duration
}

// Observe makes the tape call f with the time of each pass of an operation, when that is over; nil
// ends that. A model's own computation between two operations counts as the former's. f runs on the
// tape's goroutine, and its time counts for no operation.
func (t *Tape) Observe(f func(Timing)) {
	t.watch.end(t)
	t.watch, t.pool.shared = watch{f: f}, nil
	if f != nil {
		t.pool.shared = new(time.Duration)
	}
}

// watch times the pass under way.
type watch struct {
	f     func(Timing)
	o     op // nil: between passes
	index int
	pass  string
	begun time.Time
}

// begin ends the pass under way and begins another.
func (w *watch) begin(t *Tape, o op, index int, pass string) {
	if w.f == nil {
		return
	}
	w.end(t)
	w.o, w.index, w.pass = o, index, pass
	*t.pool.shared = 0
	w.begun = time.Now()
}

// turn goes on with another pass of the operation under way.
func (w *watch) turn(t *Tape, pass string) {
	if w.f != nil && w.o != nil {
		w.begin(t, w.o, w.index, pass)
	}
}

// end tells of the pass under way.
func (w *watch) end(t *Tape) {
	if w.f == nil || w.o == nil {
		return
	}
	took := time.Since(w.begun)
	o := w.o
	w.o = nil
	n := Node{Op: fmt.Sprintf("%T", o)}
	if o, ok := o.(noder); ok {
		n = o.node()
	}
	n.Output = o.result()
	w.f(Timing{Node: n, Index: w.index, Pass: w.pass, Took: took, Shared: *t.pool.shared})
}

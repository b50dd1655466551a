package nn

import (
	"fmt"
	"time"
)

// Timing is the duration of a pass of a recorded operation.
type Timing struct {
	// Node is the operation. Without a description, Op is its Go type.
	Node Node
	// Index is the operation's index in the recording.
	Index int
	// Pass is "forward" or "backward". For operations that compute gradients of parameters and of
	// the first operand sequentially, it is "weights" and "input" instead of "backward".
	Pass string
	// Took is the duration of the pass, Shared the part of it with work on several threads.
	Took, Shared time.Duration
}

// Observe makes the tape call f after each pass of an operation, with its time; nil stops the
// calls. The model's other computation between two operations counts for the first of them. f runs
// on the tape's goroutine, and its time counts for no operation.
func (t *Tape) Observe(f func(Timing)) {
	t.watch.end(t)
	t.watch, t.pool.shared = watch{f: f}, nil
	if f != nil {
		t.pool.shared = new(time.Duration)
	}
}

// watch times the pass in progress.
type watch struct {
	f     func(Timing)
	o     op // nil: between passes
	index int
	pass  string
	begun time.Time
}

// begin ends the pass in progress and begins another.
func (w *watch) begin(t *Tape, o op, index int, pass string) {
	if w.f == nil {
		return
	}
	w.end(t)
	w.o, w.index, w.pass = o, index, pass
	*t.pool.shared = 0
	w.begun = time.Now()
}

// turn ends the pass in progress and begins another of the same operation.
func (w *watch) turn(t *Tape, pass string) {
	if w.f != nil && w.o != nil {
		w.begin(t, w.o, w.index, pass)
	}
}

// end reports the pass in progress.
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

package nn

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
)

// labels are the pprof labels of the goroutines of a tape. They are made once per operation and
// pass, and kept by index in the recording, so that a step with the same operations allocates none.
type labels struct {
	on     bool
	known  map[string]*label  // labels by text
	places [passes][]labelled // operations by pass and index
}

// Passes in profiles.
const (
	forwardPass = iota
	backwardPass
	evaluatePass
	passes
)

var passNames = [passes]string{"forward", "backward", "evaluate"}

// label is a set of labels for a goroutine, identified by its address.
type label struct{ ctx context.Context }

// labelled has an operation and its label. After a change of the recording, another operation may
// have the same index.
type labelled struct {
	o op
	l *label
}

// mark begins a phase outside operations, until the next operation or phase.
func (t *Tape) mark(phase string) {
	if t.labels.on {
		t.carry(t.labels.label("phase", phase))
	}
}

// label returns the label with these names and values.
func (s *labels) label(pairs ...string) *label {
	key := strings.Join(pairs, "\x00")
	l := s.known[key]
	if l == nil {
		l = &label{pprof.WithLabels(context.Background(), pprof.Labels(pairs...))}
		s.known[key] = l
	}
	return l
}

// carry sets label l on the tape's goroutine now, and on its other threads with the next job.
func (t *Tape) carry(l *label) {
	if t.pool.label != l {
		t.pool.label = l
		t.pool.workers[0].carry(l)
	}
}

// carry sets l on the worker's goroutine.
func (w *worker) carry(l *label) {
	if w.label != l && l != nil {
		w.label = l
		pprof.SetGoroutineLabels(l.ctx)
	}
}

// operation sets the label of an operation at the beginning of its pass. A new operation has no
// operands yet, from which the label's name is made: its first label names the pass only.
func (t *Tape) operation(o op, index, pass int, fresh bool) {
	if !t.labels.on {
		return
	}
	if pass == forwardPass && t.eval {
		pass = evaluatePass
	}
	if fresh {
		t.mark(passNames[pass])
		return
	}
	all := &t.labels.places[pass]
	for len(*all) <= index {
		*all = append(*all, labelled{})
	}
	at := &(*all)[index]
	if at.o != o {
		*at = labelled{o, t.named(o, pass)}
	}
	t.carry(at.l)
}

// named returns the label of an operation's pass, shared by layer, kind and pass.
func (t *Tape) named(o op, pass int) *label {
	kind := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", o), "*nn."), "Op")
	layer := kind
	if _, params := t.operandsOf(o); len(params) > 0 {
		layer = layerOf(params[0].Name)
	} else if o, ok := o.(tableOp); ok {
		layer = layerOf(o.table().Name)
	}
	return t.labels.label("phase", passNames[pass], "layer", layer, "op", kind)
}

// layerOf is the layer of a parameter: its name without the last part, "conv1" of "conv1.weight".
func layerOf(name string) string {
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		return name[:dot]
	}
	return name
}

package nn

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
)

// labels are what a profiler is told of the processor time that the tape's goroutines take. They
// are made once for each operation and pass, and kept by its place in the recording: a step that
// repeats shapes allocates none.
type labels struct {
	on     bool
	known  map[string]*label  // by what they say
	places [passes][]labelled // by pass and place
}

// The passes that profiles tell apart.
const (
	forwardPass = iota
	backwardPass
	evaluatePass
	passes
)

var passNames = [passes]string{"forward", "backward", "evaluate"}

// label is a set of labels as a goroutine takes it. It is told from others by its address.
type label struct{ ctx context.Context }

// labelled is an operation with its label: another one may have taken its place since.
type labelled struct {
	o op
	l *label
}

// mark begins a phase that is no operation's, until the next operation begins or another phase
// does.
func (t *Tape) mark(phase string) {
	if t.labels.on {
		t.carry(t.labels.label("phase", phase))
	}
}

// label is what has these names and values.
func (s *labels) label(pairs ...string) *label {
	key := strings.Join(pairs, "\x00")
	l := s.known[key]
	if l == nil {
		l = &label{pprof.WithLabels(context.Background(), pprof.Labels(pairs...))}
		s.known[key] = l
	}
	return l
}

// carry has the tape's goroutine carry l, and with the next job its helpers.
func (t *Tape) carry(l *label) {
	if t.pool.label != l {
		t.pool.label = l
		t.pool.workers[0].carry(l)
	}
}

// carry has the worker's goroutine carry l.
func (w *worker) carry(l *label) {
	if w.label != l && l != nil {
		w.label = l
		pprof.SetGoroutineLabels(l.ctx)
	}
}

// operation has the tape carry the label of an operation whose pass begins. A fresh one has no
// operands yet, by which it would be named: it has the name of its pass alone, this once.
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

// named is the label of an operation's pass. Those of one layer, kind and pass are the same.
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

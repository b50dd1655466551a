package nn

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
)

// goroutines are the program's, with their labels.
func goroutines() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()
}

// looking is a job of two parts at the same time, which sees the labels of all goroutines meanwhile.
type looking struct {
	both sync.WaitGroup
	seen string
}

func (l *looking) part(_ *worker, i int) {
	l.both.Done()
	l.both.Wait()
	if i == 0 {
		l.seen = goroutines()
	}
}

// Goroutines of a tape say what they compute: its own, and its helpers with it. Labels are made once.
func TestLabel(t *testing.T) {
	ps := NewParams(1)
	first, second := ps.Dense("body.fc1", 8, 8), ps.Dense("fc2", 8, 1)
	plain, tape := NewTape(TapeConfig{Threads: 2}), NewTape(TapeConfig{Threads: 2, Labels: true})
	defer plain.Close()
	defer tape.Close()
	x := &Tensor{Shape: []int{4, 8}, Data: make([]float32, 32)}
	model := func(t *Tape) *Tensor { return t.Mean(t.Dense(t.Dense(x, first, ReLU), second, Identity)) }
	pass := func(tape *Tape, ready func(int)) {
		tape.Reset()
		tape.Backward(model(tape), ready)
	}
	if err := ps.Arrange(model); err != nil {
		t.Fatal(err)
	}
	pass(plain, func(int) {})
	if got := goroutines(); strings.Contains(got, "labels:") {
		t.Errorf("labels that nobody asked for: %s", got)
	}
	pass(tape, nil) // a fresh operation has no name yet
	var within strings.Builder
	tape.Observe(func(Timing) { within.WriteString(goroutines()) })
	pass(tape, nil)
	tape.Observe(nil)
	for _, want := range []string{`"layer":"body.fc1", "op":"dense", "phase":"forward"`, `"layer":"fc2", "op":"dense", "phase":"forward"`, `"layer":"body.fc1", "op":"dense", "phase":"backward"`, `"layer":"reduce", "op":"reduce", "phase":"backward"`} {
		if !strings.Contains(within.String(), want) {
			t.Errorf("%s is not among %s", want, within.String())
		}
	}
	pass(tape, func(int) {
		var l looking
		l.both.Add(2)
		tape.pool.share(&l, 2)
		if strings.Count(l.seen, `{"phase":"ready"}`) != 2 {
			t.Errorf("the two threads of a job have not its label: %s", l.seen)
		}
	})
	known := len(tape.labels.known)
	allocated := testing.AllocsPerRun(20, func() { pass(tape, nil) })
	if len(tape.labels.known) != known || allocated > 1 {
		t.Errorf("%d labels became %d, %v allocations a pass", known, len(tape.labels.known), allocated)
	}
	if got := goroutines(); !strings.Contains(got, `{"phase":"between"}`) {
		t.Errorf("no phase between passes: %s", got)
	}
	tape.ResetEval()
	tape.Dense(x, first, ReLU)
	if got := goroutines(); !strings.Contains(got, `"layer":"body.fc1", "op":"dense", "phase":"evaluate"`) {
		t.Errorf("no evaluation: %s", got)
	}
}

func TestLayerOf(t *testing.T) {
	for name, want := range map[string]string{"conv1.weight": "conv1", "a.b.bias": "a.b", "table": "table", ".x": ".x", "": ""} {
		if got := layerOf(name); got != want {
			t.Errorf("%q is of layer %q, want %q", name, got, want)
		}
	}
}

package nn

import (
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestArenas(t *testing.T) {
	m := newTrunk(t)
	values, grads := m.ps.Values(), m.ps.Grads()
	for _, arena := range [][]float32{values, grads} {
		if at := uintptr(unsafe.Pointer(&arena[0])); at%64 != 0 {
			t.Errorf("an arena begins at %#x", at)
		}
	}
	tape := NewTape(TapeConfig{})
	m.backward(t, tape, 2)
	at, count := 0, 0
	for i, s := range m.ps.Slots() {
		p := m.ps.List()[i]
		if s.Offset != at || s.Offset%16 != 0 || s.Padded < s.Len || s.Padded%16 != 0 || s.Name != p.Name || s.Len != len(p.Data) {
			t.Errorf("slot %d is %+v, want it at %d", i, s, at)
		}
		if &p.Data[0] != &values[s.Offset] || &p.Grad[0] != &grads[s.Offset] {
			t.Errorf("%s does not lie at its slot", p.Name)
		}
		for j := s.Offset + s.Len; j < s.Offset+s.Padded; j++ {
			if values[j] != 0 || grads[j] != 0 {
				t.Errorf("padding %d after %s is %v and %v", j, s.Name, values[j], grads[j])
			}
		}
		at, count = at+s.Padded, count+s.Len
	}
	if len(values) != at || len(grads) != at || m.ps.Count() != count {
		t.Errorf("arenas of %d and %d values, slots of %d; %d parameters counted as %d", len(values), len(grads), at, count, m.ps.Count())
	}
}

// fingerprint is a hash of the bits of x.
func fingerprint(x []float32) uint64 {
	h := fnv.New64a()
	for _, v := range x {
		b := math.Float32bits(v)
		_, _ = h.Write([]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)})
	}
	return h.Sum64()
}

// The initial values are part of what makes a run reproducible: they may only
// change on purpose, and are the same on every machine.
func TestInitialValuesArePinned(t *testing.T) {
	const want = 0x80f3f46368ef6cfc
	w := NewParams(42).Conv2D("conv1", 1, 20, 5).W
	if got := fingerprint(w.Data); got != want {
		t.Errorf("fingerprint %#x, want %#x", got, uint64(want))
	}
}

func TestInit(t *testing.T) {
	a, b := NewParams(1), NewParams(1)
	b.Dense("other", 3, 3)
	x, y := a.Dense("fc", 100, 50), b.Dense("fc", 100, 50)
	if fingerprint(x.W.Data) != fingerprint(y.W.Data) || fingerprint(x.B.Data) != fingerprint(y.B.Data) {
		t.Error("values depend on the other parameters")
	}
	if fingerprint(x.W.Data) == fingerprint(NewParams(2).Dense("fc", 100, 50).W.Data) {
		t.Error("values do not depend on the seed")
	}
	if fingerprint(x.W.Data) == fingerprint(a.Dense("fd", 100, 50).W.Data) {
		t.Error("values do not depend on the name")
	}
	sum, least, most := 0.0, 0.0, 0.0
	for _, v := range x.W.Data {
		sum += float64(v)
		least, most = min(least, float64(v)), max(most, float64(v))
	}
	if mean := sum / 5000; math.Abs(mean) > 0.005 || least < -0.1 || most > 0.1 || least > -0.099 || most < 0.099 {
		t.Errorf("mean %v, range %v to %v: want uniform within 1/sqrt(100)", mean, least, most)
	}
}

func TestArrangeErrors(t *testing.T) {
	loss := func(t *Tape) *Tensor { return NewTensor(1) }
	bad := NewParams(1)
	bad.New("a", Zeros, 2)
	bad.New("a", Zeros, 3)
	bad.New("b", Zeros, 0)
	err := bad.Arrange(loss)
	for _, want := range []string{`two parameters are named "a"`, `parameter "b" has shape [0]`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
	ps := NewParams(1)
	fc := ps.Dense("fc", 4, 3)
	err = ps.Arrange(func(t *Tape) *Tensor { return t.Dense(NewTensor(1, 5), fc, Identity) })
	var shape *ShapeError
	if !errors.As(err, &shape) {
		t.Errorf("a model that does not fit: %v", err)
	}
	other := NewParams(1)
	if err := other.Arrange(func(t *Tape) *Tensor {
		l, _ := t.SoftmaxCrossEntropy(t.Dense(NewTensor(1, 4), fc, Identity), []int32{0})
		return l
	}); err == nil {
		t.Error("another registry's parameters were accepted")
	}
	if err := ps.Arrange(loss); err != nil {
		t.Errorf("a failed Arrange cannot be repeated: %v", err)
	}
	if err := ps.Arrange(loss); err == nil {
		t.Error("a second Arrange was accepted")
	}
}

// Arrange records a model without computing it.
func TestArrangeComputesNothing(t *testing.T) {
	ps := NewParams(1)
	fc, norm := ps.Dense("fc", 3, 2), ps.BatchNorm("norm", 2)
	x := NewTensor(4, 3)
	for i := range x.Data {
		x.Data[i] = float32(i)
	}
	var y *Tensor
	err := ps.Arrange(func(t *Tape) *Tensor {
		y = t.BatchNorm(t.Dense(x, fc, Identity), norm, nil, ReLU)
		loss, _ := t.SoftmaxCrossEntropy(y, make([]int32, 4))
		return loss
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range y.Data {
		if v != 0 {
			t.Fatalf("results %v, want zeros", y.Data)
		}
	}
	if norm.Mean.Data[0] != 0 || norm.Var.Data[0] != 1 {
		t.Errorf("running mean %v and variance %v moved", norm.Mean.Data, norm.Var.Data)
	}
}

// Gradients and parameters lie where they are told to, and training does not depend on it.
func TestGradsFromAndArenasFrom(t *testing.T) {
	build := func(grads, values func(int) []float32) (*Params, error) {
		ps := NewParams(3)
		layer := ps.Dense("d", 5, 3)
		ps.ArenasFrom(values)
		ps.GradsFrom(grads) // of both, the latter has its way
		x := NewTensor(2, 5)
		return ps, ps.Arrange(func(tape *Tape) *Tensor {
			loss, _ := tape.SoftmaxCrossEntropy(tape.Dense(x, layer, Identity), make([]int32, 2))
			return loss
		})
	}
	plain, err := build(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var given, home []float32
	ps, err := build(func(n int) []float32 { given = aligned(n); return given }, func(n int) []float32 { home = aligned(n); return home })
	if err != nil || len(given) != len(ps.Values()) || &ps.Grads()[0] != &given[0] || &ps.List()[0].Grad[0] != &given[0] {
		t.Fatalf("%d values were asked for, %v", len(given), err)
	}
	if &ps.Values()[0] != &home[0] || &ps.List()[0].Data[0] != &home[0] || !slices.Equal(ps.Values(), plain.Values()) {
		t.Errorf("parameters lie at %p, want %p; are they as elsewhere: %v", ps.Values(), home, slices.Equal(ps.Values(), plain.Values()))
	}
	var back [][]float32
	if ps.Release(func(x []float32) { back = append(back, x) }); len(back) != 2 || &back[0][0] != &given[0] || &back[1][0] != &home[0] {
		t.Errorf("%d arrays came back, want the gradients, then the parameters", len(back))
	}
	for name, alloc := range map[string]func(int) []float32{
		"none":        func(int) []float32 { return nil },
		"not aligned": func(n int) []float32 { return aligned(n + 1)[1:] },
		"too few":     func(n int) []float32 { return aligned(n - 1) },
	} {
		if _, err := build(alloc, nil); err == nil || !strings.Contains(err.Error(), "GradsFrom") {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := build(nil, alloc); err == nil || !strings.Contains(err.Error(), "ArenasFrom") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

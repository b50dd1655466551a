package data

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/data/images"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// numbers is a source whose samples tell what they were filled with.
type numbers struct {
	n   int
	bad int32 // fails if it is among the indices
}

var errBad = errors.New("bad sample")

func (s numbers) Len() int     { return s.n }
func (s numbers) Shape() Shape { return Shape{Values: []int{2}, IDs: 1, Labels: 1} }

func (s numbers) Fill(b *Batch, idx []int32, d Draw) error {
	b.Resize(s.Shape(), len(idx))
	for i, n := range idx {
		if n == s.bad {
			return fmt.Errorf("sample %d: %w", n, errBad)
		}
		r := drawOf(d, n)
		b.Values[2*i], b.Values[2*i+1] = float32(r.Below(1000)), float32(n)
		b.IDs[i], b.Labels[i] = int32(d.Epoch), n
	}
	return nil
}

// steps writes down what an epoch gives, from a step on.
func steps(t *testing.T, l *Loader) (all []Batch) {
	t.Helper()
	for {
		b, ok, err := l.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		all = append(all, Batch{N: b.N, Values: slices.Clone(b.Values), IDs: slices.Clone(b.IDs), Labels: slices.Clone(b.Labels)})
	}
}

func sameBatch(a, b Batch) bool {
	return a.N == b.N && slices.Equal(a.Values, b.Values) && slices.Equal(a.IDs, b.IDs) && slices.Equal(a.Labels, b.Labels)
}

func newTestLoader(t *testing.T, workers, ahead int, bad int32) *Loader {
	t.Helper()
	sampler, err := NewSampler(SamplerConfig{N: 103, Batch: 5, Rank: 1, Size: 2, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLoader(LoaderConfig{Source: numbers{103, bad}, Sampler: sampler, Seed: 9, Augment: true, Workers: workers, Prefetch: ahead})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Whatever the number of workers, the batches are those of a loader without
// any, in every epoch and from every step.
func TestLoaderIsDeterministic(t *testing.T) {
	leakcheck.Check(t)
	naive := newTestLoader(t, 0, 0, -1)
	defer naive.Close()
	for _, c := range [][2]int{{1, 0}, {1, 1}, {2, 0}, {3, 1}, {4, 9}, {7, 40}} {
		l := newTestLoader(t, c[0], c[1], -1)
		if _, ok, err := l.Next(); ok || err != nil {
			t.Errorf("a batch before Start: %v", err)
		}
		for _, epoch := range []int{3, 0, 3} {
			naive.Start(epoch)
			want := steps(t, naive)
			l.Start(epoch)
			l.Next()
			l.Start(epoch) // given up in the middle
			got := steps(t, l)
			if len(want) != 11 || l.Steps() != 11 || !slices.EqualFunc(got, want, sameBatch) {
				t.Fatalf("%v, epoch %d: %d batches differ from the twin's %d", c, epoch, len(got), len(want))
			}
			for step := range want {
				l.Seek(step)
				if b, ok, err := l.Next(); !ok || err != nil || !sameBatch(*b, want[step]) {
					t.Fatalf("%v, epoch %d: step %d after Seek is another", c, epoch, step)
				}
			}
			l.Seek(11)
			if _, ok, err := l.Next(); ok || err != nil {
				t.Errorf("a batch after the last, or %v", err)
			}
		}
		l.Start(1)
		l.Close()
	}
}

// A batch is not written to before the next one is asked for.
func TestLoaderKeepsTheBatchInUse(t *testing.T) {
	l := newTestLoader(t, 4, 3, -1)
	defer l.Close()
	for epoch := range 50 {
		l.Start(epoch)
		for b, ok, _ := l.Next(); ok; b, ok, _ = l.Next() {
			before := slices.Clone(b.Values)
			for range 100 {
				if !slices.Equal(b.Values, before) {
					t.Fatal("the batch changed while it was in use")
				}
			}
		}
	}
}

// What is ready is had without waiting, and there is no more of it than is filled ahead.
func TestLoaderReady(t *testing.T) {
	l := newTestLoader(t, 2, 3, -1)
	defer l.Close()
	l.Start(0)
	for until := time.Now().Add(10 * time.Second); l.Ready() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d batches are ready, want at least 3", l.Ready())
		}
	}
	for _, ok, _ := l.Next(); ok; _, ok, _ = l.Next() {
		if n := l.Ready(); n > len(l.slots) {
			t.Fatalf("%d batches are ready in %d slots", n, len(l.slots))
		}
	}
	if n := l.Ready(); n != 0 {
		t.Errorf("%d batches are ready after the last", n)
	}
	alone := newTestLoader(t, 0, 0, -1)
	defer alone.Close()
	if alone.Start(0); alone.Ready() != 0 {
		t.Error("without workers a batch is ready")
	}
}

func TestLoaderErrorsInOrder(t *testing.T) {
	leakcheck.Check(t)
	order := permutation(4, 0, 103, nil)[52:]
	for _, workers := range []int{0, 1, 4} {
		l := newTestLoader(t, workers, 0, order[17]) // in step 3
		for range 2 {
			l.Start(0)
			for step := range 3 {
				if b, ok, err := l.Next(); !ok || err != nil || b.Labels[0] != order[step*5] {
					t.Fatalf("%d workers, step %d: %v", workers, step, err)
				}
			}
			for range 2 {
				if b, ok, err := l.Next(); b != nil || ok || !errors.Is(err, errBad) {
					t.Errorf("%d workers: %v", workers, err)
				}
			}
		}
		l.Seek(4)
		if got := steps(t, l); len(got) != 7 {
			t.Errorf("%d batches after the bad one", len(got))
		}
		l.Close()
	}
}

func TestLoaderDoesNotAllocate(t *testing.T) {
	train, _ := images.SyntheticMNIST(1, 103, 0)
	for _, workers := range []int{0, 2} {
		sampler, err := NewSampler(SamplerConfig{N: 103, Batch: 5, Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLoader(LoaderConfig{Source: newPixels(train, images.MNISTStatistics()).jittered(2), Sampler: sampler, Augment: true, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		epoch := func() {
			l.Start(1)
			for _, ok, _ := l.Next(); ok; _, ok, _ = l.Next() {
			}
		}
		epoch()
		if n := testing.AllocsPerRun(20, epoch); n != 0 {
			t.Errorf("%d workers: an epoch of 20 steps allocates %v times", workers, n)
		}
		l.Close()
	}
}

func TestLoaderConfigFaults(t *testing.T) {
	_, err := NewLoader(LoaderConfig{Workers: -1, Prefetch: -2})
	for _, want := range []string{"no source", "no sampler", "-1 workers", "-2 batches"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
}

// A copy of a batch is all of it, in its own memory, which is used again.
func TestCopyFrom(t *testing.T) {
	a := Batch{N: 2, Values: []float32{1, 2}, IDs: []int32{3}, Keys: []uint64{4, 5, 6}, Labels: []int32{7}}
	var b Batch
	b.CopyFrom(&a)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v, want %+v", b, a)
	}
	if n := testing.AllocsPerRun(10, func() { b.CopyFrom(&a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	a.Values[0], a.IDs[0], a.Keys[0], a.Labels[0] = 0, 0, 0, 0
	if b.Values[0] != 1 || b.IDs[0] != 3 || b.Keys[0] != 4 || b.Labels[0] != 7 {
		t.Errorf("%+v is not its own", b)
	}
}

package exchange

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// onMeshes runs body as every rank, each on its own goroutine, and returns the
// ranks' errors. Reducers, groups and meshes are closed after all have returned.
func onMeshes(t testing.TB, meshes []transport.Mesh, cfg Config, body func(e *GroupReducer, rank int) error) []error {
	t.Helper()
	return onGroups(t, meshes, collective.Config{}, cfg, body)
}

// onGroups is onMeshes with a configuration of the groups.
func onGroups(t testing.TB, meshes []transport.Mesh, groupCfg collective.Config, cfg Config, body func(e *GroupReducer, rank int) error) []error {
	t.Helper()
	errs := make([]error, len(meshes))
	reducers, groups := make([]*GroupReducer, len(meshes)), make([]*collective.Group, len(meshes))
	var wg sync.WaitGroup
	for r, m := range meshes {
		var err error
		if groups[r], err = collective.New(m, groupCfg); err != nil {
			t.Fatal(err)
		}
		if reducers[r], err = NewGroupReducer(groups[r], cfg); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { errs[r] = body(reducers[r], r) })
	}
	wg.Wait()
	for r, m := range meshes {
		if err := reducers[r].Close(); err != nil {
			t.Errorf("rank %d: closing: %v", r, err)
		}
		groups[r].Close()
		m.Close()
	}
	return errs
}

// onRanks is onMeshes over memory, where every rank must succeed.
func onRanks(t testing.TB, n int, cfg Config, body func(e *GroupReducer, rank int) error) {
	t.Helper()
	for r, err := range onMeshes(t, mem.New(n), cfg, body) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, n, err)
		}
	}
}

// do starts an operation and waits for it.
func do(e *GroupReducer, op *Request) error {
	e.Start(op)
	_, err := e.Wait(op)
	return err
}

// vector is a random one with about so many of n entries, none of them NaN, at
// places where `crowd` > 1 crowds them at the front.
func vector(rng *rand.Rand, n, k int, crowd float64, q compress.Quantiser) *compress.Sparse {
	dense := make([]float32, n)
	for range k {
		at := min(n-1, int(float64(n)*math.Pow(rng.Float64(), crowd)))
		dense[at] = float32(rng.NormFloat64())
		if rng.IntN(16) == 0 {
			dense[at] = float32(rng.IntN(3) - 1) // what cancels
		}
	}
	s := &compress.Sparse{}
	s.Reset(n)
	for i, v := range dense {
		if v != 0 {
			s.Append(i, v)
		}
	}
	if rng.IntN(4) == 0 && n > 0 && s.Count() < n { // an entry that is -0
		s.Reset(n)
		s.Append(rng.IntN(n), float32(math.Copysign(0, -1)))
	}
	round(s.Value, q)
	return s
}

// round makes values what others decode of them.
func round(x []float32, q compress.Quantiser) {
	if q == nil {
		return
	}
	b := make([]byte, q.Size(len(x)))
	if err := q.Encode(b, x); err != nil {
		panic(err)
	}
	if err := q.Decode(x, b); err != nil {
		panic(err)
	}
}

// full is the vector with all entries.
func full(rng *rand.Rand, n int, q compress.Quantiser) *compress.Sparse {
	s := &compress.Sparse{}
	s.Reset(n)
	for i := range n {
		s.Append(i, float32(rng.NormFloat64())+3)
	}
	round(s.Value, q)
	return s
}

// inOrder is the naive twin of what is added in the order of ranks.
func inOrder(n int, parts []*compress.Sparse) []float32 {
	x := make([]float32, n)
	for _, p := range parts {
		p.AddTo(x)
	}
	return x
}

// inTree is that of Tree: pairs of neighbours, then pairs of pairs, where the first
// ranks of a number that is no power of two are paired before.
func inTree(n int, parts []*compress.Sparse) []float32 {
	var sums [][]float32
	for _, p := range parts {
		sums = append(sums, inOrder(n, []*compress.Sparse{p}))
	}
	add := func(a, b []float32) []float32 {
		for i := range a {
			a[i] += b[i]
		}
		return a
	}
	full := 1
	for 2*full <= len(sums) {
		full *= 2
	}
	extra := len(sums) - full
	for i := range extra {
		sums[i] = add(sums[2*i], sums[2*i+1])
	}
	copy(sums[extra:full], sums[2*extra:])
	for sums = sums[:full]; len(sums) > 1; sums = sums[:len(sums)/2] {
		for i := range len(sums) / 2 {
			sums[i] = add(sums[2*i], sums[2*i+1])
		}
	}
	return sums[0]
}

func sameBits(what string, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("%s: value %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

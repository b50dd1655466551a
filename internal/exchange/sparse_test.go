package exchange

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/leakcheck"
)

// contributions are those of size ranks to several buckets in a row.
func contributions(size int, seed uint64, q compress.Quantiser) (buckets [][]*compress.Sparse) {
	rng := rand.New(rand.NewPCG(seed, uint64(size)))
	add := func(make func(rank int) *compress.Sparse) {
		var ranks []*compress.Sparse
		for r := range size {
			ranks = append(ranks, make(r))
		}
		buckets = append(buckets, ranks)
	}
	add(func(int) *compress.Sparse { return vector(rng, 1, 1, 1, q) })             // one element
	add(func(int) *compress.Sparse { return vector(rng, 1000, 1, 1, q) })          // one entry
	add(func(int) *compress.Sparse { return vector(rng, 500, 0, 1, nil) })         // none
	add(func(int) *compress.Sparse { return full(rng, 3000, q) })                  // all
	add(func(int) *compress.Sparse { return vector(rng, 33000, 330, 1, q) })       // 1 %
	add(func(int) *compress.Sparse { return vector(rng, 10001, 3000, 3, q) })      // crowded
	add(func(r int) *compress.Sparse { return vector(rng, 5000, r*r*r*40, 1, q) }) // counts that differ
	add(func(r int) *compress.Sparse {                                             // one has all, the others nothing
		if r == size/2 {
			return full(rng, 20000, q)
		}
		return vector(rng, 20000, 0, 1, nil)
	})
	return buckets
}

func clone(s *compress.Sparse) *compress.Sparse {
	return &compress.Sparse{Len: s.Len, Index: append([]int32(nil), s.Index...), Value: append([]float32(nil), s.Value...)}
}

// Every algorithm gives all ranks the bits of its twin, in every code, for any number
// of ranks, whatever they contribute, also again with other entries.
func TestSparseAgainstTwins(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5, 8} {
		for _, name := range append(Algorithms(), "") {
			for i, q := range []compress.Quantiser{nil, compress.FP16{}, compress.BF16{}, compress.Int8{}, compress.Sign{}} {
				if i > 1 && size != 3 || raceDetector && (size != 3 || i == 2 || i == 4) {
					continue // what depends on timing does not depend on these
				}
				t.Run(fmt.Sprintf("%d/%s/%d", size, name, i), func(t *testing.T) {
					testTwins(t, size, name, q)
				})
			}
		}
	}
}

func testTwins(t *testing.T, size int, name string, q compress.Quantiser) {
	leakcheck.Check(t)
	runs := [][][]*compress.Sparse{contributions(size, 1, q), contributions(size, 2, q)}
	wants := map[string][][]float32{}
	for _, run := range runs {
		for _, ranks := range run {
			wants[Tree] = append(wants[Tree], inTree(ranks[0].Len, ranks))
			wants[AllGather] = append(wants[AllGather], inOrder(ranks[0].Len, ranks))
		}
	}
	wants[Split], wants["none"] = wants[AllGather], wants[AllGather]
	results := make([][][]float32, size)
	onRanks(t, size, Config{Algorithm: name, Rebalance: 1}, func(e *GroupReducer, rank int) error {
		var ops []*Request
		for _, run := range runs {
			for b, ranks := range run {
				if len(ops) <= b {
					ops = append(ops, &Request{X: make([]float32, ranks[rank].Len), Lo: 7, Code: q})
				}
				ops[b].Sparse = clone(ranks[rank])
				for i := range ops[b].X {
					ops[b].X[i] = 1e9 // of backward; it must not matter
				}
			}
			for _, op := range ops {
				e.Start(op)
			}
			for b, op := range ops {
				if _, err := e.Wait(op); err != nil {
					return err
				}
				if name != "" && size > 1 && op.Sent.Algorithm != name {
					return fmt.Errorf("%s was used", op.Sent.Algorithm)
				}
				if op.Sent.Algorithm != Dense {
					if err := sameBits(op.Sent.Algorithm, op.X, wants[op.Sent.Algorithm][len(results[rank])]); err != nil {
						return fmt.Errorf("bucket %d: %w", b, err)
					}
				}
				if err := sameBits("the contribution", op.Sparse.Value, run[b][rank].Value); err != nil {
					return err
				}
				results[rank] = append(results[rank], append([]float32(nil), op.X...))
			}
		}
		return nil
	})
	if t.Failed() {
		return
	}
	for r := range results {
		for b := range results[0] {
			if err := sameBits(fmt.Sprintf("rank %d beside rank 0, bucket %d", r, b), results[r][b], results[0][b]); err != nil {
				t.Error(err)
			}
			want := wants[AllGather][b]
			for i, v := range results[r][b] {
				if d := v - want[i]; d > 1e-4 || d < -1e-4 {
					t.Fatalf("rank %d, bucket %d: value %d is %v, want about %v", r, b, i, v, want[i])
				}
			}
		}
	}
}

// More than 4 Mi elements, of which few or many are sent.
func TestLongVectors(t *testing.T) {
	if raceDetector {
		t.Skip("length has no bearing on timing")
	}
	const n, size = 4<<20 + 77, 3
	for _, k := range []int{1, n / 50} {
		rng := rand.New(rand.NewPCG(3, uint64(k)))
		var ranks []*compress.Sparse
		for range size {
			ranks = append(ranks, vector(rng, n, k, 2, nil))
		}
		want := inOrder(n, ranks)
		for _, name := range []string{AllGather, Split} {
			onRanks(t, size, Config{Algorithm: name}, func(e *GroupReducer, rank int) error {
				op := &Request{X: make([]float32, n), Sparse: ranks[rank]}
				if err := do(e, op); err != nil {
					return err
				}
				return sameBits(name, op.X, want)
			})
		}
	}
}

// A sum that may have few entries has few, the largest of each part; what is left out
// comes back. Values are whole, so that nothing is rounded.
func TestMost(t *testing.T) {
	const n = 30000
	for _, size := range []int{2, 3, 8} {
		for _, most := range []int{1, 100, 600} {
			rng := rand.New(rand.NewPCG(4, uint64(size)))
			var ranks []*compress.Sparse
			for range size {
				s := vector(rng, n, 600, 1, nil)
				for i := range s.Value {
					s.Value[i] = float32(rng.IntN(2000) - 1000)
				}
				ranks = append(ranks, s)
			}
			sums, left := make([][]float32, size), make([]*compress.Sparse, size)
			onRanks(t, size, Config{Algorithm: Split}, func(e *GroupReducer, rank int) error {
				op := &Request{X: make([]float32, n), Sparse: clone(ranks[rank]), MaxEntries: most}
				err := do(e, op)
				sums[rank], left[rank] = op.X, op.Sparse
				if op.Sent.Excluded != op.Sparse.Count() {
					return fmt.Errorf("%d entries were left, it says %d", op.Sparse.Count(), op.Sent.Excluded)
				}
				return err
			})
			if t.Failed() {
				return
			}
			present, again := 0, append([]float32(nil), sums[0]...)
			for r := range size {
				if err := sameBits("sums", sums[r], sums[0]); err != nil {
					t.Fatal(err)
				}
				left[r].AddTo(again)
			}
			if err := sameBits("the sum and what was left out", again, inOrder(n, ranks)); err != nil {
				t.Error(err)
			}
			for _, v := range sums[0] {
				if v != 0 {
					present++
				}
			}
			if present > most || present < min(most/2, 600) {
				t.Errorf("%d ranks: %d entries, want at most %d and not far fewer", size, present, most)
			}
		}
	}
}

// Where nothing is left out, by another algorithm or because there is room, the
// contribution stays as it is.
func TestMostIsAPermission(t *testing.T) {
	for _, c := range []Request{{Sent: Result{Algorithm: AllGather}, MaxEntries: 1}, {Sent: Result{Algorithm: Split}, MaxEntries: 20}} {
		onRanks(t, 2, Config{Algorithm: c.Sent.Algorithm}, func(e *GroupReducer, rank int) error {
			s := &compress.Sparse{Len: 5, Index: []int32{1, 2, 3}, Value: []float32{1, 2, 3}}
			op := &Request{X: make([]float32, 5), Sparse: s, MaxEntries: c.MaxEntries}
			if err := do(e, op); err != nil {
				return err
			}
			if op.Sent.Excluded != 0 || s.Count() != 3 {
				return fmt.Errorf("%v was left, %+v", s, op.Sent)
			}
			return errors.Join(sameBits("sum", op.X, []float32{0, 2, 4, 6, 0}), sameBits("contribution", s.Value, []float32{1, 2, 3}))
		})
	}
}

// The rule finds, over ranks that do not agree on what they exchange, who differs.
func TestMismatch(t *testing.T) {
	s := &compress.Sparse{Len: 5, Index: []int32{1}, Value: []float32{1}}
	for what, change := range map[string]func(*Request){
		"length": func(op *Request) { op.X = op.X[:4]; op.Sparse.Len = 4 },
		"place":  func(op *Request) { op.Lo = 3 },
		"most":   func(op *Request) { op.MaxEntries = 2 },
		"code":   func(op *Request) { op.Code = compress.FP16{} },
	} {
		errs := make([]error, 3)
		onRanks(t, 3, Config{}, func(e *GroupReducer, rank int) error {
			op := &Request{X: make([]float32, 5), Sparse: clone(s)}
			if rank == 2 {
				change(op)
			}
			errs[rank] = do(e, op)
			return nil
		})
		for r, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "rank ") || r < 2 && !strings.Contains(err.Error(), "with rank 2") {
				t.Errorf("%s: rank %d: %v", what, r, err)
			}
		}
	}
}

// A bad operation is refused and leaves the others as they are.
func TestBadOperations(t *testing.T) {
	onRanks(t, 2, Config{}, func(e *GroupReducer, rank int) error {
		bad := map[string]*Request{
			"length":   {X: make([]float32, 5), Sparse: &compress.Sparse{Len: 4}},
			"negative": {X: make([]float32, 5), Lo: -1},
			"most":     {X: make([]float32, 5), MaxEntries: -1},
			"order":    {X: make([]float32, 5), Sparse: &compress.Sparse{Len: 5, Index: []int32{2, 2}, Value: []float32{1, 1}}},
			"outside":  {X: make([]float32, 5), Sparse: &compress.Sparse{Len: 5, Index: []int32{5}, Value: []float32{1}}},
		}
		for what, op := range bad {
			if err := do(e, op); err == nil {
				return fmt.Errorf("%s: no error", what)
			}
		}
		op := &Request{X: make([]float32, 5)}
		if _, err := e.Wait(op); err == nil {
			return fmt.Errorf("waiting for what was not started: no error")
		}
		e.Start(op)
		e.Start(op)
		if _, err := e.Wait(op); err == nil || !strings.Contains(err.Error(), "again") {
			return fmt.Errorf("started twice: %v", err)
		}
		op.X[3] = 1
		if err := do(e, op); err != nil {
			return err
		}
		return sameBits("a good one", op.X, []float32{0, 0, 0, 2, 0})
	})
}

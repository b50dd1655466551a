package exchange

import (
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// Beyond a density of 1/N the allgather is never chosen, whatever the length; what is
// chosen costs no more than the others.
func TestChoose(t *testing.T) {
	used := map[string]bool{}
	for _, ranks := range []int{2, 3, 4, 5, 8, 16, 64, 200} {
		for _, n := range []int{1, 2, 100, 3000, 1 << 16, 1 << 20, 1 << 24} {
			for k := 0; k <= n; k += 1 + k/3 {
				s := even(ranks, n, k)
				name := Choose(s)
				used[name] = true
				if name == AllGather && density(s) > 1/float64(ranks) {
					t.Errorf("%+v: allgather at density %v", s, density(s))
				}
				for _, other := range Algorithms() {
					if s.Cost(other).weight() < s.Cost(name).weight() && (other != AllGather || s.Entries <= s.Len) {
						t.Errorf("%+v: %s costs %+v, %s %+v", s, name, s.Cost(name), other, s.Cost(other))
					}
				}
			}
			if n >= 100 && Choose(even(ranks, n, n)) != Dense {
				t.Errorf("%d ranks, %d values: all entries by %s", ranks, n, Choose(even(ranks, n, n)))
			}
		}
	}
	for _, name := range Algorithms() {
		if !used[name] {
			t.Errorf("%s is never chosen", name)
		}
	}
}

func TestExplain(t *testing.T) {
	onRanks(t, 8, Config{}, func(e *GroupReducer, rank int) error {
		if rank > 0 {
			return nil
		}
		text := e.Explain(&Request{X: make([]float32, 1<<20)})
		for _, part := range []string{"1048576 values over 8 ranks, by the fixed rule: ", "allgather to density 0.", "then split to density 0.", ", then dense"} {
			if !strings.Contains(text, part) || !strings.HasSuffix(text, "dense") {
				t.Errorf("%q lacks %q", text, part)
			}
		}
		t.Log(text)
		bounded := e.Explain(&Request{X: make([]float32, 1<<20), MaxEntries: 1})
		if bounded == text || !strings.Contains(bounded, "allgather to density 0.00") || !strings.Contains(bounded, "then split to density 0.") {
			t.Errorf("where a sum has at most as many entries as a rank: %q, want split from lower densities on", bounded)
		}
		return nil
	})
	onRanks(t, 2, Config{Algorithm: Tree}, func(e *GroupReducer, rank int) error {
		if text := e.Explain(&Request{X: make([]float32, 50)}); text != "50 values over 2 ranks, as configured: tree" {
			t.Error(text)
		}
		if err := e.Use(Choose); err == nil {
			t.Error("a choice that has no effect was accepted")
		}
		return nil
	})
}

// A tuned choice is asked with what all ranks know, and shown.
func TestTunedChoice(t *testing.T) {
	asked := make([]Situation, 3)
	meshes := mem.New(3)
	groups := make([]*GroupReducer, 3)
	var wg sync.WaitGroup
	for r, m := range meshes {
		g, err := collective.New(m, collective.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if groups[r], err = NewGroupReducer(g, Config{Choose: func(s Situation) string { asked[r] = s; return Tree }}); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			op := &Request{X: make([]float32, 100), Sparse: &compress.Sparse{Len: 100}}
			for i := range r + 1 {
				op.Sparse.Append(i, 1)
			}
			if err := do(groups[r], op); err != nil || op.Sent.Algorithm != Tree || op.X[0] != 3 {
				t.Errorf("rank %d: %v, %+v", r, err, op.Sent)
			}
			if err := groups[r].Use(func(Situation) string { return Split }); err != nil {
				t.Error(err)
			}
			if err := do(groups[r], op); err != nil || op.Sent.Algorithm != Split || op.X[0] != 3 {
				t.Errorf("rank %d: %v, %+v", r, err, op.Sent)
			}
		})
	}
	wg.Wait()
	for r, s := range asked {
		groups[r].Close()
		groups[r].g.Close()
		meshes[r].Close()
		if s != asked[0] || s.Entries != 1+2+3 || s.Len != 100 || s.Ranks != 3 || s.Payload <= 0 {
			t.Errorf("rank %d was asked with %+v", r, s)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero configuration: %v", err)
	}
	err := Config{Algorithm: "magic", Choose: Choose, Rebalance: -3}.Validate()
	for _, part := range []string{`"magic"`, "allgather, tree, split, dense", "one of them", "-3"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if _, err := NewGroupReducer(nil, Config{Rebalance: -1}); err == nil {
		t.Error("Over took a bad configuration")
	}
}

// density is the mean share of values that one rank contributes.
func density(s Situation) float64 { return float64(s.Entries) / float64(s.Ranks) / float64(s.Len) }

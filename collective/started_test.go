package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// twin is an operation that blocks beside the one that is started: each makes its operands out of this rank's values,
// returns what it has changed, and must come to the same bits.
type twin struct {
	name     string
	blocking func(g *Group, x []float32, root int) ([]float32, error)
	started  func(g *Group, x []float32, root int) ([]float32, *Work)
}

// counts are uneven: rank from has so many values for rank to.
func counts(from, to int) int { return (3*from + 5*to) % 7 * 11 }

// swapped are the operands of an all-to-all of uneven parts.
func swapped(g *Group, x []float32) (dst, src []float32, sends, recvs []int) {
	out, in := 0, 0
	for r := range g.Size() {
		sends, recvs = append(sends, counts(g.Rank(), r)), append(recvs, counts(r, g.Rank()))
		out, in = out+sends[r], in+recvs[r]
	}
	for len(src) < out {
		src = append(src, x...)
	}
	return make([]float32, in), src[:out], sends, recvs
}

// atRoot is room for n values of each rank, at the root alone.
func atRoot(g *Group, n, root int) []float32 {
	if g.Rank() != root {
		return nil
	}
	return make([]float32, n*g.Size())
}

// spread is this rank's values once for each rank, at the root alone.
func spread(g *Group, x []float32, root int) []float32 {
	if g.Rank() != root {
		return nil
	}
	return slices.Repeat(x, g.Size())
}

var twins = []twin{
	{
		"allreduce",
		func(g *Group, x []float32, _ int) ([]float32, error) { return x, AllReduce(g, x, Mean) },
		func(g *Group, x []float32, _ int) ([]float32, *Work) { return x, StartAllReduce(g, x, Mean) },
	}, {
		"reduce",
		func(g *Group, x []float32, root int) ([]float32, error) { return x, Reduce(g, x, Sum, root) },
		func(g *Group, x []float32, root int) ([]float32, *Work) { return x, StartReduce(g, x, Sum, root) },
	}, {
		"broadcast",
		func(g *Group, x []float32, root int) ([]float32, error) { return x, Broadcast(g, x, root) },
		func(g *Group, x []float32, root int) ([]float32, *Work) { return x, StartBroadcast(g, x, root) },
	}, {
		"reduce-scatter",
		func(g *Group, x []float32, _ int) ([]float32, error) {
			dst := make([]float32, len(x))
			return dst, ReduceScatter(g, dst, slices.Repeat(x, g.Size()), Sum)
		},
		func(g *Group, x []float32, _ int) ([]float32, *Work) {
			dst := make([]float32, len(x))
			return dst, StartReduceScatter(g, dst, slices.Repeat(x, g.Size()), Sum)
		},
	}, {
		"allgather",
		func(g *Group, x []float32, _ int) ([]float32, error) {
			dst := make([]float32, len(x)*g.Size())
			return dst, AllGather(g, dst, x)
		},
		func(g *Group, x []float32, _ int) ([]float32, *Work) {
			dst := make([]float32, len(x)*g.Size())
			return dst, StartAllGather(g, dst, x)
		},
	}, {
		"gather",
		func(g *Group, x []float32, root int) ([]float32, error) {
			dst := atRoot(g, len(x), root)
			return dst, Gather(g, dst, x, root)
		},
		func(g *Group, x []float32, root int) ([]float32, *Work) {
			dst := atRoot(g, len(x), root)
			return dst, StartGather(g, dst, x, root)
		},
	}, {
		"scatter",
		func(g *Group, x []float32, root int) ([]float32, error) {
			dst := make([]float32, len(x))
			return dst, Scatter(g, dst, spread(g, x, root), root)
		},
		func(g *Group, x []float32, root int) ([]float32, *Work) {
			dst := make([]float32, len(x))
			return dst, StartScatter(g, dst, spread(g, x, root), root)
		},
	}, {
		"all-to-all",
		func(g *Group, x []float32, _ int) ([]float32, error) {
			dst := make([]float32, len(x)*g.Size())
			return dst, AllToAll(g, dst, slices.Repeat(x, g.Size()))
		},
		func(g *Group, x []float32, _ int) ([]float32, *Work) {
			dst := make([]float32, len(x)*g.Size())
			return dst, StartAllToAll(g, dst, slices.Repeat(x, g.Size()))
		},
	}, {
		"all-to-all of uneven parts",
		func(g *Group, x []float32, _ int) ([]float32, error) {
			dst, src, sends, recvs := swapped(g, x)
			return dst, AllToAllV(g, dst, src, sends, recvs)
		},
		func(g *Group, x []float32, _ int) ([]float32, *Work) {
			dst, src, sends, recvs := swapped(g, x)
			w := StartAllToAllV(g, dst, src, sends, recvs)
			clear(sends) // the counts may change at once
			clear(recvs)
			return dst, w
		},
	},
}

// What is started and waited for comes to the bits of what blocks, with all operations in flight at once, over every mesh.
func TestStartedAreTheBlocking(t *testing.T) {
	for name, meshes := range map[string]func(n int) []transport.Mesh{
		"mem":    mem.New,
		"shared": func(n int) []transport.Mesh { return mem.NewShared(n, 1<<20) },
		"tcp":    func(n int) []transport.Mesh { return tcpMeshes(t, n) },
	} {
		for _, size := range []int{1, 2, 3, 5} {
			for rank, err := range onMeshes(t, meshes(size), Config{}, startedAndBlocking) {
				if err != nil {
					t.Errorf("%s, rank %d of %d: %v", name, rank, size, err)
				}
			}
		}
	}
}

func startedAndBlocking(g *Group) error {
	type result struct {
		what      string
		got, want []float32
		work      *Work
	}
	var results []result
	for _, n := range []int{1, 37, 5000} {
		for _, o := range twins {
			rng := rand.New(rand.NewPCG(uint64(g.Rank()), uint64(n)))
			x := make([]float32, n)
			for i := range x {
				x[i] = rng.Float32() - 0.5
			}
			root := n % g.Size()
			want, err := o.blocking(g, slices.Clone(x), root)
			if err != nil {
				return fmt.Errorf("%s of %d: %w", o.name, n, err)
			}
			got, work := o.started(g, x, root)
			results = append(results, result{fmt.Sprintf("%s of %d", o.name, n), got, want, work})
		}
	}
	var errs []error
	for _, r := range slices.Backward(results) {
		if err := r.work.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.what, err))
		} else if err := same(r.what, r.got, r.want); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// A wrong root and counts that do not fit are refused when they are started, too.
func TestStartedRefusals(t *testing.T) {
	onRanks(t, 2, Config{}, func(g *Group) error {
		x := make([]float32, 4)
		for name, w := range map[string]*Work{
			"reduce":     StartReduce(g, x, Sum, 2),
			"scatter":    StartScatter(g, x, nil, -1),
			"all-to-all": StartAllToAllV(g, x, x, []int{2, 1}, []int{2, 2}),
		} {
			if op := (*OpError)(nil); !errors.As(w.Wait(), &op) || op.Peer != g.Rank() {
				return fmt.Errorf("%s: %v", name, w.Wait())
			}
		}
		return Barrier(g)
	})
}

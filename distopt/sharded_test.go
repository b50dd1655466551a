package distopt

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// shared is one rank whose arenas lie in memory that all ranks share.
type shared struct {
	g             *collective.Group
	o             *Optimizer
	opt           optim.Optimizer
	layers        []bucket.Param
	params, grads []float32
	step          int
}

// onShared runs fn on ranks that share memory, and returns what each returned.
func onShared[T any](t *testing.T, size int, fn func(g *collective.Group, w *transport.SharedMemory) (T, error)) []T {
	t.Helper()
	out, errs := sharedRanks(size, fn)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return out
}

func sharedRanks[T any](size int, fn func(g *collective.Group, w *transport.SharedMemory) (T, error)) (out []T, errs []error) {
	out, errs = make([]T, size), make([]error, size)
	done := make(chan struct{})
	for _, m := range mem.NewShared(size, 4<<20) {
		go func() {
			defer func() { done <- struct{}{} }()
			errs[m.Rank()] = onMesh(m, func(g *collective.Group) (err error) {
				out[m.Rank()], err = fn(g, transport.SharedMemoryOf(m))
				return err
			})
		}()
	}
	for range size {
		<-done
	}
	return out, errs
}

func newShared(g *collective.Group, w *transport.SharedMemory, opt optim.Optimizer, cfg Config) (*shared, error) {
	s := &shared{g: g, opt: opt, layers: toy()}
	n := total(s.layers)
	s.params, s.grads = inArena(w, make([]float32, n)), inArena(w, make([]float32, n))
	for i := range s.params {
		s.params[i] = float32(i%7) - 3
	}
	var err error
	if s.o, err = New(g, opt, s.layers, s.params, s.grads, nil, cfg); err == nil {
		err = s.o.Broadcast()
	}
	return s, err
}

func (s *shared) train(steps int) error {
	for range steps {
		backward(s.o, s.grads, s.step, s.g.Rank(), s.o.cfg.Accumulation, []int{0, 1, 2, 3, 4, 5, 6})
		s.step++
		if err := s.o.Step(); err != nil {
			return err
		}
	}
	return nil
}

// result is what a rank has in the end.
type result struct {
	params []float32
	state  []optim.State
	own    [][]float32 // the state before it was gathered
}

func (s *shared) end() (out result, err error) {
	for _, st := range s.opt.State() {
		out.own = append(out.own, slices.Clone(st.Data))
	}
	if err = s.o.GatherState(0); err != nil {
		return out, err
	}
	for _, st := range s.opt.State() {
		out.state = append(out.state, optim.State{Name: st.Name, Data: slices.Clone(st.Data)})
	}
	out.params = slices.Clone(s.params)
	return out, s.o.Close()
}

var sharedRules = map[string]func() optim.Optimizer{
	"sgd":      func() optim.Optimizer { return &optim.SGD{LR: 0.1} },
	"momentum": func() optim.Optimizer { o := testSGD; return &o },
	"adagrad":  func() optim.Optimizer { return optim.NewAdagrad(0.1) },
	"adamw":    func() optim.Optimizer { return optim.NewAdamW(0.01) },
	"ftrl":     func() optim.Optimizer { return optim.NewFTRL(0.1) },
}

// Ranks that share the update end with the bits of ranks that make all of it, and rank 0
// with all of the optimizer's state.
func TestShardedEqualsWhole(t *testing.T) {
	for name, rule := range sharedRules {
		sizes := []int{3}
		if name == "momentum" && !raceDetector {
			sizes = []int{2, 3, 5}
		}
		for _, size := range sizes {
			for i, cfg := range []Config{
				{}, {Plan: PlanOne}, {Plan: PlanPerLayer}, {ClipNorm: 1.5}, {ClipNorm: 0.5, Plan: PlanPerLayer, Accumulation: 2},
				{ClipNorm: 1e9, Plan: PlanFixed, BucketBytes: 20000},
			} {
				if name != "momentum" && i != 4 && testing.Short() {
					continue // time
				}
				run := func(u Update) []result {
					return onShared(t, size, func(g *collective.Group, w *transport.SharedMemory) (result, error) {
						cfg := cfg
						cfg.Update = u
						s, err := newShared(g, w, rule(), cfg)
						if err != nil {
							return result{}, err
						}
						if s.o.Sharded() != (u == UpdateSharded) {
							return result{}, fmt.Errorf("update %q: sharded is %v", u, s.o.Sharded())
						}
						if err := s.train(5); err != nil {
							return result{}, err
						}
						return s.end()
					})
				}
				what := fmt.Sprintf("%s, %d ranks, %+v", name, size, cfg)
				equalRuns(t, what, run(UpdateWhole), run(UpdateSharded))
			}
		}
	}
}

func equalRuns(t *testing.T, what string, want, got []result) {
	t.Helper()
	for r := range got {
		if !slices.Equal(got[r].params, want[0].params) {
			t.Errorf("%s: parameters of rank %d differ", what, r)
		}
	}
	for i, st := range got[0].state {
		if !slices.Equal(st.Data, want[0].state[i].Data) {
			t.Errorf("%s: state %q of rank 0 differs", what, st.Name)
		}
	}
}

// Each rank brings forward the state of its own part alone.
func TestShardedStateIsApart(t *testing.T) {
	const size = 4
	runs := onShared(t, size, func(g *collective.Group, w *transport.SharedMemory) (result, error) {
		s, err := newShared(g, w, sharedRules["momentum"](), Config{Plan: PlanOne})
		if err != nil {
			return result{}, err
		}
		if err := s.train(3); err != nil {
			return result{}, err
		}
		return s.end()
	})
	whole := runs[0].state[0].Data
	for i, v := range whole {
		owners := 0
		for _, r := range runs {
			if r.own[0][i] != 0 {
				owners++
			}
		}
		if v == 0 || owners != 1 {
			t.Fatalf("the velocity of value %d is %v and lies on %d ranks, want one", i, v, owners)
		}
	}
	for r := 1; r < size; r++ {
		if !slices.Equal(runs[r].own[0], runs[r].state[0].Data) {
			t.Errorf("rank %d got what was gathered for rank 0", r)
		}
	}
}

// Plans and strategies may change in mid-run: owners change with them, and where a strategy
// has none each rank needs all of the state.
func TestShardedThroughChanges(t *testing.T) {
	for _, clip := range []float64{0, 1} {
		run := func(u Update) []result {
			return onShared(t, 3, func(g *collective.Group, w *transport.SharedMemory) (result, error) {
				s, err := newShared(g, w, sharedRules["adamw"](), Config{Update: u, ClipNorm: clip})
				if err != nil {
					return result{}, err
				}
				set := func(st Strategy) func() error { return func() error { return s.o.SetStrategy(st) } }
				for i, change := range []func() error{
					func() error { return nil },
					func() error { return s.o.SetPlan(PlanPerLayer, bucket.PerLayer(s.layers)) },
					set(BF16), set(FP32), set(DLGS), set(FP32), set(PartialUpdate), set(FP32),
					func() error { return s.o.SetPlan(PlanOne, bucket.One(s.layers)) },
					func() error { // back to another state
						if err := s.o.GatherState(0); err != nil {
							return err
						}
						if g.Rank() == 0 {
							for i := range s.opt.State()[0].Data {
								s.opt.State()[0].Data[i] = float32(i%11) / 16
							}
						}
						return s.o.Broadcast()
					},
					func() error { return s.o.SetSharding(false) },
					func() error { return s.o.SetSharding(true) },
				} {
					if err := errors.Join(change(), s.train(2)); err != nil {
						return result{}, fmt.Errorf("after change %d: %w", i, err)
					}
				}
				if want := u != UpdateWhole; s.o.Sharded() != want {
					return result{}, fmt.Errorf("update %q: sharded is %v in the end", u, s.o.Sharded())
				}
				return s.end()
			})
		}
		equalRuns(t, fmt.Sprintf("clip %v", clip), run(UpdateWhole), run(""))
	}
}

func TestShardedRefusals(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Update: "half"}, `Config.Update "half" is not known: use whole or sharded`},
		{Config{Update: UpdateSharded, Strategy: BF16}, `Config.Update sharded is for exchange.strategy fp32`},
		{Config{Update: UpdateSharded, ClipValue: 1}, `Config.Update sharded is for exchange.strategy fp32 without exchange.clip-value`},
	} {
		if err := c.cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c.cfg, err)
		}
	}
	// Where one rank's values lie elsewhere none shares, and who insists is told by all.
	for _, insist := range []bool{false, true} {
		_, errs := sharedRanks(3, func(g *collective.Group, w *transport.SharedMemory) (struct{}, error) {
			layers := toy()
			params, grads := inArena(w, make([]float32, total(layers))), inArena(w, make([]float32, total(layers)))
			if g.Rank() == 1 {
				params = make([]float32, total(layers))
			}
			cfg := Config{}
			if insist {
				cfg.Update = UpdateSharded
			}
			o, err := New(g, &optim.SGD{LR: 0.1}, layers, params, grads, nil, cfg)
			if err != nil {
				return struct{}{}, err
			}
			if o.Sharded() {
				return struct{}{}, errors.New("shared although one rank cannot")
			}
			return struct{}{}, o.Close()
		})
		for r, err := range errs {
			want := `update "sharded": another rank cannot: see its error: use update "whole"`
			if r == 1 {
				want = `update "sharded": parameters: the values are not in memory that the ranks share: use`
			}
			if insist && (err == nil || !strings.Contains(err.Error(), want)) || !insist && err != nil {
				t.Errorf("insisting %v, rank %d: %v", insist, r, err)
			}
		}
	}
}

// A gradient that is not finite is named by its layer on all ranks, whoever owns it.
func TestShardedNormNamesTheLayer(t *testing.T) {
	for _, u := range []Update{UpdateWhole, UpdateSharded} {
		for _, value := range []float64{math.NaN(), math.Inf(-1)} {
			_, errs := sharedRanks(2, func(g *collective.Group, w *transport.SharedMemory) (struct{}, error) {
				s, err := newShared(g, w, &optim.SGD{LR: 0.1}, Config{ClipNorm: 1, Update: u})
				if err != nil {
					return struct{}{}, err
				}
				if g.Rank() == 1 {
					s.grads[s.layers[4].Offset+16000] = float32(value)
				}
				for l := range s.layers {
					s.o.GradReady(l)
				}
				return struct{}{}, s.o.Step()
			})
			for r, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "first in layer layer4") {
					t.Errorf("%s, %v: rank %d says %v", u, value, r, err)
				}
			}
		}
	}
}

// A lost rank is an error of the step, nothing is left under way, and later steps have the
// same error.
func TestShardedFault(t *testing.T) {
	_, errs := sharedRanks(3, func(g *collective.Group, w *transport.SharedMemory) (struct{}, error) {
		s, err := newShared(g, w, testRule(), Config{Plan: PlanPerLayer})
		if err == nil {
			err = s.train(2)
		}
		if err != nil {
			return struct{}{}, err
		}
		if g.Rank() == 2 {
			return struct{}{}, errors.New("lost")
		}
		first := s.train(1)
		if again := s.o.Step(); again != first {
			return struct{}{}, fmt.Errorf("first %w, then %w", first, again)
		}
		for _, h := range s.o.shards.list {
			if h.work != nil {
				return struct{}{}, errors.New("an exchange is still under way")
			}
		}
		return struct{}{}, first
	})
	for r, err := range errs[:2] {
		var at *Error
		if !errors.As(err, &at) || at.Step != 2 || at.Bucket != 0 {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func testRule() optim.Optimizer { o := testSGD; return &o }

func TestShardedStepAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for _, clip := range []float64{0, 1} {
		onShared(t, 2, func(g *collective.Group, w *transport.SharedMemory) (struct{}, error) {
			s, err := newShared(g, w, testRule(), Config{ClipNorm: clip, Plan: PlanPerLayer})
			if err != nil {
				return struct{}{}, err
			}
			step := func() {
				for l := range s.layers {
					s.o.GradReady(l)
				}
				err = errors.Join(err, s.o.Step())
			}
			for range 10 {
				step()
			}
			if per := testing.AllocsPerRun(50, step); per >= 1 && g.Rank() == 0 {
				return struct{}{}, fmt.Errorf("clip %v: %v allocations in a step of two ranks", clip, per)
			}
			return struct{}{}, err
		})
	}
}

// Parts are whole pieces of about equal size, and the norm does not depend on who sums what.
func TestPieces(t *testing.T) {
	layers := toy()
	p := piecesOf(layers)
	for i, at := range p.starts[:len(p.starts)-1] {
		if n := p.starts[i+1] - at; n < 1 || n > pieceValues {
			t.Errorf("piece %d has %d values", i, n)
		}
	}
	for _, l := range layers {
		if !slices.Contains(p.starts, l.Offset) {
			t.Errorf("no piece begins at %s", l.Name)
		}
	}
	for _, b := range slices.Concat(bucket.One(layers), bucket.PerLayer(layers)) {
		for ranks := 1; ranks < 9; ranks++ {
			counts, at := p.cut(b.Lo, b.Hi, ranks), 0
			for r, n := range counts {
				if at += n; n < 0 || !slices.Contains(p.starts, b.Lo+at) {
					t.Fatalf("[%d, %d) for %d ranks is cut into %v", b.Lo, b.Hi, ranks, counts)
				}
				if ideal := b.Len() * (r + 1) / ranks; b.Len() > pieceValues && (at-ideal > pieceValues/2 || ideal-at > pieceValues/2) {
					t.Errorf("[%d, %d) for %d ranks is cut into %v: part %d should end near %d", b.Lo, b.Hi, ranks, counts, r, ideal)
				}
			}
			if at != b.Len() {
				t.Fatalf("[%d, %d) is cut into %v", b.Lo, b.Hi, counts)
			}
		}
	}
	x := make([]float32, total(layers))
	gradient(x, 1, 1, 1)
	want := 0.0
	for _, v := range x {
		want += float64(v) * float64(v)
	}
	if p.measure(simd.Host(), x); math.Abs(p.sum()-want) > 1e-12*want {
		t.Errorf("the squares add up to %v, want %v", p.sum(), want)
	}
}

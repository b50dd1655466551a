package aggregate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// small makes segments of few values, so that short exchanges have many.
var small = Config{SegmentBytes: minSegment}

// lengths are of exchanges, odd ones and those at the edges of segments and blocks.
var lengths = []int{1, 3, 255, 256, 257, 1023, 5003, 0}

// Sums have the bits of the naive twin, on every trainer, for every code, with any
// number of trainers and servers.
func TestDense(t *testing.T) {
	leakcheck.Check(t)
	for _, trainers := range []int{1, 2, 5} {
		for _, servers := range []int{1, 3} {
			onTrainers(t, trainers, servers, small, func(c *Client) error {
				for turn, n := range lengths {
					for _, q := range Codes() {
						var inputs [][]float32
						for r := range trainers {
							inputs = append(inputs, decoded(t, q, gradient(n, r, turn)))
						}
						op := &exchange.Request{X: slices.Clone(inputs[c.rank()]), Lo: 7, Code: q}
						if err := reduce(c, op); err != nil {
							return err
						}
						if err := sameBits(fmt.Sprintf("%s of %d", q.Name(), n), op.X, naiveDense(t, q, inputs)); err != nil {
							return err
						}
						want := int64(headBytes * servers)
						for s := range servers {
							lo, hi := newLayout(n, q.Block(), 1, servers).bounds(s)
							want += int64(q.Size(hi - lo))
						}
						if err := sameLoss(t, c, op, q, inputs); err != nil {
							return fmt.Errorf("%s of %d: %w", q.Name(), n, err)
						}
						if sent := op.Sent; sent.Bytes != want || sent.Entries != n || !sent.Dense || sent.Algorithm != Algorithm {
							return fmt.Errorf("%s of %d: sent %+v, want %d bytes", q.Name(), n, sent, want)
						}
					}
				}
				return nil
			})
		}
	}
}

// sameLoss compares what is left with a trainer with what the sum lost, at the places that
// it would sum without servers.
func sameLoss(t *testing.T, c *Client, op *exchange.Request, q compress.Quantiser, inputs [][]float32) error {
	want, got := make([]float32, len(op.X)), make([]float32, len(op.X))
	if q.Block() > 1 && len(inputs) > 1 {
		sum := naiveDense(t, compress.FP32{}, inputs)
		blocks := (len(want) + q.Block() - 1) / q.Block()
		for i := range want {
			if b := i / q.Block(); b >= blocks*c.rank()/len(inputs) && b < blocks*(c.rank()+1)/len(inputs) {
				want[i] = sum[i] - op.X[i]
			}
		}
	}
	for _, l := range op.SumError {
		copy(got[l.At:], l.Values)
	}
	return sameBits("what is left", got, want)
}

// Float32 sums have the bits of the naive collective allreduce.
func TestNaiveCollective(t *testing.T) {
	leakcheck.Check(t)
	for _, trainers := range []int{2, 3, 4} {
		for _, servers := range []int{1, 2, 3} {
			meshes := mem.New(trainers + servers)
			for r, err := range onMeshes(t, meshes, Config{Trainers: trainers, SegmentBytes: 4096}, func(c *Client) error {
				g, err := collective.New(c.mesh, collective.Config{Algorithm: collective.Naive, Ranks: []int{0, 1, 2, 3}[:trainers]})
				if err != nil {
					return err
				}
				defer g.Close()
				for turn := range 20 {
					x := gradient(1+turn*997, c.rank(), turn)
					want := slices.Clone(x)
					op := &exchange.Request{X: x}
					c.Start(op)
					if err := collective.AllReduce(g, want, collective.Sum); err != nil {
						return err
					}
					if _, err := c.Wait(op); err != nil {
						return err
					}
					if err := sameBits(fmt.Sprintf("turn %d", turn), x, want); err != nil {
						return err
					}
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("%s of %d and %d: %v", role(r, trainers), trainers, servers, err)
				}
			}
		}
	}
}

// Sparse sums are those of the vectors in the order of ranks, whatever code their
// values travelled in and wherever the cuts are: nothing is coded a second time.
func TestSparse(t *testing.T) {
	leakcheck.Check(t)
	for _, trainers := range []int{1, 3} {
		for _, servers := range []int{1, 3} {
			onTrainers(t, trainers, servers, small, func(c *Client) error {
				for turn, n := range lengths {
					for _, share := range []float64{0, 0.01, 0.6, 1} {
						for _, q := range Codes() {
							if err := sparseTurn(t, c, trainers, n, turn, share, q); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		}
	}
}

func sparseTurn(t *testing.T, c *Client, trainers, n, turn int, share float64, q compress.Quantiser) error {
	what := fmt.Sprintf("%s, %v of %d", q.Name(), share, n)
	var inputs []*compress.Sparse
	for r := range trainers {
		mine := share
		if r == trainers-1 && turn%3 == 0 {
			mine = 0 // nothing to say
		}
		inputs = append(inputs, entries(t, n, r, turn, mine, q))
	}
	own := inputs[c.rank()]
	kept := compress.Sparse{Len: own.Len, Index: slices.Clone(own.Index), Value: slices.Clone(own.Value)}
	op := &exchange.Request{X: gradient(n, 9, 9), Sparse: own, Code: q} // what X holds does not matter
	if err := reduce(c, op); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !slices.Equal(own.Index, kept.Index) || sameBits("", own.Value, kept.Value) != nil {
		return fmt.Errorf("%s: the contribution was changed", what)
	}
	if op.Sent.Dense || op.Sent.Entries != own.Count() {
		return fmt.Errorf("%s: sent %+v", what, op.Sent)
	}
	return sameBits(what, op.X, naiveSparse(inputs))
}

// Where entries are few, the sum travels as entries.
func TestSparseIsShort(t *testing.T) {
	const n = 100000
	meshes := mem.New(3)
	for _, err := range onMeshes(t, meshes, Config{Trainers: 2}, func(c *Client) error {
		s := entries(t, n, c.rank(), 1, 0.01, compress.FP32{})
		op := &exchange.Request{X: make([]float32, n), Sparse: s}
		if err := reduce(c, op); err != nil {
			return err
		}
		if c.rank() > 0 {
			return nil
		}
		for what, bytes := range map[string]int64{"pushed": op.Sent.Bytes, "pulled": c.mesh.Traffic().PayloadReceived} {
			if most := int64(2 * 1.2 * 0.01 * n * 6); bytes > most {
				return fmt.Errorf("%d bytes %s for 1 %% of %d values, want at most %d", bytes, what, n, most)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// Many exchanges are under way at once and may be waited for in any order; an Op
// serves again.
func TestInFlight(t *testing.T) {
	leakcheck.Check(t)
	onTrainers(t, 3, 2, small, func(c *Client) error {
		ops := make([]exchange.Request, 40)
		for turn := range 5 {
			for i := range ops {
				ops[i].X = gradient(i*97, c.rank(), turn*100+i)
				c.Start(&ops[i])
			}
			for k := range ops {
				i := (k*7 + turn) % len(ops)
				end, err := c.Wait(&ops[i])
				if err != nil || end.IsZero() {
					return fmt.Errorf("op %d: %v, %w", i, end, err)
				}
				var inputs [][]float32
				for r := range 3 {
					inputs = append(inputs, gradient(i*97, r, turn*100+i))
				}
				if err := sameBits(fmt.Sprintf("op %d", i), ops[i].X, naiveDense(t, compress.FP32{}, inputs)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Over connections as in memory, in segments of the usual length.
func TestOverTCP(t *testing.T) {
	leakcheck.Check(t)
	for r, err := range onMeshes(t, tcpMeshes(t, 4), Config{Trainers: 2}, func(c *Client) error {
		for turn := range 2 {
			big := &exchange.Request{X: gradient(400_001, c.rank(), turn)}
			sparse := &exchange.Request{X: make([]float32, 50001), Sparse: entries(t, 50001, c.rank(), turn, 0.05, compress.Int8{}), Code: compress.Int8{}}
			c.Start(big)
			c.Start(sparse)
			for _, op := range []*exchange.Request{big, sparse} {
				if _, err := c.Wait(op); err != nil {
					return err
				}
			}
			want := [][]float32{gradient(400_001, 0, turn), gradient(400_001, 1, turn)}
			if err := sameBits("big", big.X, naiveDense(t, compress.FP32{}, want)); err != nil {
				return err
			}
			parts := []*compress.Sparse{entries(t, 50001, 0, turn, 0.05, compress.Int8{}), entries(t, 50001, 1, turn, 0.05, compress.Int8{})}
			if err := sameBits("sparse", sparse.X, naiveSparse(parts)); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("%s: %v", role(r, 2), err)
		}
	}
}

// Where the sum may keep the largest entries only, it keeps all: nothing is left out.
func TestMost(t *testing.T) {
	onTrainers(t, 2, 1, Config{}, func(c *Client) error {
		inputs := []*compress.Sparse{entries(t, 1000, 0, 0, 0.1, compress.FP32{}), entries(t, 1000, 1, 0, 0.1, compress.FP32{})}
		op := &exchange.Request{X: make([]float32, 1000), Sparse: entries(t, 1000, c.rank(), 0, 0.1, compress.FP32{}), MaxEntries: 10}
		sent := op.Sparse.Count()
		if err := reduce(c, op); err != nil {
			return err
		}
		if op.Sent.Excluded != 0 || op.Sparse.Count() != sent || op.Sent.Entries != sent {
			return fmt.Errorf("%d of %d entries are there, sent %+v", op.Sparse.Count(), sent, op.Sent)
		}
		return sameBits("sum", op.X, naiveSparse(inputs))
	})
}

// A code of one's own works, if the server knows it.
func TestOwnCode(t *testing.T) {
	cfg := Config{SegmentBytes: minSegment, Codes: []compress.Quantiser{doubled{}}}
	onTrainers(t, 2, 2, cfg, func(c *Client) error {
		var inputs [][]float32
		for r := range 2 {
			inputs = append(inputs, gradient(1001, r, 1))
		}
		op := &exchange.Request{X: gradient(1001, c.rank(), 1), Code: doubled{}}
		if err := reduce(c, op); err != nil {
			return err
		}
		return sameBits("sum", op.X, naiveDense(t, doubled{}, inputs))
	})
}

// doubled is float32 in blocks of 6 with another number.
type doubled struct{ compress.FP32 }

func (doubled) Name() string { return "doubled" }
func (doubled) Code() byte   { return 200 }
func (doubled) Block() int   { return 6 }

// A steady exchange allocates nothing, on neither side.
func TestAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for _, q := range []compress.Quantiser{compress.FP32{}, compress.FP16{}, compress.Int8{}} {
		for _, sparse := range []bool{false, true} {
			onTrainers(t, 2, 2, small, func(c *Client) error {
				ops := make([]exchange.Request, 3)
				for i := range ops {
					ops[i] = exchange.Request{X: make([]float32, 5000), Code: q}
					if sparse {
						ops[i].Sparse = entries(t, 5000, c.rank(), i, 0.05, q)
					}
				}
				step := func() {
					for i := range ops {
						c.Start(&ops[i])
					}
					for i := range ops {
						if _, err := c.Wait(&ops[i]); err != nil {
							t.Error(err)
						}
					}
				}
				for range 20 {
					step()
				}
				const steps = 50
				if c.rank() > 0 {
					for range steps + 1 {
						step()
					}
					return nil
				}
				if per := testing.AllocsPerRun(steps, step); per >= 1 {
					return fmt.Errorf("%s, sparse %v: %v allocations", q.Name(), sparse, per)
				}
				return nil
			})
		}
	}
}

// What a server holds does not grow with the exchange.
func TestBoundedMemory(t *testing.T) {
	meshes := mem.New(3)
	cfg := Config{Trainers: 2, SegmentBytes: 4096}
	s, err := NewServer(meshes[2], cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 3)
	go func() { done <- s.Run(t.Context()) }()
	for _, m := range meshes[:2] {
		go func() {
			c, err := NewClient(m, cfg)
			if err == nil {
				err = reduce(c, &exchange.Request{X: make([]float32, 1<<20)})
				c.Close()
			}
			done <- err
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	held := cap(s.acc.floats) + cap(s.part.floats)
	for i := range s.trainers {
		for k := range s.trainers[i].slots {
			held += cap(s.trainers[i].slots[k].body.floats)
		}
	}
	for i := range s.sums {
		held += cap(s.sums[i].room.floats)
	}
	if most := 3 * maxInFlight * 1024; held > most {
		t.Errorf("the server holds %d values for an exchange of %d, want at most %d", held, 1<<20, most)
	}
	closeAll(meshes)
}

func closeAll(meshes []transport.Mesh) {
	for _, m := range meshes {
		m.Close()
	}
}

// A layout covers all values once, in whole blocks, evenly.
func TestLayout(t *testing.T) {
	for _, n := range append(lengths, 100003) {
		for _, block := range []int{1, 6, 256} {
			for _, servers := range []int{1, 2, 3, 7} {
				l, at := newLayout(n, block, 700, servers), 0
				least, most := n, 0
				for s := range servers {
					lo, hi := l.bounds(s)
					least, most = min(least, hi-lo), max(most, hi-lo)
					for k := range l.segments(s) {
						from, to := l.at(s, k)
						if from != at || to <= from || from%block != 0 || to-from > l.segment || to%block != 0 && to != n {
							t.Fatalf("%v, blocks of %d: segment %d of server %d is %d to %d, after %d", l, block, k, s, from, to, at)
						}
						at = to
					}
					if at != hi || l.segments(s) > l.rounds() {
						t.Fatalf("%v: server %d ends at %d, want %d", l, s, at, hi)
					}
				}
				if at != n || most-least > 2*block {
					t.Fatalf("%v: %d values are covered, by %d to %d for each server", l, at, least, most)
				}
			}
		}
	}
}

// What members send is what docs/costs.md says.
func TestCosts(t *testing.T) {
	const n = 10007
	for _, trainers := range []int{1, 3} {
		for _, servers := range []int{1, 2} {
			for _, q := range []compress.Quantiser{compress.FP32{}, compress.BF16{}, compress.Int8{}} {
				meshes := mem.New(trainers + servers)
				for _, err := range onMeshes(t, meshes, Config{Trainers: trainers, SegmentBytes: minSegment}, func(c *Client) error {
					return reduce(c, &exchange.Request{X: gradient(n, c.rank(), 0), Code: q})
				}) {
					if err != nil {
						t.Fatal(err)
					}
				}
				l := newLayout(n, q.Block(), minSegment/4, servers)
				k, g, lost := 0, 0, make([]int, trainers)
				for s := range servers {
					lo, hi := l.bounds(s)
					ki, gi := q.Size(hi-lo), l.segments(s)
					k, g = k+ki, g+gi
					sent, messages := trainers*ki, trainers*gi
					if q.Block() > 1 && trainers > 1 {
						sent += 4 * (hi - lo)
						of := newLayout(n, q.Block(), 1, trainers)
						for i := range gi * trainers {
							from, to := of.bounds(i % trainers)
							at, end := l.at(s, i/trainers)
							if from, to = max(from, at), min(to, end); from < to {
								messages++
								lost[i%trainers] += 4 * (to - from)
							}
						}
					}
					got := meshes[trainers+s].Traffic()
					if got.PayloadSent != int64(sent) || got.MessagesSent != int64(messages) || got.PayloadReceived != int64(trainers*(ki+2*headBytes)) {
						t.Errorf("%s, %d trainers, server %d of %d: %+v, want %d bytes sent in %d messages", q.Name(), trainers, s, servers, got, sent, messages)
					}
				}
				for r := range trainers {
					got := meshes[r].Traffic()
					if got.PayloadSent != int64(k+2*servers*headBytes) || got.MessagesSent != int64(g+2*servers) || got.PayloadReceived != int64(k+lost[r]) {
						t.Errorf("%s, rank %d of %d, %d servers: %+v, want %d bytes sent in %d messages, %d received", q.Name(), r, trainers, servers, got, k+2*servers*headBytes, g+2*servers, k+lost[r])
					}
				}
			}
		}
	}
}

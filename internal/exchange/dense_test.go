package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

// random are every rank's gradients of one bucket, as others decode them.
func random(size, n int, q compress.Quantiser) [][]float32 {
	rng := rand.New(rand.NewPCG(uint64(size), uint64(n)))
	out := make([][]float32, size)
	for r := range out {
		out[r] = make([]float32, n)
		for i := range out[r] {
			out[r][i] = float32(rng.NormFloat64())
		}
		round(out[r], q)
	}
	return out
}

// Float32 has the bits of the group's own allreduce.
func TestDenseIsTheAllReduce(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		x := random(size, 70001, nil)
		want := make([][]float32, size)
		onRanks(t, size, Config{}, func(e *GroupReducer, rank int) error {
			want[rank] = append([]float32(nil), x[rank]...)
			return collective.AllReduce(e.g, want[rank], collective.Sum)
		})
		for _, q := range []compress.Quantiser{nil, compress.FP32{}} {
			onRanks(t, size, Config{}, func(e *GroupReducer, rank int) error {
				op := &Request{X: append([]float32(nil), x[rank]...), Code: q}
				if err := do(e, op); err != nil {
					return err
				}
				if size > 1 && (op.Sent.Algorithm != e.g.Choice("allreduce", 4*70001) || op.Sent.Bytes == 0 || !op.Sent.Dense || op.Sent.Entries != 70001) {
					return fmt.Errorf("%+v", op.Sent)
				}
				return sameBits("sum", op.X, want[rank])
			})
		}
	}
}

// Halves: the same bits on all ranks, within the rounding of the steps of the sum.
func TestHalves(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5} {
		for _, c := range []struct {
			code compress.Quantiser
			ulp  float64
		}{{compress.FP16{}, 1.0 / 1024}, {compress.BF16{}, 1.0 / 128}} {
			const n = 9001
			x, got := random(size, n, c.code), make([][]float32, size)
			onRanks(t, size, Config{}, func(e *GroupReducer, rank int) error {
				op := &Request{X: append([]float32(nil), x[rank]...), Code: c.code}
				err := do(e, op)
				got[rank] = op.X
				if size > 1 && op.Sent.Bytes == 0 {
					return fmt.Errorf("%d bytes", op.Sent.Bytes)
				}
				return err
			})
			for i := range n {
				sum, most := 0.0, 0.0
				for r := range size {
					sum += float64(x[r][i])
					most += math.Abs(float64(x[r][i]))
				}
				if d := math.Abs(float64(got[0][i]) - sum); d > float64(size)*c.ulp*most+1e-5 {
					t.Fatalf("%s over %d: value %d is %v, want about %v", c.code.Name(), size, i, got[0][i], sum)
				}
			}
			for r := range got {
				if err := sameBits(fmt.Sprintf("%s over %d: rank %d beside rank 0", c.code.Name(), size, r), got[r], got[0]); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// A sum that has room after all has it: 60,000 of each of four ranks. One that has
// none is an error on every rank, with its place, and the next exchange works.
func TestHalvesOverflow(t *testing.T) {
	onRanks(t, 4, Config{}, func(e *GroupReducer, rank int) error {
		op := &Request{X: make([]float32, 9000), Lo: 1000, Code: compress.FP16{}}
		for i := range op.X {
			op.X[i] = 60000
		}
		if err := do(e, op); err != nil || op.X[8999] != 240000 {
			return fmt.Errorf("%v, %v", op.X[8999], err)
		}
		clear(op.X)
		if rank == 2 {
			op.X[5001] = float32(math.Inf(-1))
		}
		var value *ValueError
		if err := do(e, op); !errors.As(err, &value) || value.At != 6001 || !math.IsInf(float64(value.Value), -1) || !strings.Contains(err.Error(), "fp16") {
			return fmt.Errorf("%v, want an infinity at 6001", err)
		}
		clear(op.X)
		return do(e, op)
	})
}

// A mean that has room in bfloat16 may be that of a sum that has none in float32.
func TestBrainsOverflow(t *testing.T) {
	onRanks(t, 2, Config{}, func(e *GroupReducer, rank int) error {
		op := &Request{X: []float32{1, 3e38}, Lo: 7, Code: compress.BF16{}}
		var value *ValueError
		if err := do(e, op); !errors.As(err, &value) || value.At != 8 || !strings.Contains(err.Error(), "bf16") {
			return fmt.Errorf("%v and %v, want an error at 8", op.X, err)
		}
		clear(op.X)
		return do(e, op)
	})
}

// byte8 is a user's own code: a value is the upper byte of a float32.
type byte8 struct{ compress.FP32 }

func (byte8) Name() string   { return "byte8" }
func (byte8) Code() byte     { return 200 }
func (byte8) Size(n int) int { return n }
func (byte8) Encode(dst []byte, x []float32) error {
	for i, v := range x {
		dst[i] = byte(math.Float32bits(v) >> 24)
	}
	return nil
}
func (byte8) Decode(dst []float32, src []byte) error {
	for i, b := range src {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32([]byte{0, 0, 0, b}))
	}
	return nil
}

// What codes of blocks sum is what the twin does: add what all decode in the order of
// ranks, and decode what each chunk's owner made of it. What that loses is left with one
// rank.
func TestChunks(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5} {
		for _, q := range []compress.Quantiser{compress.Int8{}, compress.Sign{}, byte8{}} {
			for _, n := range []int{0, 1, 255, 256, 1000, 50001} {
				x := random(size, n, q)
				want := make([]float32, n)
				for r := range size {
					for i, v := range x[r] {
						want[i] += v
					}
				}
				lost := make([]float32, n)
				if q.Feedback() {
					copy(lost, want)
				}
				if size > 1 {
					blocks := (n + q.Block() - 1) / q.Block()
					for r := range size { // each chunk by itself: its blocks are whole
						lo, hi := min(n, blocks*r/size*q.Block()), min(n, blocks*(r+1)/size*q.Block())
						round(want[lo:hi], q)
					}
				}
				for i, v := range want {
					if q.Feedback() {
						lost[i] -= v
					}
				}
				left := make([][]float32, size)
				onRanks(t, size, Config{}, func(e *GroupReducer, rank int) error {
					op := &Request{X: append([]float32(nil), x[rank]...), Code: q}
					for range 2 {
						copy(op.X, x[rank])
						if err := do(e, op); err != nil {
							return err
						}
						if err := sameBits(fmt.Sprintf("%s of %d over %d", q.Name(), n, size), op.X, want); err != nil {
							return err
						}
					}
					left[rank] = make([]float32, n)
					for _, l := range op.SumError {
						copy(left[rank][l.At:], l.Values)
					}
					return nil
				})
				for r := range size { // each value is left with one rank
					for i, v := range left[r] {
						if lost[i] -= v; v != 0 && lost[i] != 0 {
							t.Fatalf("%s of %d over %d: value %d lost %v on rank %d, by %v other than it did", q.Name(), n, size, i, v, r, lost[i])
						}
					}
				}
				if at := slices.IndexFunc(lost, func(v float32) bool { return v != 0 }); at >= 0 {
					t.Errorf("%s of %d over %d: what value %d lost, %v, is left with no rank", q.Name(), n, size, at, lost[at])
				}
			}
		}
	}
}

// A sum that cannot be coded is an error on all ranks, with its place where the owner
// sees it; the exchange has broken the group.
func TestChunksOverflow(t *testing.T) {
	errs := onMeshes(t, mem.New(3), Config{}, func(e *GroupReducer, rank int) error {
		op := &Request{X: make([]float32, 1000), Lo: 50, Code: compress.Int8{}}
		op.X[3] = 2e38
		return do(e, op)
	})
	var value *ValueError
	if !errors.As(errs[0], &value) || value.At != 53 {
		t.Errorf("the owner: %v", errs[0])
	}
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "place 53") {
			t.Errorf("rank %d: %v does not tell of place 53", r, err)
		}
	}
}

// Exchanges of all kinds, started together and waited for in another order.
func TestManyInFlight(t *testing.T) {
	for _, size := range []int{2, 3} {
		onRanks(t, size, Config{}, func(e *GroupReducer, rank int) error {
			var ops []*Request
			for i := range 12 {
				op := &Request{X: make([]float32, 3000), Lo: 3000 * i}
				for j := range op.X {
					op.X[j] = float32(rank + i)
				}
				switch i % 4 {
				case 1:
					op.Code = compress.FP16{}
				case 2:
					op.Code = compress.Int8{}
				case 3:
					op.Sparse = &compress.Sparse{Len: 3000, Index: []int32{5}, Value: []float32{float32(rank + i)}}
				}
				ops = append(ops, op)
			}
			for range 3 {
				for i, op := range ops {
					for j := range op.X {
						op.X[j] = float32(rank + i)
					}
					e.Start(op)
				}
				for i := range ops {
					op := ops[(7*i)%len(ops)]
					if _, err := e.Wait(op); err != nil {
						return err
					}
					want := float64(size*(7*i%len(ops)) + size*(size-1)/2)
					if d := math.Abs(float64(op.X[5]) - want); d > 0.02*want {
						return fmt.Errorf("operation %d: %v, want %v", 7*i%len(ops), op.X[5], want)
					}
				}
			}
			return nil
		})
	}
}

// Ranks that share memory, or hosts, get the bits of those that do not, where the order
// of the sum is one's own. In shared memory nothing is sent but by a tree.
func TestSharedMemoryAndHosts(t *testing.T) {
	const size = 5
	for kind := range kindsOf(0) {
		var want [][]float32
		for _, how := range []string{"alone", "shared", "hosts"} {
			meshes, cfg := mem.New(size), collective.Config{}
			switch how {
			case "shared":
				meshes = mem.NewShared(size, 1<<20)
			case "hosts":
				cfg.Hosts = []int{0, 0, 1, 1, 1}
			}
			got := make([][]float32, size)
			for r, err := range onGroups(t, meshes, cfg, configOf(kind), func(e *GroupReducer, rank int) error {
				op := kindsOf(rank)[kind]()
				for range 3 {
					for i := range op.X {
						op.X[i] = float32(i%100+rank) / 8
					}
					if err := do(e, op); err != nil {
						return err
					}
				}
				if sent := op.Sent.Bytes > 0; kind != Tree && how != "hosts" && sent == (how == "shared") {
					return fmt.Errorf("sent %d bytes", op.Sent.Bytes)
				}
				got[rank] = op.X
				return nil
			}) {
				if err != nil {
					t.Fatalf("%s, %s, rank %d: %v", kind, how, r, err)
				}
			}
			if want == nil {
				want = got
			}
			for r := range got {
				if err := sameBits(fmt.Sprintf("%s, %s, rank %d", kind, how, r), got[r], got[0]); err != nil {
					t.Error(err)
				}
				if err := sameBits(fmt.Sprintf("%s, %s", kind, how), got[r], want[r]); err != nil && kind != Dense && kind != "fp16" && kind != "fp32" {
					t.Error(err)
				}
			}
		}
	}
}

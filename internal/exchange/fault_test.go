package exchange

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/fault"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// kinds are operations of every kind, three to be done in a row.
func kindsOf(rank int) map[string]func() *Request {
	sparse := func(q compress.Quantiser) *Request {
		rng := rand.New(rand.NewPCG(5, uint64(rank)))
		return &Request{X: make([]float32, 5000), Lo: 100, Sparse: vector(rng, 5000, 500, 1, q), Code: q}
	}
	dense := func(q compress.Quantiser) *Request {
		return &Request{X: make([]float32, 5000), Lo: 100, Code: q}
	}
	return map[string]func() *Request{
		AllGather: func() *Request { return sparse(nil) },
		Tree:      func() *Request { return sparse(compress.FP16{}) },
		Split:     func() *Request { return sparse(compress.BF16{}) },
		Dense:     func() *Request { return sparse(nil) },
		"chunks":  func() *Request { return dense(compress.Int8{}) },
		"fp32":    func() *Request { return dense(nil) },
		"fp16":    func() *Request { return dense(compress.FP16{}) },
	}
}

func configOf(kind string) Config {
	for _, name := range Algorithms() {
		if name == kind {
			return Config{Algorithm: kind, Rebalance: 1}
		}
	}
	return Config{}
}

// Whichever message a link breaks at, all ranks end with an error that says where and
// with whom, or had ended before, and nothing is left behind.
func TestLostPeer(t *testing.T) {
	for kind := range kindsOf(0) {
		t.Run(kind, func(t *testing.T) {
			leakcheck.Check(t)
			for nth := 1; nth < 12; nth += 1 + nth/4 {
				meshes := mem.New(3)
				for r := range meshes {
					meshes[r] = fault.Wrap(meshes[r], fault.Rule{Rank: 1, Peer: fault.Any, Op: fault.Send, Nth: nth, Do: fault.Cut})
				}
				failed := 0
				for r, err := range onMeshes(t, meshes, configOf(kind), func(e *GroupReducer, rank int) error {
					op := kindsOf(rank)[kind]()
					for range 3 {
						if err := do(e, op); err != nil {
							return err
						}
					}
					return nil
				}) {
					if err == nil {
						continue
					}
					failed++
					var fault *Error
					var lost *transport.LostError
					if !errors.As(err, &fault) || !errors.As(err, &lost) || fault.Rank != r || fault.Peer != lost.Rank || fault.Lo != 100 || fault.Hi != 5100 || !strings.Contains(err.Error(), fault.Op) {
						t.Errorf("message %d, rank %d: %v", nth, r, err)
					}
				}
				if nth < 4 && failed < 3 {
					t.Errorf("message %d: %d ranks failed", nth, failed)
				}
			}
		})
	}
}

// What waits for a rank that does not come ends with the group, and so does what was
// queued behind it.
func TestCloseUnderWay(t *testing.T) {
	leakcheck.Check(t)
	for kind := range kindsOf(0) {
		onMeshes(t, mem.New(2), configOf(kind), func(e *GroupReducer, rank int) error {
			if rank == 1 || kind == "fp32" || kind == "fp16" { // those are the group's own
				return nil
			}
			first, second := kindsOf(rank)[kind](), kindsOf(rank)[kind]()
			e.Start(first)
			e.Start(second)
			time.AfterFunc(10*time.Millisecond, func() { e.Close() })
			for _, op := range []*Request{first, second} {
				if _, err := e.Wait(op); err == nil {
					t.Errorf("%s: no error", kind)
				}
			}
			if err := do(e, kindsOf(rank)[kind]()); err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("%s: after Close: %v", kind, err)
			}
			return nil
		})
	}
}

// flipper damages a byte of the nth message that a rank sends.
type flipper struct {
	transport.Mesh
	nth, at int
	sent    atomic.Int32
}

func (m *flipper) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	if int(m.sent.Add(1)) == m.nth && len(p) > m.at {
		p = append([]byte(nil), p...)
		p[m.at] ^= 0xd5
	}
	return m.Mesh.Send(to, tag, p, timeout)
}

// A payload that was damaged on its way is an error of all ranks, and who receives it
// says whose it was.
func TestDamagedPayload(t *testing.T) {
	leakcheck.Check(t)
	for kind, nth := range map[string]int{AllGather: 3, Tree: 3, Split: 7, "chunks": 1} {
		meshes := mem.New(3)
		at := 0
		if kind == "chunks" {
			at = 3 // the sign and exponent of a scale
		}
		meshes[2] = &flipper{Mesh: meshes[2], nth: nth, at: at}
		named := 0
		errs := onMeshes(t, meshes, configOf(kind), func(e *GroupReducer, rank int) error {
			op := kindsOf(rank)[kind]()
			for i := range op.X {
				op.X[i] = float32(rank - 1)
			}
			for range 3 {
				if err := do(e, op); err != nil {
					return err
				}
			}
			return nil
		})
		for r, err := range errs {
			var fault *Error
			if !errors.As(err, &fault) || fault.Rank != r {
				t.Errorf("%s: rank %d: %v", kind, r, err)
			} else if fault.Peer == 2 && r != 2 && fault.Op == kind {
				named++
			}
		}
		if named == 0 {
			t.Errorf("%s: nobody names rank 2: %v", kind, errs)
		}
	}
}

// Whatever byte of whatever message is damaged, nobody hangs and nobody is wrong
// about lengths. Where a rank notices, it says what it noticed, and no rank's next exchange
// succeeds. What still is a payload, with another value, is what checksums are for.
func TestDamageAnywhere(t *testing.T) {
	leakcheck.Check(t)
	noticed := 0
	for _, kind := range []string{AllGather, Tree, Split, "chunks"} {
		for nth := 1; nth < 14; nth += 2 {
			for at := 0; at < 24; at += 2 {
				meshes := mem.New(3)
				meshes[1] = &flipper{Mesh: meshes[1], nth: nth, at: at * at}
				first := make([]error, 3)
				second := onMeshes(t, meshes, configOf(kind), func(e *GroupReducer, rank int) error {
					first[rank] = do(e, kindsOf(rank)[kind]())
					return do(e, kindsOf(rank)[kind]())
				})
				if errors.Join(first...) == nil {
					continue
				}
				noticed++
				for r := range second {
					var fault *Error
					if first[r] != nil && !errors.As(first[r], &fault) || !errors.As(second[r], &fault) {
						t.Errorf("%s, byte %d of message %d: rank %d: %v, then %v", kind, at*at, nth, r, first[r], second[r])
					}
				}
			}
		}
	}
	if noticed == 0 {
		t.Error("nothing was ever noticed: the test shows nothing")
	}
}

// fragile is a code of a program's own, which panics on one rank.
type fragile struct {
	compress.Int8
	rank int
}

func (f fragile) Decode(dst []float32, src []byte) error {
	if f.rank == 1 {
		panic("a code of one's own")
	}
	return f.Int8.Decode(dst, src)
}

// TestPanicOfACode returns the panic of a code as the error of its rank, with function and line, and the other ranks name that rank.
func TestPanicOfACode(t *testing.T) {
	leakcheck.Check(t)
	for r, err := range onMeshes(t, mem.New(3), Config{}, func(e *GroupReducer, rank int) error {
		return do(e, &Request{X: make([]float32, 5000), Code: fragile{rank: rank}})
	}) {
		var abort *transport.AbortError
		if err == nil || !strings.Contains(err.Error(), "panic: a code of one's own (in ") || !strings.Contains(err.Error(), "fault_test.go:") || r != 1 && (!errors.As(err, &abort) || abort.Rank != 1) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

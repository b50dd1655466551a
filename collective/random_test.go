package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// jitter delays sends at random, so that messages come in any order.
type jitter struct {
	transport.Mesh
	seed uint64
}

func (j *jitter) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	h := rand.NewPCG(j.seed, uint64(tag.Seq)<<32|uint64(tag.Part))
	if d := h.Uint64() % 4; d > 0 {
		time.Sleep(time.Duration(d) * time.Millisecond)
	}
	return j.Mesh.Send(to, tag, p, timeout)
}

// A random program of operations, started and waited for in any order, gives
// the same bits whatever the timing, the segmentation and the number of
// operations in flight: those of the definition.
func TestRandomPrograms(t *testing.T) {
	for program := range uint64(18) {
		algorithm := Ring
		if program >= 12 {
			algorithm = Pairwise
		}
		for timing := range uint64(3) {
			synctest.Test(t, func(t *testing.T) {
				shape := rand.New(rand.NewPCG(program, 1))
				size := 1 + shape.IntN(7)
				cfg := Config{Algorithm: algorithm, SegmentBytes: 64 << rand.New(rand.NewPCG(program, timing)).IntN(4), InFlight: 1 + int(timing)*2}
				meshes := mem.NewLimited(size, 1<<16)
				for r := range meshes {
					meshes[r] = &jitter{meshes[r], timing*100 + uint64(r)}
				}
				for r, err := range onMeshes(t, meshes, cfg, func(g *Group) error {
					return randomProgram(g, rand.New(rand.NewPCG(program, 2)))
				}) {
					if err != nil {
						t.Errorf("program %d, timing %d, rank %d: %v", program, timing, r, err)
					}
				}
			})
		}
	}
}

// randomProgram is a function of rng alone, the same on every rank, but for the
// order in which operations are waited for.
func randomProgram(g *Group, rng *rand.Rand) error {
	type started struct {
		*Work
		check func() error
	}
	var open []started
	own := rand.New(rand.NewPCG(uint64(g.Rank()), rng.Uint64()))
	finish := func() error {
		i := own.IntN(len(open))
		s := open[i]
		open = append(open[:i], open[i+1:]...)
		if err := s.Wait(); err != nil {
			return err
		}
		return s.check()
	}
	for range 30 {
		w, check := randomOperation(g, rng)
		open = append(open, started{w, check})
		for len(open) > own.IntN(8) {
			if err := finish(); err != nil {
				return err
			}
		}
	}
	for len(open) > 0 {
		if err := finish(); err != nil {
			return err
		}
	}
	return nil
}

func randomOperation(g *Group, rng *rand.Rand) (*Work, func() error) {
	n, root, size := rng.IntN(400)*rng.IntN(3), rng.IntN(g.Size()), g.Size()
	if g.share != nil && rng.IntN(3) == 0 {
		n *= 1 + rng.IntN(200)
	}
	x := anywhere(g, rng, filled(g.Rank(), n))
	reduced := serialRing
	if g.share.whole(size) || g.named == byPairs && size > 1 {
		reduced = inRankOrder[float32]
	}
	expect := func(want []float32) func() error {
		return func() error { return same(fmt.Sprintf("operation of %d values", n), x, want) }
	}
	switch rng.IntN(10) {
	case 0:
		return StartBarrier(g), func() error { return nil }
	case 1:
		return StartBroadcast(g, x, root), expect(filled(root, n))
	case 2:
		src := x
		x = anywhere(g, rng, make([]float32, n*size))
		var want []float32
		for r := range size {
			want = append(want, filled(r, n)...)
		}
		return StartAllGather(g, x, src), expect(want)
	case 4:
		counts, want := make([]int, size), []float32(nil)
		for r := range counts {
			counts[r] = rng.IntN(400) * rng.IntN(2)
			want = append(want, filled(r, counts[r])...)
		}
		x = anywhere(g, rng, make([]float32, len(want)))
		return StartAllGatherV(g, x, anywhere(g, rng, filled(g.Rank(), counts[g.Rank()])), counts), expect(want)
	case 5:
		src, dst := filled(g.Rank(), n*size), make([]float32, n*size)
		want := make([]float32, 0, n*size)
		for r := range size {
			want = append(want, filled(r, n*size)[g.Rank()*n:][:n]...)
		}
		x = dst
		return StartAllToAll(g, dst, src), expect(want)
	case 6:
		src := x
		x = nil
		var want []float32
		if g.Rank() == root {
			x = make([]float32, n*size)
			for r := range size {
				want = append(want, filled(r, n)...)
			}
		}
		return StartGather(g, x, src, root), expect(want)
	case 7:
		x = make([]float32, n)
		return StartReduceScatter(g, x, filled(g.Rank(), n*size), Max), func() error {
			for i, v := range x {
				want := operand(0, g.Rank()*n+i)
				for r := range size {
					want = max(want, operand(r, g.Rank()*n+i))
				}
				if v != want {
					return fmt.Errorf("reducescatter: value %d is %v, want %v", i, v, want)
				}
			}
			return nil
		}
	case 8:
		to, from := (g.Rank()+1)%size, mod(g.Rank()-1, size)
		if size == 1 {
			return StartBarrier(g), func() error { return nil }
		}
		sent := StartSend(g, filled(g.Rank(), n), to)
		return StartReceive(g, x, from), func() error {
			return errors.Join(sent.Wait(), expect(filled(from, n))())
		}
	case 3:
		return StartAllReduce(g, x, Mean), expect(reduced(n, size, Mean, operand))
	}
	return StartAllReduce(g, x, Sum), expect(reduced(n, size, Sum, operand))
}

// anywhere returns x or, where ranks share memory, at times a copy of it in this
// rank's arena. What rng gives, the same on every rank, says which ranks.
func anywhere(g *Group, rng *rand.Rand, x []float32) []float32 {
	if g.share == nil {
		return x
	}
	which := rng.Uint64()
	if which%2 == 0 && which>>(1+g.Rank())%2 == 0 {
		return x
	}
	p := bytesview.As[float32](g.share.windows.Alloc(4 * len(x)))
	if len(x) == 0 || p == nil {
		return x
	}
	copy(p, x)
	return p
}

// The same in shared memory, where the scheduler makes the timing.
func TestRandomProgramsDirect(t *testing.T) {
	programs := uint64(20)
	if raceDetector {
		programs = 6
	}
	for program := range programs {
		shape := rand.New(rand.NewPCG(program, 1))
		meshes := mem.NewShared(2+shape.IntN(6), 16<<20)
		for r, err := range onMeshes(t, meshes, Config{InFlight: 1 + shape.IntN(6)}, func(g *Group) error {
			return randomProgram(g, rand.New(rand.NewPCG(program, 2)))
		}) {
			if err != nil {
				t.Errorf("program %d, rank %d of %d: %v", program, r, len(meshes), err)
			}
		}
	}
}

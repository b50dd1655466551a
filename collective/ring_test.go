package collective

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// The tables of the method's description, for five ranks: who sends and who
// receives which chunk.
func TestScheduleOfFive(t *testing.T) {
	const n = 5
	reduce := [n][2]int{{0, 4}, {1, 0}, {2, 1}, {3, 2}, {4, 3}}
	gather := [n][2]int{{1, 0}, {2, 1}, {3, 2}, {4, 3}, {0, 4}}
	for rank := range n {
		steps := RingSchedule(rank, n)
		if len(steps) != 2*(n-1) {
			t.Fatalf("rank %d has %d steps", rank, len(steps))
		}
		for i, step := range steps {
			table, s := reduce, i
			if i >= n-1 {
				table, s = gather, i-(n-1)
			}
			want := RingStep{mod(table[rank][0]-s, n), mod(table[rank][1]-s, n), i < n-1}
			if step != want {
				t.Errorf("rank %d step %d: %+v, want %+v", rank, i, step, want)
			}
		}
	}
}

// Carried out on sets instead of numbers, the schedule gives every rank every
// contribution to every chunk exactly once; what is sent is what was received
// in the step before; and rank n owns chunk n+1 after the first half.
func TestScheduleMeaning(t *testing.T) {
	for size := 1; size <= 64; size++ {
		have := make([][]uint64, size) // by rank and chunk: whose values are in it
		for r := range have {
			have[r] = make([]uint64, size)
			for c := range have[r] {
				have[r][c] = 1 << r
			}
		}
		schedules := make([][]RingStep, size)
		for r := range size {
			schedules[r] = RingSchedule(r, size)
		}
		for s := range 2 * (size - 1) {
			scheduleStep(t, have, schedules, s)
			if s != size-2 {
				continue
			}
			for r := range size {
				if c := (r + 1) % size; have[r][c] != ^uint64(0)>>(64-size) {
					t.Fatalf("size %d: rank %d does not own chunk %d after the reduce-scatter", size, r, c)
				}
			}
		}
		for r := range have {
			for c := range have[r] {
				if have[r][c] != ^uint64(0)>>(64-size) {
					t.Fatalf("size %d: rank %d chunk %d holds %b", size, r, c, have[r][c])
				}
			}
		}
	}
}

func scheduleStep(t *testing.T, have [][]uint64, schedules [][]RingStep, s int) {
	size := len(have)
	sent := make([]uint64, size)
	for r := range have {
		sent[r] = have[r][schedules[r][s].Send]
	}
	for r := range have {
		step, left := schedules[r][s], mod(r-1, size)
		if from := schedules[left][s].Send; from != step.Receive {
			t.Fatalf("size %d step %d: rank %d expects chunk %d, rank %d sends %d", size, s, r, step.Receive, left, from)
		}
		if s > 0 && schedules[r][s-1].Receive != step.Send {
			t.Fatalf("size %d step %d: rank %d sends a chunk that it has not just received", size, s, r)
		}
		switch {
		case !step.Reduce:
			have[r][step.Receive] = sent[left]
		case have[r][step.Receive]&sent[left] != 0:
			t.Fatalf("size %d step %d: rank %d adds a contribution twice", size, s, r)
		default:
			have[r][step.Receive] |= sent[left]
		}
	}
}

func TestChunks(t *testing.T) {
	for _, n := range []int{0, 1, 2, 63, 64, 65, 1000} {
		for _, size := range []int{1, 2, 3, 64} {
			at := 0
			for i := range size {
				lo, hi := RingChunk(n, size, i)
				if lo != at || hi-lo < n/size || hi-lo > n/size+1 {
					t.Fatalf("chunk %d of %d of %d values is [%d, %d) after %d", i, size, n, lo, hi, at)
				}
				at = hi
			}
			if at != n {
				t.Fatalf("%d chunks of %d values end at %d", size, n, at)
			}
		}
	}
}

// sent is one message, as a spy saw it go.
type sent struct {
	to   int
	tag  transport.Tag
	size int
}

// spy notes what a rank sends.
type spy struct {
	transport.Mesh
	log []sent
}

func (s *spy) Send(to int, tag transport.Tag, p []byte, timeout time.Duration) error {
	sig := tag.Sig
	tag.Sig = 0 // see TestSignature
	s.log = append(s.log, sent{to, tag, len(p)})
	tag.Sig = sig
	return s.Mesh.Send(to, tag, p, timeout)
}

// What goes over the mesh is the schedule: the chunks in its order, to the right
// neighbour only, segment by segment, numbered through; and the number of bytes
// is that of the formula, 2K - size(chunk n+1) - size(chunk n+2).
func TestMessagesFollowSchedule(t *testing.T) {
	const segment = 64 // 16 values
	for _, size := range []int{2, 3, 5, 8} {
		for _, n := range []int{0, 1, size - 1, size, 10*size + 1, 100*size + size/2} {
			meshes := mem.New(size)
			spies := make([]*spy, size)
			for r := range meshes {
				spies[r] = &spy{Mesh: meshes[r]}
				meshes[r] = spies[r]
			}
			errs := onMeshes(t, meshes, Config{Algorithm: Ring, SegmentBytes: segment, ID: 9}, func(g *Group) error {
				return AllReduce(g, make([]float32, n), Sum)
			})
			for r, s := range spies {
				if errs[r] != nil {
					t.Fatal(errs[r])
				}
				checkLog(t, s, n, segment)
			}
		}
	}
}

func checkLog(t *testing.T, s *spy, n, segment int) {
	t.Helper()
	rank, size := s.Rank(), s.Size()
	at, bytes := 0, 0
	for i, step := range RingSchedule(rank, size) {
		lo, hi := RingChunk(n, size, step.Send)
		for left := 4 * (hi - lo); left > 0; left -= segment {
			want := sent{(rank + 1) % size, transport.Tag{Group: 9, Part: uint32(at)}, min(left, segment)}
			if at >= len(s.log) || s.log[at] != want {
				t.Fatalf("rank %d of %d, %d values, step %d: message %d differs from %+v in %+v", rank, size, n, i, at, want, s.log)
			}
			at++
			bytes += want.size
		}
	}
	chunk := func(i int) int { lo, hi := RingChunk(n, size, i%size); return hi - lo }
	formula := 2*n - chunk(rank+1) - chunk(rank+2)
	traffic := s.Traffic()
	if at != len(s.log) || bytes != 4*formula || ringValues(n, size, rank) != formula || int(traffic.PayloadSent) != bytes || int(traffic.MessagesSent) != at {
		t.Fatalf("rank %d of %d, %d values: %d messages of %d bytes, counted %+v, the formula gives %d", rank, size, n, len(s.log), bytes, traffic, 4*formula)
	}
}

func ExampleRingSchedule() {
	for _, step := range RingSchedule(1, 3) {
		fmt.Printf("send %d, receive %d, add %v\n", step.Send, step.Receive, step.Reduce)
	}
	// Output:
	// send 1, receive 0, add true
	// send 0, receive 2, add true
	// send 2, receive 1, add false
	// send 1, receive 0, add false
}

// ringValues is how many values rank sends in an allreduce of n values:
// 2n - size(chunk rank+1) - size(chunk rank+2).
func ringValues(n, size, rank int) int {
	sent := 0
	for _, step := range RingSchedule(rank, size) {
		lo, hi := RingChunk(n, size, step.Send)
		sent += hi - lo
	}
	return sent
}

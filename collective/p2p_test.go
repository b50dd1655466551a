package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/shmwait"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/transport"
)

// pairMeshes are the ways that Send and Receive go.
var pairMeshes = map[string]func(n int) []transport.Mesh{
	"messages": mem.New,
	"shared":   func(n int) []transport.Mesh { return mem.NewShared(n, testArena) },
}

// onPairs runs body as every rank over each of them, where all must succeed.
func onPairs(t *testing.T, n int, cfg Config, body func(g *Group) error) {
	t.Helper()
	for name, form := range pairMeshes {
		for r, err := range onMeshes(t, form(n), cfg, body) {
			if err != nil {
				t.Errorf("%s: rank %d of %d: %v", name, r, n, err)
			}
		}
	}
}

// values are those of message i from one rank to another.
func values(from, to, i, n int) []float32 { return filled(7*from+3*to+i, n) }

// lengths in values: of the notice, of a cell for several numbers of ranks, the
// longest that needs no receiver, and longer ones.
var pairLengths = []int{0, 1, 7, 8, 9, 300, 2341, 9362, 16383, 16384, 16385, 40001, 150000}

// Messages of every length arrive in order, from and to ordinary memory and arenas,
// with both directions under way.
func TestPairs(t *testing.T) {
	for _, size := range []int{2, 3, 7} {
		onPairs(t, size, Config{}, func(g *Group) error {
			for i, n := range pairLengths {
				for k, where := range []string{"private", "arena", "mixed"} {
					i := 3*i + k
					right, left := (g.Rank()+1)%size, mod(g.Rank()-1, size)
					w := StartSend(g, put(g, where, values(g.Rank(), right, i, n)), right)
					x := put(g, "apart", make([]float32, n))
					if err := errors.Join(Receive(g, x, left), w.Wait()); err != nil {
						return err
					}
					if err := same(fmt.Sprintf("message %d of %d, %s", i, n, where), x, values(left, g.Rank(), i, n)); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

// Ranks that share memory send nothing over the mesh, but what finds no room.
func TestPairsGoThroughMemory(t *testing.T) {
	for size, cell := range map[int]int{2: 16384, 7: 1 << 20 / 6 / pairSlots / 64 * 16} {
		for _, n := range pairLengths {
			meshes := mem.NewShared(size, testArena)
			var sent int64
			for r, err := range onMeshes(t, meshes, Config{}, func(g *Group) error {
				if g.Rank() == 0 {
					err := Send(g, make([]float32, n), 1)
					sent = meshes[0].Traffic().MessagesSent
					return err
				}
				if g.Rank() == 1 {
					return Receive(g, make([]float32, n), 0)
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("rank %d of %d: %v", r, size, err)
				}
			}
			if small := n > cell && n <= 16384; (sent > 0) != small {
				t.Errorf("%d values between 2 of %d ranks: %d messages", n, size, sent)
			}
		}
	}
}

// A sender that is far ahead does not wait for the receiver, where it need not, and
// ranks that take no part need not know.
func TestPairsRunAhead(t *testing.T) {
	const count = 40
	length := func(i int) int { return i * i * i % 16385 }
	onPairs(t, 3, Config{}, func(g *Group) error {
		if g.Rank() == 2 {
			return Barrier(g)
		}
		peer := 1 - g.Rank()
		long := StartSend(g, values(g.Rank(), peer, -1, 50000), peer) // nobody receives it yet
		for i := range count {
			if err := Send(g, values(g.Rank(), peer, i, length(i)), peer); err != nil {
				return err
			}
		}
		if err := Barrier(g); err != nil {
			return err
		}
		for i := -1; i < count; i++ {
			n := 50000
			if i >= 0 {
				n = length(i)
			}
			x := make([]float32, n)
			if err := Receive(g, x, peer); err != nil {
				return err
			}
			if err := same(fmt.Sprintf("message %d", i), x, values(peer, g.Rank(), i, n)); err != nil {
				return err
			}
		}
		return long.Wait()
	})
}

// Whatever is started in advance, in any order between the two directions and with
// any number under way, the i-th Receive gets the i-th Send.
func TestPairsInAnyOrder(t *testing.T) {
	trials := uint64(12)
	if raceDetector {
		trials = 4
	}
	for trial := range trials {
		size := 2 + int(trial%3)
		onPairs(t, size, Config{SegmentBytes: 4096}, func(g *Group) error {
			own := rand.New(rand.NewPCG(trial, uint64(g.Rank())))
			var open []func() error
			sent, received := make([]int, size), make([]int, size)
			length := func(from, to, i int) int {
				return rand.New(rand.NewPCG(trial, uint64(from*1000+to*100+i))).IntN(1 << (i % 17))
			}
			const count = 34
			for left := 2 * count * (size - 1); left > 0; {
				peer := own.IntN(size)
				send := own.IntN(2) == 0
				switch {
				case peer == g.Rank() || send && sent[peer] == count || !send && received[peer] == count:
					continue
				case send:
					i := sent[peer]
					w := StartSend(g, values(g.Rank(), peer, i, length(g.Rank(), peer, i)), peer)
					open = append(open, w.Wait)
					sent[peer]++
				default:
					i := received[peer]
					x := make([]float32, length(peer, g.Rank(), i))
					w := StartReceive(g, x, peer)
					open = append(open, func() error {
						if err := w.Wait(); err != nil {
							return err
						}
						return same(fmt.Sprintf("message %d from %d", i, peer), x, values(peer, g.Rank(), i, len(x)))
					})
					received[peer]++
				}
				left--
			}
			own.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
			for _, wait := range open {
				if err := wait(); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Two ranks that disagree are told on both sides what the other one has started.
func TestPairMismatch(t *testing.T) {
	for name, form := range pairMeshes {
		for _, n := range [][2]int{{5, 6}, {1000, 1001}, {40000, 40001}, {0, 3}, {3, 0}, {5, 40000}, {40000, 5}, {0, 40000}, {40000, 0}} {
			errs := onMeshes(t, form(2), Config{Timeout: 20 * time.Second}, func(g *Group) error {
				if g.Rank() == 0 {
					return errors.Join(Send(g, make([]float32, n[0]), 1), Barrier(g))
				}
				return Receive(g, make([]float32, n[1]), 0)
			})
			for r, err := range errs {
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("send of %d float32", n[0])) || !strings.Contains(err.Error(), fmt.Sprintf("send of %d float32", n[1])) {
					t.Errorf("%s, %d values: rank %d: %v", name, n, r, err)
				}
			}
		}
	}
}

// A Send is a message for each segment, at least one; above 64 KiB each side has an empty
// one more.
func TestPairMessages(t *testing.T) {
	for n, want := range map[int][2]int64{0: {1, 0}, 1: {1, 0}, 4096: {1, 0}, 4097: {2, 0}, 16384: {4, 0}, 16385: {6, 1}, 40960: {11, 1}} {
		meshes := mem.New(2)
		for r, err := range onMeshes(t, meshes, Config{SegmentBytes: 16 << 10}, func(g *Group) error {
			if g.Rank() == 0 {
				return Send(g, make([]float32, n), 1)
			}
			return Receive(g, make([]float32, n), 0)
		}) {
			if err != nil {
				t.Errorf("%d values: rank %d: %v", n, r, err)
			}
			if got := meshes[r].Traffic(); got.MessagesSent != want[r] || got.PayloadSent != int64(4*n*(1-r)) {
				t.Errorf("%d values: rank %d sent %d bytes in %d messages, want %d", n, r, got.PayloadSent, got.MessagesSent, want[r])
			}
		}
	}
}

// A Receive that a fault keeps from beginning does not leave those after it waiting for
// their turn.
func TestReceivesHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(mem.NewShared(2, testArena)[0], Config{})
		if err != nil {
			t.Fatal(err)
		}
		first := g.newWork(kindReceive, float32s)
		first.root = 1
		if _, err := g.beginPair(first, true); err != nil {
			t.Fatal(err)
		}
		second := StartReceive(g, make([]float32, 1), 1)
		synctest.Wait() // for its turn
		_ = g.Fail(errors.New("a bad disk"))
		first.err, first.ranInline = first.run(), true
		g.removeP2P(first)
		for _, w := range []*Work{first, second} {
			if err := w.Wait(); err == nil || !strings.Contains(err.Error(), "a bad disk") {
				t.Error(err)
			}
		}
		g.Close()
	})
}

// A peer that dies, hangs or aborts ends what waits for it, with its name.
func TestPairFaults(t *testing.T) {
	t.Parallel()
	waits := map[string]func(g *Group) error{
		"receive":   func(g *Group) error { return Receive(g, make([]float32, 10), 1) },
		"long send": func(g *Group) error { return Send(g, make([]float32, 100000), 1) },
		"arena send": func(g *Group) error {
			return Send(g, put(g, "arena", make([]float32, 100000)), 1)
		},
		"several": func(g *Group) error {
			a, b := StartReceive(g, make([]float32, 1), 1), StartReceive(g, make([]float32, 100000), 1)
			return errors.Join(Receive(g, make([]float32, 10), 1), a.Wait(), b.Wait())
		},
		"half": func(g *Group) error { // the peer takes a first message
			return errors.Join(Send(g, []float32{1}, 1), Receive(g, make([]float32, 1), 1), Receive(g, make([]float32, 1), 1))
		},
	}
	for name, form := range pairMeshes {
		for what, wait := range waits {
			for _, end := range []string{"death", "abort", "silence"} {
				t.Run(fmt.Sprintf("%s, %s, %s", name, what, end), func(t *testing.T) {
					t.Parallel()
					pairFault(t, form(3), what == "half", end, wait)
				})
			}
		}
	}
}

// pairFault ends rank 1 of three while rank 0 waits for it, after an exchange if that is half done.
func pairFault(t *testing.T, meshes []transport.Mesh, half bool, end string, wait func(g *Group) error) {
	cfg := Config{Timeout: 20 * time.Second}
	if end == "silence" {
		cfg.Timeout = 200 * time.Millisecond
		if half { // there is something to exchange first
			cfg.Timeout = 2 * time.Second
		}
	}
	errs := onMeshes(t, meshes, cfg, func(g *Group) error {
		switch g.Rank() {
		case 0:
			return wait(g)
		case 2:
			return nil
		}
		if half {
			x := make([]float32, 1)
			if err := errors.Join(Receive(g, x, 0), Send(g, x, 0)); err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Millisecond)
		switch end {
		case "death":
			die(meshes, 1)
		case "abort":
			meshes[1].Abort(errors.New("out of paper"))
		}
		return nil
	})
	want := map[string]error{"death": new(transport.LostError), "abort": transport.ErrAborted, "silence": transport.ErrTimeout}[end]
	var lost *transport.LostError
	if err := errs[0]; err == nil || asOpError(t, err).Peer != 1 || !(errors.Is(err, want) || end == "death" && errors.As(err, &lost)) {
		t.Error(err)
	}
}

// What was sent before its sender left is received.
func TestPairOutlivesSender(t *testing.T) {
	onPairs(t, 2, Config{}, func(g *Group) error {
		if g.Rank() == 0 {
			err := errors.Join(Send(g, filled(0, 5), 1), Send(g, filled(0, 5000), 1), g.Close(), g.mesh.Close())
			return err
		}
		time.Sleep(10 * time.Millisecond)
		for _, n := range []int{5, 5000} {
			x := make([]float32, n)
			if err := Receive(g, x, 0); err != nil {
				return err
			}
			if err := same("what was sent", x, filled(0, n)); err != nil {
				return err
			}
		}
		err := Receive(g, make([]float32, 1), 0)
		if want := "collective: rank 0 ended early: it left the job, but rank 1 waits for it in receive 2: all ranks must start the same operations (message "; !errors.Is(err, transport.ErrGoodbye) || !strings.HasPrefix(err.Error(), want) {
			return fmt.Errorf("a message of one who left: %v", err)
		}
		return nil
	})
}

// Closing a group ends what is under way.
func TestPairClose(t *testing.T) {
	for name, form := range pairMeshes {
		errs := onMeshes(t, form(2), Config{}, func(g *Group) error {
			if g.Rank() == 1 {
				return Receive(g, make([]float32, 1), 0)
			}
			a, b := StartReceive(g, make([]float32, 1), 1), StartSend(g, make([]float32, 100000), 1)
			g.Close()
			return errors.Join(a.Wait(), b.Wait())
		})
		for r, err := range errs {
			if err == nil {
				t.Errorf("%s: rank %d: no error", name, r)
			}
		}
	}
}

// A peer's memory is not to be trusted: what it shows is looked at before use, and an
// error says whose it is.
func TestHostileMemory(t *testing.T) {
	const n = 50000
	x := func() []float32 { return make([]float32, n) }
	for name, c := range map[string]struct {
		kind kind
		call func(g *Group) error
		of   func(g *Group, w *Work) // completes what the hostile rank 1 has started
		show arrival
	}{
		"allreduce":     {kindAllReduce, func(g *Group) error { return AllReduce(g, put(g, "arena", x()), Sum) }, nil, arrival{arenaOffset: testArena - 4, most: 4 * n}},
		"far":           {kindAllReduce, func(g *Group) error { return AllReduce(g, x(), Sum) }, nil, arrival{arenaOffset: 1 << 60, most: 4 * n}},
		"wraps":         {kindAllReduce, func(g *Group) error { return AllReduce(g, x(), Sum) }, nil, arrival{arenaOffset: nowhere - 63, most: 4 * n}},
		"length":        {kindAllReduce, func(g *Group) error { return AllReduce(g, put(g, "arena", x()), Sum) }, nil, arrival{arenaOffset: 0, most: 4}},
		"reduce":        {kindReduce, func(g *Group) error { return Reduce(g, put(g, "arena", x()), Sum, 0) }, nil, arrival{arenaOffset: testArena, most: 4 * n}},
		"reduce, none":  {kindReduce, func(g *Group) error { return Reduce(g, put(g, "arena", x()), Sum, 0) }, nil, arrival{arenaOffset: nowhere, most: 0}},
		"reducescatter": {kindReduceScatter, func(g *Group) error { return ReduceScatter(g, make([]float32, n/2), put(g, "arena", x()), Sum) }, nil, arrival{arenaOffset: testArena - 4*n/2, most: 4 * n / 2}},
		"parts":         {kindAllToAll, func(g *Group) error { return AllToAll(g, x(), put(g, "arena", x())) }, nil, arrival{arenaOffset: 0, most: 1 << 62}},
		"allgatherv": {kindAllGatherV, func(g *Group) error { return AllGatherV(g, x(), make([]float32, n/2), []int{n / 2, n / 2}) },
			nil, arrival{arenaOffset: testArena - 8, most: 4 * n / 2}},
		"endless": {kindAllGatherV, func(g *Group) error { return AllGatherV(g, x(), make([]float32, n/2), []int{n / 2, n / 2}) },
			nil, arrival{arenaOffset: nowhere, most: 1 << 62}},
		"alltoallv": {kindAllToAllV, func(g *Group) error {
			return AllToAllV(g, x(), put(g, "arena", x()), []int{n / 2, n / 2}, []int{n / 2, n / 2})
		}, func(g *Group, w *Work) {
			w.table(g.share.me)[0] = 4 * n / 2
		}, arrival{arenaOffset: testArena - 8, most: 8}},
		"alltoallv, before": {kindAllToAllV, func(g *Group) error {
			return AllToAllV(g, x(), put(g, "arena", x()), []int{n / 2, n / 2}, []int{n / 2, n / 2})
		}, func(g *Group, w *Work) {
			w.table(g.share.me)[0] = 4*n/2 - 1<<40
		}, arrival{arenaOffset: 64, most: 4 * n / 2}},
	} {
		errs := onMeshes(t, mem.NewShared(2, testArena), Config{Timeout: 20 * time.Second}, func(g *Group) error {
			if g.Rank() == 0 {
				return c.call(g)
			}
			w := &Work{g: g, operands: operands{kind: c.kind, algorithm: byDirect, x: make([]byte, 4*n), ends: []int{1}, root: 0}}
			if c.of != nil {
				c.of(g, w)
			}
			s, show := g.share, c.show
			show.sig = w.signature()
			if c.kind == kindReduceScatter || c.kind == kindAllToAll {
				show.sig = (&Work{g: g, operands: operands{kind: c.kind, algorithm: byDirect, x: make([]byte, 4*n)}}).signature()
			}
			f := s.flag(0, s.me, lineArrived)
			*arrivalOf(f) = show
			f.Raise(s.turn(0)<<summaryBits | show.sig.summary(false))
			return nil
		})
		if err := errs[0]; err == nil || asOpError(t, err).Peer != 1 || !strings.Contains(err.Error(), "exceeds its arena") && !errors.Is(err, transport.ErrLength) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(m *notice){
		"place": func(m *notice) { m.place = testArena - 4 },
		"far":   func(m *notice) { m.place = 1<<63 + 5 },
		"bytes": func(m *notice) { m.bytes = 1 << 62 },
	} {
		errs := onMeshes(t, mem.NewShared(2, testArena), Config{Timeout: 20 * time.Second}, func(g *Group) error {
			if g.Rank() == 0 {
				return Receive(g, x(), 1)
			}
			out := g.share.pairs[0].out
			m := out.notices[0]
			m.sig = (&Work{g: g, operands: operands{kind: kindSend, x: make([]byte, 4*n)}}).signature()
			m.bytes, m.place = 4*n, 0
			change(m)
			m.number.Store(1)
			out.announced.Raise(1)
			return nil
		})
		if err := errs[0]; err == nil || asOpError(t, err).Peer != 1 || !strings.Contains(err.Error(), "exceeds its arena") && !errors.Is(err, transport.ErrLength) {
			t.Errorf("a notice whose %s is wrong: %v", name, err)
		}
	}
}

// No two pipes of a group share a line, nor does one with staging.
func TestPairLayout(t *testing.T) {
	for _, size := range []int{2, 3, 5, 9} {
		meshes := mem.NewShared(size, 4096)
		owner := map[*shmwait.Flag]string{}
		claim := func(f *shmwait.Flag, who string) {
			if other, ok := owner[f]; ok {
				t.Fatalf("%d ranks: %s has a line of %s", size, who, other)
			}
			owner[f] = who
		}
		for r := range size {
			g, err := New(meshes[r], Config{ID: uint32(3)})
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range g.share.pairs {
				if p.out == nil {
					continue
				}
				claim(p.out.announced, fmt.Sprintf("%d to %d", r, i))
				for k := range pairSlots {
					claim(p.out.filled[k], fmt.Sprintf("%d to %d, filled %d", r, i, k))
					claim(p.out.taken[k], fmt.Sprintf("%d to %d, taken %d", r, i, k))
					if n := len(p.out.cells[k]); n%cacheLine != 0 || n*(size-1)*pairSlots > pairCellBytes {
						t.Errorf("%d ranks: cells of %d bytes", size, n)
					}
				}
			}
			for _, stage := range g.share.staging {
				if len(stage) == 0 {
					t.Error("no staging")
				}
			}
			g.Close()
		}
	}
}

// A short message allocates nothing.
func TestPairAllocates(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	onShared(t, 2, Config{}, func(g *Group) error {
		x, peer := make([]float32, 1000), 1-g.Rank()
		const runs = 200
		swap := func() error {
			w := StartSend(g, x, peer)
			return errors.Join(Receive(g, x[:1000], peer), w.Wait())
		}
		var err error
		if g.Rank() == 0 {
			for range runs + 6 {
				err = errors.Join(err, swap())
			}
			return err
		}
		for range 5 {
			err = errors.Join(err, swap())
		}
		if n := testing.AllocsPerRun(runs, func() { err = errors.Join(err, swap()) }); n >= 1 {
			err = errors.Join(err, fmt.Errorf("%v allocations for each exchange", n))
		}
		return err
	})
}

// A gather or scatter of more segments than there are numbers is refused on every
// rank, though only the root has all of it.
func TestTooManySegments(t *testing.T) {
	const n = 1 << 25
	onRanks(t, 2, Config{SegmentBytes: 64}, func(g *Group) error {
		var all []uint8
		if g.Rank() == 1 {
			all = make([]uint8, 2*n)
		}
		part := make([]uint8, n)
		for what, err := range map[string]error{"gather": Gather(g, all, part, 1), "scatter": Scatter(g, part, all, 1)} {
			if err == nil || !strings.Contains(err.Error(), "1048576 segments of 64 bytes") {
				return fmt.Errorf("%s: %v", what, err)
			}
		}
		return Barrier(g)
	})
}

// An algorithm that the group cannot have is refused with the reason.
func TestDirectOfManyGroups(t *testing.T) {
	_, err := New(mem.NewShared(2, 4096)[0], Config{Algorithm: Direct, ID: shareGroups})
	if err == nil || !strings.Contains(err.Error(), "group 24 has no slot in shared memory: only groups with the IDs 0 to 23") {
		t.Error(err)
	}
}

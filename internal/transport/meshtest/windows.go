package meshtest

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/shmwait"
	"github.com/ringo-ml/ringo/transport"
)

// ArenaBytes is the length of each arena required by RunWindows.
const ArenaBytes = 1 << 20

// RunWindows runs the suite for meshes with memory shared among all ranks.
func RunWindows(t *testing.T, form Form) {
	for _, c := range []struct {
		name  string
		ranks int
		run   func(*testing.T, []transport.Mesh, []*transport.SharedMemory)
	}{
		{"Layout", 3, windowsLayout},
		{"OneRank", 1, windowsLayout},
		{"ControlIsTheSame", 3, controlIsTheSame},
		{"ArenasAreTheOwners", 3, arenasAreTheOwners},
		{"Alloc", 2, windowsAlloc},
		{"Exchange", 4, exchange},
		{"CutEndsAWait", 3, cutEndsAWait},
		{"AbortEndsAWait", 3, abortEndsAWait},
		{"CloseEndsAWait", 2, closeEndsAWait},
		{"HeldBeyondClose", 2, heldBeyondClose},
	} {
		t.Run("Windows"+c.name, func(t *testing.T) {
			leakcheck.Check(t)
			ranks := form(t, c.ranks)
			t.Cleanup(func() { CloseAll(t, ranks) })
			windows := make([]*transport.SharedMemory, len(ranks))
			for i, m := range ranks {
				if windows[i] = transport.SharedMemoryOf(m); windows[i] == nil {
					if len(ranks) == 1 {
						t.Skip("a mesh of one shares nothing")
					}
					t.Fatalf("rank %d shares no memory", i)
				}
			}
			c.run(t, ranks, windows)
		})
	}
}

func pageAligned(p []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%4096 == 0 }

func zero(p []byte) bool { return len(bytes.TrimLeft(p, "\x00")) == 0 }

// windowsLayout checks the sharing ranks, the sizes and the initial zeros.
func windowsLayout(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	all := make([]int, len(ranks))
	for i := range all {
		all[i] = i
	}
	for i, w := range windows {
		if !slices.Equal(w.Ranks, all) || w.Index != i || w.Cores < 1 {
			t.Errorf("rank %d: it is number %d of %v, with %d cores", i, w.Index, w.Ranks, w.Cores)
		}
		if len(w.Control) != len(ranks)*transport.ControlBytes || !pageAligned(w.Control) || !zero(w.Control) {
			t.Errorf("rank %d: %d bytes of control, aligned %v, zero %v", i, len(w.Control), pageAligned(w.Control), zero(w.Control))
		}
		if len(w.Arenas) != len(ranks) {
			t.Fatalf("rank %d: %d arenas", i, len(w.Arenas))
		}
		for j, a := range w.Arenas {
			if len(a) != ArenaBytes || !pageAligned(a) || !zero(a) {
				t.Errorf("rank %d: arena %d has %d bytes, aligned %v, zero %v", i, j, len(a), pageAligned(a), zero(a))
			}
		}
	}
}

func agree(t *testing.T, ranks []transport.Mesh, seq int) {
	t.Helper()
	each(ranks, func(m transport.Mesh) {
		for peer := range m.Size() {
			if peer != m.Rank() {
				if err := m.Send(peer, tag(seq, 0), nil, patience); err != nil {
					t.Error(err)
				}
			}
		}
		for peer := range m.Size() {
			if peer != m.Rank() {
				if _, err := receive(m, peer, tag(seq, 0), 0); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// controlIsTheSame checks that all ranks see a piece written by each rank at both ends of Control.
func controlIsTheSame(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	const n = 5000
	at := func(w *transport.SharedMemory, r int) [][]byte {
		end := len(w.Control) - (r+1)*n
		return [][]byte{w.Control[r*n:][:n], w.Control[end:][:n]}
	}
	for i, w := range windows {
		for _, piece := range at(w, i) {
			copy(piece, pattern(n, i))
		}
	}
	agree(t, ranks, 0)
	for i, w := range windows {
		for r := range ranks {
			for _, piece := range at(w, r) {
				if !bytes.Equal(piece, pattern(n, r)) {
					t.Errorf("rank %d does not see what rank %d wrote", i, r)
				}
			}
		}
	}
}

// arenasAreTheOwners checks that Arenas[i] is rank i's arena on every rank, at any offset.
func arenasAreTheOwners(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	for i, w := range windows {
		copy(w.Arena(), pattern(ArenaBytes, i))
	}
	agree(t, ranks, 0)
	for i, w := range windows {
		for j, a := range w.Arenas {
			if !bytes.Equal(a, pattern(ArenaBytes, j)) {
				t.Errorf("rank %d finds another's bytes in arena %d", i, j)
			}
			if off, ok := w.Offset(a[100:200]); ok != (i == j) || ok && off != 100 {
				t.Errorf("rank %d: arena %d at offset 100 lies at %d, %v", i, j, off, ok)
			}
		}
	}
}

// windowsAlloc checks that Alloc's memory is visible to other ranks at the owner's offset.
func windowsAlloc(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	sizes := []int{1, 4096, 4097, 0, 12345}
	offsets := make([][]int, len(ranks))
	for i, w := range windows {
		for k, n := range sizes {
			p := w.Alloc(n)
			off, ok := w.Offset(p)
			if len(p) != n || !ok || off%4096 != 0 {
				t.Fatalf("rank %d: %d bytes at %d, %v; want %d", i, len(p), off, ok, n)
			}
			copy(p, pattern(n, i*10+k))
			offsets[i] = append(offsets[i], off)
		}
		if w.Alloc(ArenaBytes) != nil || w.Alloc(-1) != nil {
			t.Errorf("rank %d gave more than there is", i)
		}
	}
	agree(t, ranks, 0)
	for i, w := range windows {
		for j := range ranks {
			for k, n := range sizes {
				if !bytes.Equal(w.Arenas[j][offsets[j][k]:][:n], pattern(n, j*10+k)) {
					t.Errorf("rank %d: allocation %d of rank %d is not where it should be", i, k, j)
				}
			}
		}
	}
}

// pause gives waiters time to fall asleep.
func pause() { time.Sleep(soon) }

func waiterFor(w *transport.SharedMemory) shmwait.Waiter {
	return shmwait.New(shmwait.Config{Ranks: len(w.Ranks), Cores: w.Cores, OneProcess: w.OneProcess})
}

func flagOf(w *transport.SharedMemory, rank int) *shmwait.Flag {
	return shmwait.FlagAt(w.Control, rank*2*shmwait.FlagBytes)
}

// exchange checks that flags order the writes to other shared memory.
func exchange(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	const rounds, n = 200, 512
	each(ranks, func(m transport.Mesh) {
		w := windows[m.Rank()]
		wait := waiterFor(w)
		all := func(round uint64) bool {
			flagOf(w, m.Rank()).Raise(round)
			for peer := range ranks {
				if peer == m.Rank() {
					continue
				}
				if err := wait.AtLeast(flagOf(w, peer), round, m, peer, patience); err != nil {
					t.Errorf("rank %d, round %d: %v", m.Rank(), round, err)
					return false
				}
			}
			return true
		}
		for round := uint64(1); round < 2*rounds; round += 2 {
			copy(w.Arena()[:n], pattern(n, m.Rank()+int(round)))
			if !all(round) {
				return
			}
			for peer, a := range w.Arenas {
				if !bytes.Equal(a[:n], pattern(n, peer+int(round))) {
					t.Errorf("rank %d, round %d: it reads old bytes of rank %d", m.Rank(), round, peer)
				}
			}
			if !all(round + 1) { // before the next round's writes
				return
			}
		}
	})
}

// waiters returns, by rank, the errors of waits for a flag that the peer never raises.
func waiters(ranks []transport.Mesh, windows []*transport.SharedMemory, peer int) []error {
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, m := range ranks {
		if i != peer {
			all.Go(func() {
				wait := waiterFor(windows[i])
				errs[i] = wait.AtLeast(flagOf(windows[i], peer), 1, m, peer, patience)
			})
		}
	}
	all.Wait()
	return errs
}

func cutEndsAWait(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	cutter, ok := ranks[2].(transport.Cutter)
	if !ok {
		t.Skip("this mesh has no links to cut")
	}
	var late sync.WaitGroup
	late.Go(func() { pause(); cutter.Cut(0); cutter.Cut(1) })
	for i, err := range waiters(ranks, windows, 2) {
		var lost *transport.LostError
		if i != 2 && (!errors.As(err, &lost) || lost.Rank != 2) {
			t.Errorf("rank %d: got %v", i, err)
		}
	}
	late.Wait()
	if err := ranks[0].Fault(1); err != nil {
		t.Errorf("between those that are left: %v", err)
	}
}

func abortEndsAWait(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	cause := errors.New("out of paper")
	var late sync.WaitGroup
	late.Go(func() { pause(); ranks[1].Abort(cause) })
	for i, err := range waiters(ranks, windows, 0) {
		if i != 0 && !errors.Is(err, transport.ErrAborted) {
			t.Errorf("rank %d: got %v", i, err)
		}
	}
	late.Wait()
}

func closeEndsAWait(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	for _, w := range windows {
		w.Hold() // like a waiter in the memory
		defer w.Drop()
	}
	var late sync.WaitGroup
	late.Go(func() { pause(); ranks[0].Close() })
	if err := waiters(ranks, windows, 0)[1]; !errors.Is(err, transport.ErrGoodbye) {
		t.Errorf("waiting for who has left: %v", err)
	}
	late.Wait()
	wait := waiterFor(windows[0])
	if err := wait.AtLeast(flagOf(windows[0], 1), 1, ranks[0], 1, patience); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("waiting after Close: %v", err)
	}
}

// heldBeyondClose checks that held memory works after Close, and an allocation even after Drop.
func heldBeyondClose(t *testing.T, ranks []transport.Mesh, windows []*transport.SharedMemory) {
	w := windows[0]
	w.Hold()
	mine := w.Alloc(10000)
	copy(mine, pattern(len(mine), 1))
	CloseAll(t, ranks)
	w.Control[1] = 5
	w.Arenas[1][1] = 5
	if !bytes.Equal(mine, pattern(len(mine), 1)) || !bytes.Equal(w.Arena()[:len(mine)], mine) {
		t.Error("what was written is gone while the memory is held")
	}
	w.Drop()
	for i := range mine {
		mine[i]++
	}
}

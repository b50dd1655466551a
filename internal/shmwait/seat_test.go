package shmwait

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// inCompany is the naive twin of InCompany, over numbers of processors plus one.
func inCompany(seats []uint32, me int, crowded bool) bool {
	sitters := map[uint32]int{}
	for _, s := range seats {
		sitters[s]++
	}
	if seats[me] == 0 {
		return sitters[0] > 1
	}
	return sitters[seats[me]] > 1 || crowded && sitters[0] > 0
}

// Ranks are in company by where they were seen; one that was nowhere may be anywhere where there are more than cores.
func TestInCompany(t *testing.T) {
	const ranks, places = 3, 3
	f := flags(ranks)
	for code := range places * places * places {
		seats, words := make([]*Seat, ranks), make([]uint32, ranks)
		for i := range seats {
			seats[i], words[i] = f[i].Seat(), uint32(code%places)
			seats[i].n.Store(words[i])
			code /= places
		}
		for _, crowded := range []bool{false, true} {
			for me := range ranks {
				w := Waiter{seats: seats, me: me, crowded: crowded}
				for i, word := range words {
					if got, want := w.OtherCore(i), word != words[me] && word*words[me] != 0; got != want {
						t.Errorf("seats %v, rank %d is apart from %d: %v, want %v", words, me, i, got, want)
					}
				}
				if got, want := w.InCompany(), inCompany(words, me, crowded); got != want {
					t.Errorf("seats %v, rank %d, crowded %v: %v, want %v", words, me, crowded, got, want)
				}
			}
		}
	}
}

// All but oneself, those of this core before those of others, else by rank; where nothing is known, by rank.
func TestOrder(t *testing.T) {
	seated := func(me int, words ...uint32) *Waiter {
		f := flags(len(words))
		w := &Waiter{me: me}
		for i, n := range words {
			f[i].Seat().n.Store(n)
			w.seats = append(w.seats, f[i].Seat())
		}
		return w
	}
	for _, c := range []struct {
		w    *Waiter
		me   int
		want []int
	}{
		{seated(3, 1, 2, 1, 2), 3, []int{1, 0, 2}},
		{seated(0, 1, 2, 1, 2), 0, []int{2, 1, 3}},
		{seated(1, 1, 2, 0, 2), 1, []int{2, 3, 0}}, // rank 2 may be anywhere
		{seated(0, 0, 2, 1, 2), 0, []int{1, 2, 3}},
		{&Waiter{}, 2, []int{0, 1, 3}},
	} {
		if got := c.w.Order(nil, 4, c.me); !slices.Equal(got, c.want) {
			t.Errorf("rank %d of %+v: %v, want %v", c.me, c.w.seats, got, c.want)
		}
	}
	w, room := seated(0, 1, 2, 1, 2), make([]int, 0, 4)
	if n := testing.AllocsPerRun(10, func() { w.Order(room, 4, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever becomes of the seats meanwhile, no rank is left out and none comes twice: who is left out is not waited for.
func TestOrderHasEveryRank(t *testing.T) {
	const ranks = 8
	f, w := flags(ranks), &Waiter{me: 3}
	for i, flag := range f {
		flag.Seat().n.Store(uint32(1 + i%2))
		w.seats = append(w.seats, flag.Seat())
	}
	var stop atomic.Bool
	var moves sync.WaitGroup
	moves.Go(func() { // with this rank, all others change sides
		for n := uint32(0); !stop.Load(); n++ {
			w.seats[w.me].n.Store(1 + n%2)
		}
	})
	for range 200_000 {
		order := w.Order(nil, ranks, w.me)
		if slices.Sort(order); !slices.Equal(order, []int{0, 1, 2, 4, 5, 6, 7}) {
			t.Errorf("the others are %v", order)
			break
		}
	}
	stop.Store(true)
	moves.Wait()
}

// A wait that nobody needs the core of ends as others do: by the counter, by a fault, in time, after a sleep.
func TestRoomyWait(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f := flags(3)
	w := New(Config{Ranks: 2, Cores: 2, Seats: []*Seat{f[0].Seat(), f[1].Seat()}})
	if runtime.GOOS == "linux" && (!w.roomy || w.InCompany()) {
		t.Errorf("two ranks on two cores, one seen: %+v", w)
	}
	if err := w.AtLeast(f[2], 1, healthy{}, 1, 2*roomyYielding); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	gone, s := errors.New("gone"), &sick{peer: 1}
	go func() { time.Sleep(roomyYielding / 2); s.err.Store(&gone) }()
	if err := w.AtLeast(f[2], 1, s, 1, patience); err != gone {
		t.Error(err)
	}
	for i, after := range []time.Duration{0, roomyYielding / 2, 3 * roomyYielding} {
		n := uint64(i + 1)
		go func() { time.Sleep(after); f[2].Raise(n) }()
		if err := w.AtLeast(f[2], n, healthy{}, 1, patience); err != nil {
			t.Errorf("raised after %v: %v", after, err)
		}
	}
	if f[2].sleepers.Load() != 0 {
		t.Error("sleepers are left in the count")
	}
}

// With more threads than cores a wait keeps giving way, whoever sits where.
func TestRoomNeedsACoreForEachThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	f := flags(2)
	if w := New(Config{Ranks: 2, Cores: 2, Seats: []*Seat{f[0].Seat(), f[1].Seat()}}); w.roomy {
		t.Error("four threads on two cores are roomy")
	}
}

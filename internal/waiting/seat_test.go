package waiting

import (
	"errors"
	"runtime"
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
				if got, want := w.InCompany(), inCompany(words, me, crowded); got != want {
					t.Errorf("seats %v, rank %d, crowded %v: %v, want %v", words, me, crowded, got, want)
				}
			}
		}
	}
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

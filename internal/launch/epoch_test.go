package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/transport"
)

// TestNextPlaces wants the next membership after losses: ranks keep their numbers, higher ranks
// take the first free places, and new processes the other ones.
func TestNextPlaces(t *testing.T) {
	for _, c := range []struct {
		size, lost, least int
		present, want     []int
	}{
		{4, 1, 2, []int{0, 1, 3}, []int{0, 1, 3}},
		{4, 1, 2, []int{1, 2, 3}, []int{3, 1, 2}},
		{4, 1, 2, []int{0, 1, 2}, []int{0, 1, 2}},
		{4, 2, 2, []int{2, 3}, []int{2, 3}},
		{2, 1, 2, []int{0}, []int{0, -1}},
		{2, 1, 2, []int{1}, []int{-1, 1}},
		{3, 3, 2, nil, []int{-1, -1}},
		{1, 1, 1, nil, []int{-1}},
		{3, 1, 1, []int{1}, []int{-1, 1}}, // one rank has finished, and must run again
	} {
		if got := nextPlaces(c.size, c.lost, c.least, c.present); !slices.Equal(got, c.want) {
			t.Errorf("%d lost of %d, at least %d, present %v: %v, want %v", c.lost, c.size, c.least, c.present, got, c.want)
		}
	}
	for size := 1; size <= 6; size++ { // all subsets of present ranks
		for set := range 1 << size {
			var present []int
			for r := range size {
				if set>>r&1 > 0 {
					present = append(present, r)
				}
			}
			for least := 1; least <= size; least++ {
				checkPlaces(t, size, least, present, nextPlaces(size, size-len(present), least, present))
			}
		}
	}
}

func checkPlaces(t *testing.T, size, least int, present, next []int) {
	t.Helper()
	if len(next) != max(len(present), least) {
		t.Errorf("%v of %d, at least %d: %d places", present, size, least, len(next))
	}
	for _, r := range present {
		n := 0
		for _, was := range next {
			n += oneIf(was == r)
		}
		if n != 1 || r < len(next) && next[r] != r {
			t.Errorf("%v of %d, at least %d: %v has rank %d %d times", present, size, least, next, r, n)
		}
	}
}

// TestLead wants a rank with the state as the next rank 0, and no next epoch without such a rank.
func TestLead(t *testing.T) {
	for _, c := range []struct {
		began      []int  // epoch of each process's start; 0: the job's start
		informed   []bool // the process has been in a complete epoch
		from, want []int  // nil: the job ends
	}{
		{[]int{0, 0, 0}, []bool{true, true, true}, []int{0, 2}, []int{0, 2}},
		{[]int{0, 0}, []bool{true, true}, []int{-1, 1}, []int{1, -1}},
		{[]int{0, 0}, []bool{false, false}, []int{-1, 1}, nil}, // lost at the start
		{[]int{2, 0, 0}, []bool{false, true, true}, []int{0, 1}, []int{1, 0}},
		{[]int{2, 0}, []bool{false, true}, []int{0, -1}, nil},
		{[]int{2, 0}, []bool{true, true}, []int{0, -1}, []int{0, -1}},
		{[]int{3, 2, 0}, []bool{false, false, true}, []int{-1, 1, -1}, nil}, // 1 is not informed
		{[]int{0, 0}, []bool{true, true}, []int{-1, -1}, nil},
	} {
		j := new(job)
		for i, at := range c.began {
			j.procs = append(j.procs, &process{restarts: at, informed: c.informed[i]})
		}
		if from := slices.Clone(c.from); j.lead(from) != (c.want != nil) || c.want != nil && !slices.Equal(from, c.want) {
			t.Errorf("%+v: %v", c, from)
		}
	}
}

// TestEpochRefusesEarlierRanks wants a rank with the ticket of an earlier epoch refused by the next
// epoch, and informed by the earlier epoch, which still answers, that it has ended.
func TestEpochRefusesEarlierRanks(t *testing.T) {
	j := &job{cfg: Config{Version: "1", Roles: []Role{Ranks(2, "program")}, Report: func(string) {}}}
	j.cfg.setDefaults()
	if err := j.coordinate(); err != nil {
		t.Fatal(err)
	}
	defer func() { j.closeCoordinators() }()
	first, ticket := j.coordinator, j.cfg.Ticket
	first.MarkLost(1, "killed")
	j.cfg.Ticket = transport.NewTicket()
	if err := j.coordinate(); err != nil {
		t.Fatal(err)
	}
	join := func(to fmt.Stringer, ticket transport.Ticket) error {
		_, err := cluster.Join(context.Background(), cluster.MemberConfig{Rendezvous: to.String(), Ticket: ticket, Version: "1", WorldSize: 2, Times: cluster.Times{Join: time.Second}})
		return err
	}
	if err := join(j.coordinator.Addr(), ticket); !errors.Is(err, transport.ErrTicket) {
		t.Errorf("the next epoch: %v", err)
	}
	if err := join(first.Addr(), ticket); !cluster.IsVerdict(err) {
		t.Errorf("the earlier epoch: %v", err)
	}
}

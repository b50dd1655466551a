package shm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/transport/meshtest"
	"github.com/ringo-ml/ringo/transport"
)

func closeAll(t testing.TB, meshes []*Mesh) {
	t.Helper()
	meshtest.CloseAll(t, asMeshes(meshes))
}

// TestOneRankThatCannot: its host goes on without, and all know why.
func TestOneRankThatCannot(t *testing.T) {
	leakcheck.Check(t)
	meshes := formed(t, 3, func(rank int, cfg *Config) {
		if rank == 1 {
			cfg.Off = "it was told not to"
		}
	})
	defer closeAll(t, meshes)
	for i, m := range meshes {
		if m.SharedMemory() != nil {
			t.Errorf("rank %d shares memory", i)
		}
		if why, failed := m.Reason(); why != "ranks 0 to 2 (rank 1: it was told not to)" || !failed {
			t.Errorf("rank %d: %q, %v", i, why, failed)
		}
		if !slices.Equal(m.Hosts(), []int{0, 0, 0}) {
			t.Errorf("rank %d: hosts %v", i, m.Hosts())
		}
	}
}

// TestAllToldNotTo: that is no failure.
func TestAllToldNotTo(t *testing.T) {
	leakcheck.Check(t)
	meshes := formed(t, 2, func(_ int, cfg *Config) { cfg.Off = "it was told not to" })
	defer closeAll(t, meshes)
	for i, m := range meshes {
		if why, failed := m.Reason(); why != "" || failed || m.SharedMemory() != nil {
			t.Errorf("rank %d: %q, %v", i, why, failed)
		}
	}
}

// TestTooMuch: what the system refuses is a reason too, whichever rank finds out.
func TestTooMuch(t *testing.T) {
	leakcheck.Check(t)
	meshes := formed(t, 2, func(_ int, cfg *Config) { cfg.ArenaBytes = maxArena })
	defer closeAll(t, meshes)
	for i, m := range meshes {
		if why, failed := m.Reason(); !strings.HasPrefix(why, "ranks 0 and 1 (rank 0: ") || !failed || m.SharedMemory() != nil {
			t.Errorf("rank %d: %q, %v", i, why, failed)
		}
	}
}

// TestAsMuchAsThereIs: without a size the arenas are as large as the machine's
// memory, and touching their ends costs a page.
func TestAsMuchAsThereIs(t *testing.T) {
	leakcheck.Check(t)
	meshes := formed(t, 2, func(_ int, cfg *Config) { cfg.ArenaBytes = 0 })
	defer closeAll(t, meshes)
	a, b := meshes[0].SharedMemory(), meshes[1].SharedMemory()
	if why, failed := meshes[0].Reason(); why != "" || failed || a == nil || b == nil {
		t.Fatal(why, failed)
	}
	if len(a.Arena()) < 64<<20 {
		t.Errorf("an arena of %d bytes", len(a.Arena()))
	}
	a.Arena()[len(a.Arena())-1] = 7
	if got := b.Arenas[0]; got[len(got)-1] != 7 {
		t.Error("its end is not shared")
	}
}

func TestOneRank(t *testing.T) {
	meshes := formed(t, 1, nil)
	defer closeAll(t, meshes)
	if why, failed := meshes[0].Reason(); why != "there is one rank only" || failed || meshes[0].SharedMemory() != nil {
		t.Error(why, failed)
	}
}

// TestRankThatDiesMeanwhile: New fails and names it.
func TestRankThatDiesMeanwhile(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []int{2, 3} {
		for dead := range n {
			meshes := inner(t, n)
			var live []transport.Mesh
			for r, m := range meshes {
				if r != dead {
					live = append(live, m)
				}
			}
			for r := range n {
				if r != dead {
					meshes[dead].(transport.Cutter).Cut(r)
				}
			}
			_, errs := arranged(t.Context(), live, nil)
			for i, err := range errs {
				var lost *transport.LostError
				if !errors.As(err, &lost) || lost.Rank != dead || !strings.Contains(err.Error(), "arranging shared memory") {
					t.Errorf("rank %d of %d without %d: %v", live[i].Rank(), n, dead, err)
				}
			}
			meshes[dead].Close()
		}
	}
}

// TestRankThatStaysAway: the time is bounded, and the error names it.
func TestRankThatStaysAway(t *testing.T) {
	leakcheck.Check(t)
	meshes := inner(t, 2)
	_, errs := arranged(t.Context(), meshes[:1], func(_ int, cfg *Config) { cfg.JoinTimeout = 100 * time.Millisecond })
	var e *transport.Error
	if !errors.Is(errs[0], transport.ErrTimeout) || !errors.As(errs[0], &e) || e.Peer != 1 {
		t.Errorf("got %v", errs[0])
	}
	meshes[1].Close()
}

func TestContextEndsFormation(t *testing.T) {
	leakcheck.Check(t)
	meshes := inner(t, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	if _, errs := arranged(ctx, meshes[:1], nil); !errors.Is(errs[0], cause) {
		t.Errorf("got %v", errs[0])
	}
	meshes[1].Close()
}

// TestNonsenseFromAPeer is refused, naming the rank.
func TestNonsenseFromAPeer(t *testing.T) {
	leakcheck.Check(t)
	meshes := mem.New(2)
	if err := meshes[1].Send(0, transport.Tag{Group: group}, make([]byte, messageBytes), time.Second); err != nil {
		t.Fatal(err)
	}
	_, errs := arranged(t.Context(), meshes[:1], nil)
	if !errors.Is(errs[0], errCard) || !strings.Contains(errs[0].Error(), "rank 1 sent") {
		t.Errorf("got %v", errs[0])
	}
}

func TestValidate(t *testing.T) {
	bad := Config{ArenaBytes: -1, JoinTimeout: -1}
	err := bad.Validate()
	for _, want := range []string{"Ticket", "Version", "ArenaBytes -1", "JoinTimeout -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	m := mem.New(1)[0]
	if _, err := New(t.Context(), m, bad); err == nil || m.Fault(0) == nil {
		t.Errorf("got %v, and the mesh is open", err)
	}
}

func TestHostsAreNumberedByTheirLowestRanks(t *testing.T) {
	var cards []*card
	for _, h := range []byte{7, 3, 7, 9, 3} {
		cards = append(cards, &card{ok: true, host: [16]byte{h}, machine: [16]byte{h}})
	}
	hosts, ranks := hostsOf(cards)
	if !slices.Equal(hosts, []int{0, 1, 0, 2, 1}) || fmt.Sprint(ranks) != "[[0 2] [1 4] [3]]" {
		t.Error(hosts, ranks)
	}
}

// TestOutcome: each host in the way is described, up to a limit; hosts of one rank,
// and those whose ranks were all told so, never are.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		hosts, machines string // a letter for each rank; a capital host: it was told not to
		whys            []string
		reason          string
		failed          bool
	}{
		{"aabb", "xxyy", []string{"", ""}, "", false},
		{"aabb", "xxyy", []string{"", "no b"}, "ranks 2 and 3 (no b)", true},
		{"aabb", "xxyy", []string{"no a", "no b"}, "ranks 0 and 1 (no a), ranks 2 and 3 (no b)", true},
		{"aaba", "xxyx", []string{"no a", ""}, "ranks 0, 1 and 3 (no a)", true},
		{"abbbb", "xyyyy", []string{"", "no b"}, "ranks 1 to 4 (no b)", true},
		{"AABb", "xxyy", []string{"no a", "no b"}, "ranks 2 and 3 (no b)", true},
		{"AABB", "xxyy", []string{"no a", "no b"}, "", false},
		{"aabbccddeeff", "uuvvwwxxyyzz", []string{"1", "2", "", "4", "5", "6"},
			"ranks 0 and 1 (1), ranks 2 and 3 (2), ranks 6 and 7 (4), ranks 8 and 9 (5), and ranks of more hosts (1)", true},
		{"abb", "xyy", []string{"no a", ""}, "", false},
		{"ab", "xy", []string{"", ""}, "every rank has a host of its own", false},
		{"ab", "xx", []string{"", ""}, "ranks 0 and 1 are on one machine, but in different network namespaces (containers): every rank counts as a host of its own", false},
	} {
		f := new(formation)
		for r := range c.hosts {
			told, host := unicode.IsUpper(rune(c.hosts[r])), unicode.ToLower(rune(c.hosts[r]))
			f.cards = append(f.cards, &card{ok: !told, disabled: told, host: [16]byte{byte(host)}, machine: [16]byte{c.machines[r]}})
		}
		_, f.ranks = hostsOf(f.cards)
		if reason, failed := f.outcome(c.whys); reason != c.reason || failed != c.failed {
			t.Errorf("%s on %s with %q: %q, %v", c.hosts, c.machines, c.whys, reason, failed)
		}
	}
}

func TestCoresAreCountedOnce(t *testing.T) {
	a, b := &card{}, &card{}
	a.cores[0], b.cores[0], b.cores[5] = 0b0110, 0b0011, 0b1000_0000
	if n := coresOf([]*card{a, b}, []int{0, 1}); n != 4 {
		t.Errorf("%d cores", n)
	}
	if n := coresOf([]*card{{}}, []int{0}); n != 1 {
		t.Errorf("%d cores where none is known", n)
	}
}

func FuzzCard(f *testing.F) {
	f.Add((&card{ok: true, arena: 1 << 40, text: "@ringo-00"}).encode())
	f.Add((&card{text: strings.Repeat("no", 500)}).encode())
	f.Add((&card{disabled: true, text: "no"}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCard(b)
		if err != nil {
			if !errors.Is(err, errCard) {
				t.Error(err)
			}
			return
		}
		again, err := decodeCard(c.encode())
		if err != nil || *again != *c {
			t.Errorf("%+v became %+v, %v", c, again, err)
		}
	})
}

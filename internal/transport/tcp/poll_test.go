package tcp

import (
	"runtime"
	"testing"
)

func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		ranks, mine, online int
		want                bool
	}{
		{1, 1, 1, false},
		{2, 2, 2, false},
		{2, 1, 2, false}, // bound to one core each
		{2, 1, 1, true},
		{4, 2, 2, true},
		{4, 1, 2, true},
		{16, 8, 64, true},
		{16, 4, 64, false},
	} {
		if got := crowded(c.ranks, c.mine, c.online); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestCountCores(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0,2": 2, "0-1,8-15": 10, "": runtime.NumCPU(), "3-1": runtime.NumCPU(), "0-x": runtime.NumCPU()} {
		if got := countCores(list); got != want {
			t.Errorf("%q: got %d, want %d", list, got, want)
		}
	}
}

func TestLocalRanks(t *testing.T) {
	addrs := []string{"10.0.0.1:5", "10.0.0.2:5", "10.0.0.1:6", "[fe80::1]:5"}
	for rank, want := range []int{2, 1, 2, 1, 9} {
		if got := localRanks(Config{Rank: rank, Size: 9, Addrs: addrs}); got != want {
			t.Errorf("rank %d: got %d, want %d", rank, got, want)
		}
	}
}

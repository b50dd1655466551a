package launch

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

func cores(set *unix.CPUSet) []int {
	return neighbours(set, func(int) (pkg, core int) { return 0, 0 })
}

// Two packages of four cores with two threads each, numbered as Linux does: first
// one thread of every core, then the other. A rank has whole cores of one package.
func TestShare(t *testing.T) {
	var all unix.CPUSet
	for cpu := range 16 {
		all.Set(cpu)
	}
	cpus := neighbours(&all, func(cpu int) (pkg, core int) { return cpu / 4 % 2, cpu % 4 })
	for rank, want := range [][]int{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}} {
		if own := share(cpus, rank, 4); !slices.Equal(cores(&own), want) {
			t.Errorf("rank %d has the processors %v, want %v", rank, cores(&own), want)
		}
	}
}

// Ranks that are more than cores share them alike, neighbours one core.
func TestPlace(t *testing.T) {
	for _, c := range []struct {
		n, each, cpus int
		want          []int
	}{
		{2, 1, 2, []int{0, 1}},
		{4, 1, 2, []int{0, 0, 1, 1}},
		{2, 4, 8, []int{0, 1}},
		{3, 1, 2, []int{-1, -1, -1}},
		{4, 2, 2, []int{-1, -1, -1, -1}},
		{2, 1, 4, []int{-1, -1}},
	} {
		cfg := Role{Count: c.n, CoresEach: c.each}
		for rank, want := range c.want {
			if got := cfg.place(rank, c.cpus); got != want {
				t.Errorf("rank %d of %d with %d of %d cores: place %d, want %d", rank, c.n, c.each, c.cpus, got, want)
			}
		}
	}
}

// Processors may be any, such as those that a container was given.
func TestNeighbours(t *testing.T) {
	var all unix.CPUSet
	want := []int{1, 3, 64, 65, 200, 1000}
	for _, cpu := range want {
		all.Set(cpu)
	}
	if got := neighbours(&all, func(int) (pkg, core int) { return 0, 0 }); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Cores are dealt out when they all are, and the launcher's own thread is free
// again afterwards.
func TestBound(t *testing.T) {
	leakcheck.Check(t)
	j := &job{}
	err := j.onOneThread(func() error {
		var all, now unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return err
		}
		for _, c := range []struct {
			role Role
			want int
		}{
			{Role{Count: all.Count(), CoresEach: 1}, 1},
			{Role{Count: 1, CoresEach: all.Count()}, all.Count()},
			{Role{Count: 3 * all.Count(), CoresEach: 1}, 1},
			{Role{Count: 2*all.Count() + 1, CoresEach: 1}, all.Count()},
			{Role{Count: 2 * all.Count(), CoresEach: 2}, all.Count()},
			{Role{Count: all.Count()}, all.Count()},
		} {
			err := c.role.bound(0, func() error { return unix.SchedGetaffinity(0, &now) })
			if err != nil || now.Count() != c.want {
				t.Errorf("%d processes of %d: bound to %v of %v, want %d of them; %v", c.role.Count, c.role.CoresEach, cores(&now), cores(&all), c.want, err)
			}
			if err := unix.SchedGetaffinity(0, &now); err != nil || now != all {
				t.Errorf("afterwards bound to %v, want %v; %v", cores(&now), cores(&all), err)
			}
		}
		return nil
	})
	j.threads[0]()
	if err != nil {
		t.Fatal(err)
	}
}

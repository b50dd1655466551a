package launch

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/leakcheck"
)

func cores(set *unix.CPUSet) (cpus []int) {
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

func TestShare(t *testing.T) {
	var all unix.CPUSet
	for _, cpu := range []int{1, 3, 64, 65, 200, 1000} {
		all.Set(cpu)
	}
	for rank, want := range [][]int{{1, 3}, {64, 65}, {200, 1000}} {
		if own := share(&all, rank, 2); !slices.Equal(cores(&own), want) {
			t.Errorf("rank %d has the cores %v, want %v", rank, cores(&own), want)
		}
	}
}

// Cores are dealt out when they all are, and the launcher's own thread is free
// again afterwards.
func TestBound(t *testing.T) {
	leakcheck.Check(t)
	done, err := onOneThread(func() error {
		var all, now unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return err
		}
		for _, c := range []struct {
			cfg  Config
			want int
		}{
			{Config{N: all.Count(), CoresEach: 1}, 1},
			{Config{N: 1, CoresEach: all.Count()}, all.Count()},
			{Config{N: all.Count() + 1, CoresEach: 1}, all.Count()},
			{Config{N: all.Count()}, all.Count()},
		} {
			err := c.cfg.bound(0, func() error { return unix.SchedGetaffinity(0, &now) })
			if err != nil || now.Count() != c.want {
				t.Errorf("%d ranks of %d: bound to %v of %v, want %d of them; %v", c.cfg.N, c.cfg.CoresEach, cores(&now), cores(&all), c.want, err)
			}
			if err := unix.SchedGetaffinity(0, &now); err != nil || now != all {
				t.Errorf("afterwards bound to %v, want %v; %v", cores(&now), cores(&all), err)
			}
		}
		return nil
	})
	done()
	if err != nil {
		t.Fatal(err)
	}
}

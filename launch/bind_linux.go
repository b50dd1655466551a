package launch

import "golang.org/x/sys/unix"

// bound runs start, which starts a rank's process, with that process bound to
// the rank's share of the cores, if there is one: see Config.CoresEach. A child
// inherits the affinity of the thread that starts it, so the caller must hold
// on to its thread.
func (c *Config) bound(rank int, start func() error) error {
	if c.CoresEach == 0 {
		return start()
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil || all.Count() != c.N*c.CoresEach {
		return start()
	}
	own := share(&all, rank, c.CoresEach)
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return start() // a sandbox may forbid it, and it is only faster
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }() // what it was is allowed
	return start()
}

// share is the rank-th group of n cores of all.
func share(all *unix.CPUSet, rank, n int) (own unix.CPUSet) {
	seen := 0
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		if seen/n == rank {
			own.Set(cpu)
		}
		seen++
	}
	return own
}

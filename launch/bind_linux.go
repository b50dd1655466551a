package launch

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bound runs start, which starts a process of the role, with that process bound to
// its share of the cores, if there is one: see Role.CoresEach. A child
// inherits the affinity of the thread that starts it, so the caller must hold
// on to its thread.
func (r *Role) bound(index int, start func() error) error {
	if r.CoresEach == 0 {
		return start()
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return start()
	}
	place := r.place(index, all.Count())
	if place < 0 {
		return start()
	}
	own := share(neighbours(&all, sysTopology), place, r.CoresEach)
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return start() // a sandbox may forbid it, and it is only faster
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }() // what it was is allowed
	return start()
}

// place is which group of CoresEach processors is a process's, -1 where none is: the
// processes need them all, or several of a core each share every one of them alike.
// Left alone, the system moves processes that wait for each other about, and for long
// leaves more of them on one core than on another.
func (r *Role) place(index, cpus int) int {
	switch {
	case cpus == r.Count*r.CoresEach:
		return index
	case r.CoresEach == 1 && r.Count%cpus == 0:
		return index / (r.Count / cpus)
	}
	return -1
}

// share is the i-th group of n of the processors.
func share(cpus []int, i, n int) (own unix.CPUSet) {
	for _, cpu := range cpus[i*n : (i+1)*n] {
		own.Set(cpu)
	}
	return own
}

// neighbours lists the processors of a set so that those of one package, and in
// it those of one core, follow each other: a rank should not share a core with
// another, nor be spread over packages.
func neighbours(set *unix.CPUSet, topology func(cpu int) (pkg, core int)) []int {
	type place struct{ pkg, core, cpu int }
	var places []place
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			pkg, core := topology(cpu)
			places = append(places, place{pkg, core, cpu})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.core, b.core), cmp.Compare(a.cpu, b.cpu))
	})
	cpus := make([]int, len(places))
	for i, p := range places {
		cpus[i] = p.cpu
	}
	return cpus
}

// sysTopology asks the kernel; what it does not say counts as 0.
func sysTopology(cpu int) (pkg, core int) {
	read := func(name string) int {
		text, _ := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name))
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
	return read("physical_package_id"), read("core_id")
}

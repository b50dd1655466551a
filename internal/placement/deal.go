package placement

import (
	"cmp"
	"fmt"
	"slices"
)

// unit is a core with its allowed hardware threads, or a single hardware thread.
type unit []CPU

// level is a kind of machine part, such as a NUMA node, that can hold a process's whole share.
type level struct {
	name string // after "each in one"
	of   func(CPU) int
}

var levels = []level{
	{"last-level cache", func(c CPU) int { return c.Cache }},
	{"NUMA node", func(c CPU) int { return c.Node }},
	{"package", func(c CPU) int { return c.Package }},
	{"", func(CPU) int { return 0 }},
}

// byPlace orders processors by place: neighbours share most.
func byPlace(a, b CPU) int {
	return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Cache, b.Cache),
		cmp.Compare(a.Core, b.Core), cmp.Compare(a.Number, b.Number))
}

func cores(cpus []CPU) (out []unit) {
	sorted := slices.SortedFunc(slices.Values(cpus), byPlace)
	for i, c := range sorted {
		if i == 0 || c.Package != sorted[i-1].Package || c.Core != sorted[i-1].Core {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], c)
	}
	return out
}

func hardwareThreads(cpus []CPU) (out []unit) {
	for _, c := range slices.SortedFunc(slices.Values(cpus), byPlace) {
		out = append(out, unit{c})
	}
	return out
}

// deal gives every process an equal share, of whole cores if possible. If single-threaded processes
// are a multiple of the cores, every core gets the same number: the system cannot overload a core.
func deal(cpus []CPU, r Request) (Plan, bool) {
	all, each := cores(cpus), "core"
	need := r.Processes * r.Threads
	if need > len(all) && r.Mode == Auto && len(cpus) > len(all) {
		all, each = hardwareThreads(cpus), "hardware thread"
	}
	switch {
	case need <= len(all):
		return share(all, each, r), true
	case r.Mode == Auto && r.Threads == 1 && r.Processes%len(all) == 0:
		return crowd(all, each, r.Processes), true
	}
	return Plan{}, false
}

// share deals out units: one per thread for Core, else an equal share.
func share(all []unit, each string, r Request) Plan {
	in, k := narrowest(all, r)
	p := Plan{text: "bound to a " + each + " each"}
	if k > 1 {
		p.text = fmt.Sprintf("bound to %d %ss each", k, each)
	}
	parts := split(all, in.of)
	if len(parts) > 1 && in.name != "" && k > 1 {
		p.text += ", in one " + in.name
	}
	for _, part := range parts {
		for ; len(part) >= k && len(p.Shares) < r.Processes; part = part[k:] {
			p.Shares = append(p.Shares, numbers(part[:k]))
		}
	}
	return p
}

// narrowest finds the narrowest kind of part with room for all processes, and the units per
// process: at least one per thread, and at least three quarters of an equal share of the machine,
// since a program's threads may be unknown.
func narrowest(all []unit, r Request) (level, int) {
	whole := len(all) / r.Processes
	least := max(r.Threads, (3*whole+3)/4)
	if r.Mode == Core {
		whole, least = r.Threads, r.Threads
	}
	for _, in := range levels {
		for k := whole; k >= least; k-- {
			if room(split(all, in.of), k) >= r.Processes {
				return in, k
			}
		}
	}
	return levels[len(levels)-1], whole // the whole machine, with room for all
}

// room is the number of shares of k units that fit in parts, each share in one part.
func room(parts [][]unit, k int) (n int) {
	for _, p := range parts {
		n += len(p) / k
	}
	return n
}

// split groups consecutive units by machine part.
func split(all []unit, of func(CPU) int) (parts [][]unit) {
	for i, u := range all {
		if i == 0 || of(u[0]) != of(all[i-1][0]) {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], u)
	}
	return parts
}

func crowd(all []unit, each string, processes int) Plan {
	n := processes / len(all)
	p := Plan{text: fmt.Sprintf("bound, %d to a %s", n, each)}
	for i := range processes {
		p.Shares = append(p.Shares, numbers(all[i/n:i/n+1]))
	}
	return p
}

func numbers(units []unit) (out []int) {
	for _, u := range units {
		for _, c := range u {
			out = append(out, c.Number)
		}
	}
	slices.Sort(out)
	return out
}

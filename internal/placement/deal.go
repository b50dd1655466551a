package placement

import (
	"cmp"
	"fmt"
	"slices"
)

// unit is what is dealt out: a core with those of its hardware threads that may be used, or one of these.
type unit []CPU

// level is a kind of part of a machine that processes should not be spread over, narrow ones first.
type level struct {
	name string // behind "each in one"
	of   func(CPU) int
}

var levels = []level{
	{"last-level cache", func(c CPU) int { return c.Cache }},
	{"NUMA node", func(c CPU) int { return c.Node }},
	{"package", func(c CPU) int { return c.Package }},
	{"", func(CPU) int { return 0 }},
}

// byPlace orders processors so that those that share most follow each other.
func byPlace(a, b CPU) int {
	return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Cache, b.Cache),
		cmp.Compare(a.Core, b.Core), cmp.Compare(a.Number, b.Number))
}

// cores groups processors by core.
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

// hardwareThreads is a unit for each processor.
func hardwareThreads(cpus []CPU) (out []unit) {
	for _, c := range slices.SortedFunc(slices.Values(cpus), byPlace) {
		out = append(out, unit{c})
	}
	return out
}

// deal gives every process an equal share, of whole cores where they last. Processes of one thread that are a multiple
// of the processors share each with as many: so the system cannot leave more of them on one than on another.
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

// share deals units out, for Core as many as there are threads, and else as many as there are for each.
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

// narrowest finds the narrowest parts of the machine that have room for all processes, and how many units each gets
// there: not less than its threads need, and, of what an equal share of the machine would be, not less than three
// quarters, since how many threads a program has may not be known.
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
	return levels[len(levels)-1], whole // which has room for all
}

// room is how many shares of k units parts have.
func room(parts [][]unit, k int) (n int) {
	for _, p := range parts {
		n += len(p) / k
	}
	return n
}

// split groups units that follow each other by the part of the machine that they are in.
func split(all []unit, of func(CPU) int) (parts [][]unit) {
	for i, u := range all {
		if i == 0 || of(u[0]) != of(all[i-1][0]) {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], u)
	}
	return parts
}

// crowd puts several processes on each unit.
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

package placement

import "testing"

// Plans from the view of each process.
func TestProcesses(t *testing.T) {
	all := []int{0, 1}
	machine := Read(shape{1, 1, 1, 2, 1}.system(), all)
	p := func(threads int, cpus ...int) Process { return Process{CPUs: cpus, Threads: threads, Near: true} }
	far := Process{CPUs: all, Threads: 1}
	for name, c := range map[string]struct {
		ps            Processes
		quota         float64
		want          string
		own, together int
	}{
		"two ranks":                    {Processes{p(1, 0, 1), p(1, 0, 1)}, 0, "bound to a core each", 1, 2},
		"one rank":                     {Processes{p(1, 0, 1)}, 0, "not bound: one rank has all cores", 2, 2},
		"four ranks":                   {Processes{p(1, 0, 1), p(1, 0, 1), p(1, 0, 1), p(1, 0, 1)}, 0, "bound, 2 to a core", 1, 2},
		"three ranks":                  {Processes{p(1, 0, 1), p(1, 0, 1), p(1, 0, 1)}, 0, "not bound: 3 ranks on 2 cores", 1, 2},
		"two threads in one of them":   {Processes{p(1, 0, 1), p(2, 0, 1)}, 0, "not bound: 2 ranks of 2 threads on 2 cores", 1, 2},
		"bound by others":              {Processes{p(1, 0), p(1, 1)}, 0, "not bound: they have different processors already", 1, 2},
		"a server beside two":          {Processes{p(1, 0, 1), p(1, 0, 1), p(0, 0, 1)}, 0, "bound to a core each", 1, 2},
		"this one is a server":         {Processes{p(0, 0, 1), p(1, 0, 1), p(1, 0, 1)}, 0, "not bound: as asked for", 1, 2},
		"two in another container":     {Processes{p(1, 0, 1), p(1, 0, 1), far, far}, 0, "bound, 2 to a core", 1, 1},
		"one process":                  {Processes{p(1, 0, 1), {CPUs: all, Threads: 1, Near: true, SameProcess: true}}, 0, "not bound: several are one process", 1, 2},
		"a quota of one processor":     {Processes{p(1, 0, 1), p(1, 0, 1)}, 1.5, "not bound: the control group has the time of 1.5 of 2 processors, on no certain ones", 1, 1},
		"a rank of several containers": {Processes{p(1, 0, 1), far}, 0, "bound to a core each", 1, 1},
	} {
		c.ps[0].Me = true
		m := machine
		m.Quota = c.quota
		plan, err := c.ps.Plan(m, Auto)
		if err != nil || plan.String() != c.want {
			t.Errorf("%s: %q, %v, want %q", name, plan, err, c.want)
		}
		if own, together := c.ps.CPUShare(m), c.ps.Together(m); own != c.own || together != c.together {
			t.Errorf("%s: %d processors of its own and %d together, want %d and %d", name, own, together, c.own, c.together)
		}
	}
}

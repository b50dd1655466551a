package placement

import "slices"

// Process is one of those of a machine that wait for each other.
type Process struct {
	// CPUs are the processors that it may run on, ascending.
	CPUs []int
	// Threads is how many compute in it; 0: it takes no core of its own, such as a server, and is not to be bound.
	Threads int
	// Near says that it shares memory with this one.
	Near bool
	// Me says that it is this one, and Here that it is at least in the same process of the system.
	Me, SameProcess bool
}

// Processes are those of a machine as one of them sees them. The others see them in the same order.
type Processes []Process

// me is this process, and its number among those that take cores: -1 if it takes none.
func (ps Processes) me() (me Process, index int) {
	index = -1
	n := 0
	for _, p := range ps {
		if p.Me {
			me = p
		}
		if p.Threads > 0 {
			if p.Me {
				index = n
			}
			n++
		}
	}
	return me, index
}

// Plan decides where all of them run, as each of them does by itself. An error is of Core alone.
func (ps Processes) Plan(m Machine, mode Mode) (Plan, error) {
	me, index := ps.me()
	r := Request{Mode: mode}
	if index < 0 {
		r.Mode = None
	}
	for _, p := range ps {
		if p.Threads > 0 {
			r.Processes, r.Threads = r.Processes+1, max(r.Threads, p.Threads)
			r.Preassigned = r.Preassigned || !slices.Equal(p.CPUs, me.CPUs)
			r.OneProcess = r.OneProcess || p.SameProcess && !p.Me
		}
	}
	return Decide(m, r)
}

// Bind decides, and binds this process. It takes down what each may run on from then on. undo, nil where nothing was
// bound, gives this process back what it had.
func (ps Processes) Bind(m Machine, mode Mode) (plan Plan, undo func(), err error) {
	plan, err = ps.Plan(m, mode)
	if err != nil || !plan.Bound() {
		return plan, nil, err
	}
	_, index := ps.me()
	if refused := BindProcess(plan.Shares[index]); refused != nil {
		if mode == Core {
			return plan, nil, refused
		}
		return LeftAlone(refused.Error()), nil, nil
	}
	undo = func() { _ = BindProcess(m.Numbers()) } // what it was is allowed
	n := 0
	for i, p := range ps {
		if p.Threads > 0 {
			ps[i].CPUs = plan.Shares[n]
			n++
		}
	}
	return plan, undo, nil
}

// CPUShare is how many processors this process has for itself, at least 1: its part of those that
// it may run on, which it shares with those that may run on the same.
func (ps Processes) CPUShare(m Machine) int {
	me, _ := ps.me()
	n := 0
	for _, p := range ps {
		if (p.Threads > 0 || p.Me) && slices.Equal(p.CPUs, me.CPUs) {
			n++
		}
	}
	return max(1, m.Together(len(me.CPUs))/max(1, n))
}

// Together is how many processors this process and those near it may use at the same time, at least 1. Of those that
// others of the machine may use, too, these have their part.
func (ps Processes) Together(m Machine) int {
	all, SharesMemory := 0, 0
	mine := map[int]bool{}
	for _, p := range ps {
		if p.Near || p.Me {
			SharesMemory++
			for _, c := range p.CPUs {
				mine[c] = true
			}
		}
	}
	for _, p := range ps {
		if slices.ContainsFunc(p.CPUs, func(c int) bool { return mine[c] }) {
			all++
		}
	}
	return max(1, m.Together(len(mine))*SharesMemory/max(SharesMemory, all))
}

package placement

import (
	"os"
	"slices"
)

// Process is a communicating process of a machine.
type Process struct {
	// CPUs are the process's allowed processors, ascending.
	CPUs []int
	// Threads is the number of computing threads; 0: none that needs a core, as in a server, and no
	// binding.
	Threads int
	// Near reports whether the process shares memory with this process.
	Near bool
	// Me marks this process's entry, SameProcess an entry in the same system process.
	Me, SameProcess bool
}

// Processes are a machine's processes as seen by one process, in the same order for all.
type Processes []Process

// me is this process, and its index among processes with threads, or -1.
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

// Plan decides where all processes run, with the same result in each process. Only Core can fail.
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

// Bind plans, binds this process, and records the new processors of each process. undo restores
// this process's processors; nil: no binding.
func (ps Processes) Bind(m Machine, mode Mode) (plan Plan, undo func(), err error) {
	plan, err = ps.Plan(m, mode)
	if err != nil || !plan.Bound() {
		return plan, nil, err
	}
	_, index := ps.me()
	if refused := BindProcess(os.Getpid(), plan.Shares[index]); refused != nil {
		if mode == Core {
			return plan, nil, refused
		}
		return LeftAlone(refused.Error()), nil, nil
	}
	undo = func() { _ = BindProcess(os.Getpid(), m.Numbers()) } // the old processors are allowed
	n := 0
	for i, p := range ps {
		if p.Threads > 0 {
			ps[i].CPUs = plan.Shares[n]
			n++
		}
	}
	return plan, undo, nil
}

// CPUShare is this process's number of processors, at least 1: an equal share among processes with
// equal allowed processors.
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

// Together is the number of processors for this process and those that share memory with it, at the
// same time, at least 1. Processors shared with other processes count in part.
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

// Package placement decides where a host's communicating processes run, and binds the processes.
//
// By default the system moves such processes around, and for long periods leaves two on one core
// while another core idles: a wait then takes microseconds, instead of a tenth of a microsecond.
package placement

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Mode selects the policy.
type Mode string

// The modes.
const (
	// Auto binds if processes and threads fit the processors and are not bound yet.
	Auto Mode = "auto"
	// Core gives each thread a core, or fails.
	Core Mode = "core"
	// None leaves all to the system.
	None Mode = "none"
)

// CPU is a processor in the system's numbering: a hardware thread of a core. The numbers of
// packages, nodes and caches are the system's; cores in different packages may share a number.
type CPU struct {
	Number, Package, Node, Cache, Core int // Cache is the last-level cache
}

// Machine is the usable part of a machine.
type Machine struct {
	// CPUs are ascending by number. Empty: unknown.
	CPUs []CPU
	// Quota is a control group's processor time, in processors; 0: no limit.
	Quota float64
}

// Request is a request for placement.
type Request struct {
	// Processes is the number of processes on the same processors, at least 1.
	Processes int
	// Threads is the number of computing threads per process; 0: unknown, taken as 1.
	Threads int
	// Mode is Auto if empty.
	Mode Mode
	// Preassigned reports whether the processes have different processors already.
	Preassigned bool
	// OneProcess reports whether several of the processes are a single system process.
	OneProcess bool
}

// Plan is a decision.
type Plan struct {
	// Shares are the processors of each process, ascending; nil: unbound.
	Shares [][]int
	text   string
}

// String describes the decision in words after "ranks": "bound to a core each", "not bound: 3 ranks
// on 2 cores".
func (p Plan) String() string { return p.text }

// Bound reports whether processes are bound.
func (p Plan) Bound() bool { return p.Shares != nil }

// Decide gives each process processors, whole cores before single hardware threads. The decision
// depends only on the arguments, and is equal in every process of a host. Only Core can fail.
func Decide(m Machine, r Request) (Plan, error) {
	r.Threads, r.Mode = max(1, r.Threads), orAuto(r.Mode)
	why := against(m, r)
	if why == "" {
		if p, ok := deal(m.CPUs, r); ok {
			return p, nil
		}
		why = tooMany(m, r)
	}
	if r.Mode == Core {
		return Plan{}, fmt.Errorf("no core for each thread: %w", errors.New(why))
	}
	return LeftAlone(why), nil
}

// LeftAlone is the plan without binding.
func LeftAlone(why string) Plan { return Plan{text: "not bound: " + why} }

func orAuto(m Mode) Mode {
	if m == "" {
		return Auto
	}
	return m
}

// against is a reason against binding regardless of the numbers, or empty.
func against(m Machine, r Request) string {
	switch {
	case r.Mode == None:
		return "as asked for"
	case r.OneProcess:
		return "several are one process"
	case r.Preassigned:
		return "they have different processors already"
	case len(m.CPUs) == 0:
		return "this system does not say which processors there are"
	case m.Quota > 0 && m.Quota < float64(len(m.CPUs)) && (r.Mode == Auto || float64(r.Processes*r.Threads) > m.Quota):
		// Other control groups use the rest of the time, perhaps on the same cores.
		return fmt.Sprintf("the control group has the time of %s of %d processors, on no certain ones", quantity.Float(m.Quota), len(m.CPUs))
	case r.Mode == Auto && r.Processes == 1:
		return "one rank has all cores"
	case r.Mode == Auto && len(m.CPUs) == 1:
		return tooMany(m, r)
	}
	return ""
}

func tooMany(m Machine, r Request) string {
	text := fmt.Sprintf("%s on %s", quantity.Count(r.Processes, "rank"), quantity.Count(len(cores(m.CPUs)), "core"))
	if r.Threads > 1 {
		text = fmt.Sprintf("%s of %s on %s", quantity.Count(r.Processes, "rank"), quantity.Count(r.Threads, "thread"), quantity.Count(len(cores(m.CPUs)), "core"))
	}
	if n := len(m.CPUs); n > len(cores(m.CPUs)) {
		text += " with " + quantity.Count(n, "hardware thread")
	}
	return text
}

// Together returns a number of processors, limited to the quota, but at least 1.
func (m Machine) Together(processors int) int {
	if m.Quota > 0 {
		processors = min(processors, int(math.Floor(m.Quota)))
	}
	return max(1, processors)
}

// Numbers are the processors' numbers.
func (m Machine) Numbers() (out []int) {
	for _, c := range m.CPUs {
		out = append(out, c.Number)
	}
	return out
}

// Home is the common NUMA node of processors. ok is false for several nodes, and on a machine with
// a single node.
func (m Machine) Home(cpus []int) (node int, ok bool) {
	nodes, mine := map[int]bool{}, map[int]bool{}
	own := map[int]bool{}
	for _, n := range cpus {
		own[n] = true
	}
	for _, c := range m.CPUs {
		nodes[c.Node] = true
		if own[c.Number] {
			mine[c.Node], node = true, c.Node
		}
	}
	return node, len(nodes) > 1 && len(mine) == 1
}

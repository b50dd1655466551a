// Package placement decides on which processors the processes of a host run that wait for each other, and puts them
// there.
//
// Left alone, the system moves processes that wait for each other about, and for long leaves two of them on one core
// while another idles: a wait then takes microseconds, where two cores see each other's stores within a tenth of one.
package placement

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Mode says who decides.
type Mode string

// The modes.
const (
	// Auto binds where processes and their threads fit the processors, and where nobody else has done so.
	Auto Mode = "auto"
	// Core gives each thread a core, or fails.
	Core Mode = "core"
	// None leaves all to the system.
	None Mode = "none"
)

// CPU is a processor as the system counts them: a hardware thread of a core. The numbers of packages, nodes and caches
// are the system's, and cores with the same number in different packages are different ones.
type CPU struct {
	Number, Package, Node, Cache, Core int // Cache is the last-level one
}

// Machine is what processes may use of a machine.
type Machine struct {
	// CPUs are ascending by number. Empty: the system does not say.
	CPUs []CPU
	// Quota is how many processors' time a control group grants; 0: no limit.
	Quota float64
}

// Request is what is to be placed.
type Request struct {
	// Processes are those that may all use the same processors, at least 1.
	Processes int
	// Threads is how many compute in each; 0: that is not known, and one is taken.
	Threads int
	// Mode is Auto where it is empty.
	Mode Mode
	// Preassigned says that somebody has given them different processors already.
	Preassigned bool
	// OneProcess says that several of them are one process of the system.
	OneProcess bool
}

// Plan is a decision.
type Plan struct {
	// Shares are the processors of each process, ascending; nil: all are left alone.
	Shares [][]int
	text   string
}

// String tells the decision in words that follow "ranks": "bound to a core each", "not bound: 3 ranks on 2 cores".
func (p Plan) String() string { return p.text }

// Bound says that processes are bound.
func (p Plan) Bound() bool { return p.Shares != nil }

// Decide says which process gets which processors, whole cores before hardware threads of one. It depends on nothing
// else, so that every process of a host decides alike. Core fails where it cannot be had; the others never do.
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

// LeftAlone is the plan that binds nothing.
func LeftAlone(why string) Plan { return Plan{text: "not bound: " + why} }

func orAuto(m Mode) Mode {
	if m == "" {
		return Auto
	}
	return m
}

// against says what forbids binding, whatever the numbers are.
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
		// Other groups get the rest of the time, perhaps on the very cores that would be taken.
		return fmt.Sprintf("the control group has the time of %s of %d processors, on no certain ones", quantity.Float(m.Quota), len(m.CPUs))
	case r.Mode == Auto && r.Processes == 1:
		return "one rank has all cores"
	case r.Mode == Auto && len(m.CPUs) == 1:
		return tooMany(m, r)
	}
	return ""
}

// tooMany says that there are more threads than cores.
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

// Together is how many processors so many may use at the same time, at least 1: no more than the quota grants.
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

// Home is the NUMA node that all of some processors belong to. ok is false where they are of several, and where the
// machine has one alone.
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

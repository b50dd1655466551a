package ringo

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/placement"
	"github.com/ringo-ml/ringo/internal/transport/shm"
)

// Placement tells in words where the ranks of this host run: "bound to a core each", or "not bound: 3 ranks on 2 cores".
// It is empty where that was nobody's concern, such as in one process.
func (j *Job) Placement() string { return j.placed }

// Cores is how many processors this rank has for itself, at least 1: those that it is bound to, or else its share of
// those that the ranks of its machine may use. What it computes on more threads than that takes turns.
func (j *Job) Cores() int { return j.cores }

// takes is how many cores this process wants, as its neighbours are told; 0: none of its own.
func (c Config) takes(env launch.RankEnv) int {
	bind := cmp.Or(c.Bind, env.Bind)
	if c.serves || env.Serves() || bind == launch.BindNone && !env.Launched {
		return 0
	}
	return max(1, cmp.Or(c.Threads, env.Threads))
}

// settle finds out on which processors this rank runs, until it leaves. One that no launcher has started binds itself: all ranks of the
// machine decide alike, by what they know of each other.
func (j *Job) settle(env launch.RankEnv, cfg Config) func([]shm.Neighbour) (shm.Settled, error) {
	return func(here []shm.Neighbour) (shm.Settled, error) {
		j.placed = env.Placed
		machine := placement.LocalMachine()
		ranks := placement.Processes(processesOf(here, j.rank))
		if !env.Launched {
			plan, undo, err := ranks.Bind(machine, cmp.Or(cfg.Bind, env.Bind))
			if err != nil {
				return shm.Settled{}, fmt.Errorf("binding this rank: %w", err)
			}
			j.placed, j.unbind = plan.String(), undo
		}
		j.cores = ranks.CPUShare(machine)
		s := shm.Settled{Cores: ranks.Together(machine)}
		s.Node, s.Homed = machine.Home(placement.Allowed())
		return s, nil
	}
}

func processesOf(here []shm.Neighbour, me int) (out []placement.Process) {
	for _, n := range here {
		out = append(out, placement.Process{CPUs: n.CPUs, Threads: n.Threads, Near: n.Near, Me: n.Rank == me, SameProcess: n.SameProcess})
	}
	return out
}

// validBind says whether a setting of Bind is known.
func validBind(b launch.Bind) bool { return b == "" || slices.Contains(launch.Binds(), b) }

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Status is the coordinator's information about a rank.
type Status struct {
	Doing  string        // rank's description: "evaluating"; may be empty
	Waits  bool          // the rank waits for Peer, for a time of For
	Peer   int           // awaited rank
	For    time.Duration // duration of the wait
	In     string        // operation of the wait: "allreduce 12"; may be empty
	Silent time.Duration // time since the last heartbeat
	Left   bool          // left, or never joined: never reported as slow
}

// Slow is a rank that delays other ranks.
type Slow struct {
	Rank   int
	Doing  string
	Silent time.Duration // time without a heartbeat, if above 0
	By     []int         // waiting ranks, directly or through other ranks
	For    time.Duration // longest of these waits
	In     string        // rank's operation, if known
	Stuck  bool          // the wait is so long that the operation counts as stuck
	Circle bool          // no single rank is slow: Rank and By wait for each other
}

// String describes the rank on one line.
func (s Slow) String() string {
	long := quantity.Duration(s.For)
	if s.Stuck && s.Silent == 0 {
		return s.stuck(long)
	}
	if s.Circle {
		return fmt.Sprintf("%s wait for each other, the longest for %s: messages are not arriving", rankList(s.By), long)
	}
	in := ""
	if s.In != "" {
		in = " in " + s.In
	}
	text := fmt.Sprintf("rank %d is slow: %s been waiting for it%s for %s", s.Rank, s.waiting(), in, long)
	if s.Silent > 0 {
		return text + fmt.Sprintf(" (no sign of life for %s)", quantity.Duration(s.Silent))
	}
	return text + s.doing()
}

func (s Slow) doing() string {
	if s.Doing == "" {
		return ""
	}
	return " (" + s.Doing + ")"
}

// waiting names the waiting ranks, with the verb.
func (s Slow) waiting() string {
	if len(s.By) == 1 {
		return rankList(s.By) + " has"
	}
	return rankList(s.By) + " have"
}

func (s Slow) stuck(long string) string {
	whom := fmt.Sprintf("rank %d%s", s.Rank, s.doing())
	if s.Circle {
		whom = "each other"
	}
	return fmt.Sprintf("%s makes no progress, though all ranks are alive: %s been waiting for %s for %s; it fails at its timeout",
		cmp.Or(s.In, "an exchange"), s.waiting(), whom, long)
}

// FindSlow returns the ranks that have delayed other ranks for at least after, by rank; an
// operation that has waited for at least stuck counts as stuck. A rank that waits for another is
// not slow: FindSlow follows the waits to a rank that does not wait. Cost: O(N^2) for N ranks in
// the worst case, some microseconds for 64.
func FindSlow(ranks []Status, after, stuck time.Duration) []Slow {
	found := make([]*Slow, len(ranks))
	for r, s := range ranks {
		if s.Left || !s.Waits || s.For < after {
			continue
		}
		root, circle := root(ranks, r, after)
		if ranks[root].Left || root == r && !circle { // reported before the silence began
			continue
		}
		if found[root] == nil {
			found[root] = &Slow{Rank: root, Doing: ranks[root].Doing, Circle: circle}
			if ranks[root].Silent >= after {
				found[root].Silent = ranks[root].Silent
			}
			if circle { // including members of the circle with shorter waits
				found[root].By = circleOf(ranks, root)
			}
		}
		f := found[root]
		if !slices.Contains(f.By, r) {
			f.By = append(f.By, r)
		}
		if s.For > f.For {
			f.For, f.In, f.Stuck = s.For, s.In, s.For >= stuck
		}
	}
	var out []Slow
	for _, f := range found {
		if f != nil {
			slices.Sort(f.By)
			out = append(out, *f)
		}
	}
	return out
}

// root follows the waits from r to a rank that does not wait. In a ring algorithm the ranks begin
// to wait one after another, so a wait of after/2 counts. In a circle the root is the lowest rank.
func root(ranks []Status, r int, after time.Duration) (rank int, circle bool) {
	for range ranks {
		s := ranks[r]
		if s.Left || !s.Waits || s.For < after/2 || s.Silent >= after || s.Peer < 0 || s.Peer >= len(ranks) {
			return r, false
		}
		r = s.Peer
	}
	return slices.Min(circleOf(ranks, r)), true // after as many steps as ranks, r is on the circle
}

func circleOf(ranks []Status, r int) []int {
	members := []int{r}
	for next := ranks[r].Peer; next != r; next = ranks[next].Peer {
		members = append(members, next)
	}
	return members
}

// reporter formats the results of FindSlow. It reports a rank immediately, then after twice the
// time, four times and so on, to limit the output, and when its operation first counts as stuck.
type reporter struct {
	next map[int]due // time of the next report, by rank
}

// due is the time of a rank's next report.
type due struct {
	at    time.Duration // duration of the wait
	stuck bool          // the stuck operation was reported
}

func (p *reporter) lines(found []Slow) []string {
	if len(found) == 0 {
		p.next = nil
		return nil
	}
	next := make(map[int]due, len(found))
	var out []string
	for _, s := range found {
		d := p.next[s.Rank]
		if s.For >= d.at || s.Stuck && !d.stuck {
			out = append(out, s.String())
			d = due{2 * s.For, s.Stuck}
		}
		next[s.Rank] = d
	}
	p.next = next
	return out
}

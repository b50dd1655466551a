package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// Status is what the coordinator knows of what a rank is doing.
type Status struct {
	Doing  string        // in the rank's own words: "evaluating"; may be empty
	Waits  bool          // it waits for Peer, since For
	Peer   int           // whom it waits for
	For    time.Duration // how long
	In     string        // the operation in which it waits: "allreduce 12"; may be empty
	Silent time.Duration // since its last heartbeat
	Left   bool          // it left, or never joined: nobody is told that it is slow
}

// Slow is a rank that holds up others.
type Slow struct {
	Rank   int
	Doing  string
	Silent time.Duration // when above 0, there was no sign of life for so long
	By     []int         // the ranks that wait for it, directly or through others
	For    time.Duration // the longest of those waits
	In     string        // its operation, if it is known
	Stuck  bool          // it has lasted so long that the operation is taken for stuck
	Circle bool          // no one rank is slow: Rank and By wait for each other
}

// String reports the rank in one line.
func (s Slow) String() string {
	long := quantity.Duration(s.For)
	if s.Stuck && s.Silent == 0 {
		return s.stuck(long)
	}
	if s.Circle {
		return fmt.Sprintf("%s wait for each other, the longest for %s: messages are not arriving", rankList(s.By), long)
	}
	verb := "have"
	if len(s.By) == 1 {
		verb = "has"
	}
	in := ""
	if s.In != "" {
		in = " in " + s.In
	}
	text := fmt.Sprintf("rank %d is slow: %s %s been waiting for it%s for %s", s.Rank, rankList(s.By), verb, in, long)
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

// stuck reports an operation that makes no progress.
func (s Slow) stuck(long string) string {
	what := s.In
	if what == "" {
		what = "an exchange"
	}
	verb := "have"
	if len(s.By) == 1 {
		verb = "has"
	}
	whom := fmt.Sprintf("rank %d%s", s.Rank, s.doing())
	if s.Circle {
		whom = "each other"
	}
	return fmt.Sprintf("%s makes no progress, though all ranks are alive: %s %s been waiting for %s for %s; it fails at its timeout",
		what, rankList(s.By), verb, whom, long)
}

// FindSlow returns the ranks that have held up others for at least after, by
// rank; from stuck on, their operation is taken for stuck. A rank that waits is not
// slow itself: whom it waits for is, or whom that one waits for, and so on to the
// root of the chain. Cost: O(N^2) for the N ranks in the worst case, some
// microseconds for 64.
func FindSlow(ranks []Status, after, stuck time.Duration) []Slow {
	found := make([]*Slow, len(ranks))
	for r, s := range ranks {
		if s.Left || !s.Waits || s.For < after {
			continue
		}
		root, circle := root(ranks, r, after)
		if ranks[root].Left || root == r && !circle { // it said so before it fell silent
			continue
		}
		if found[root] == nil {
			found[root] = &Slow{Rank: root, Doing: ranks[root].Doing, Circle: circle}
			if ranks[root].Silent >= after {
				found[root].Silent = ranks[root].Silent
			}
			if circle { // with those of it that have not waited for so long
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

// root follows who waits for whom, from r to a rank that does not wait. Waits
// begin one after the other along a ring, so half of after is enough to count
// as waiting. In a circle the root is its lowest rank.
func root(ranks []Status, r int, after time.Duration) (rank int, circle bool) {
	for range ranks {
		s := ranks[r]
		if s.Left || !s.Waits || s.For < after/2 || s.Silent >= after || s.Peer < 0 || s.Peer >= len(ranks) {
			return r, false
		}
		r = s.Peer
	}
	return slices.Min(circleOf(ranks, r)), true // as many steps as ranks: it is on the circle
}

// circleOf returns the ranks of the circle that r is on.
func circleOf(ranks []Status, r int) []int {
	members := []int{r}
	for next := ranks[r].Peer; next != r; next = ranks[next].Peer {
		members = append(members, next)
	}
	return members
}

// reporter turns what FindSlow finds into lines, each rank's at once, then after
// twice the time, four times, and so on, so that a long wait does not flood; and
// when its operation is first taken for stuck.
type reporter struct {
	next map[int]due // by rank
}

// due is when a rank is to be reported again.
type due struct {
	at    time.Duration // the length of its wait
	stuck bool          // that its operation is stuck was said
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

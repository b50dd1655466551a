package collective

import (
	"fmt"
	"slices"
	"sort"
)

// Choice is a line of the table of algorithms in force: operations of From bytes
// on, and of less than To.
type Choice struct {
	Op        string // "allreduce"
	From, To  int    // of the operand that is longest on any rank; To 0: no end
	Algorithm string // empty: the operation has only one way
}

// String returns the line for a person.
func (c Choice) String() string {
	size := fmt.Sprintf("from %d bytes", c.From)
	switch {
	case c.From == 0 && c.To == 0:
		size = "all sizes"
	case c.To != 0:
		size = fmt.Sprintf("%d to %d bytes", c.From, c.To-1)
	}
	how := c.Algorithm
	if how == "" {
		how = "between two ranks"
	}
	return fmt.Sprintf("%-14s %-28s %s", c.Op, size, how)
}

// largest is the largest operand whose algorithm the table is asked for.
const largest = 1 << 40

// Table returns the algorithms of this group's operations by size, those of a
// named algorithm included. It is the same on every rank.
func (g *Group) Table() []Choice {
	var out []Choice
	for k := range kinds {
		for from := 0; from < largest; {
			how := g.method(k, from)
			to := g.until(k, from, how)
			line := Choice{Op: k.String(), From: from, To: to, Algorithm: how.String()}
			if to == largest {
				line.To = 0
			}
			out = append(out, line)
			from = to
		}
	}
	return out
}

// until returns the first size above from whose algorithm is not how, or largest:
// the table has no step between two powers of two that it undoes.
func (g *Group) until(k kind, from int, how method) int {
	low, high := from, from
	for high < largest && g.method(k, high) == how {
		low, high = high, min(largest, max(1, 2*high))
	}
	if high == largest && g.method(k, largest-1) == how {
		return largest
	}
	return low + 1 + sort.Search(high-low-1, func(i int) bool { return g.method(k, low+1+i) != how })
}

// Choice returns the algorithm of an operation of so many bytes; empty where there
// is no such operation, or no choice.
func (g *Group) Choice(op string, bytes int) string {
	k := slices.Index(kindNames[:], op)
	if k < 0 {
		return ""
	}
	return g.method(kind(k), bytes).String()
}

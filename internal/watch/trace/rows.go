package trace

import (
	"cmp"
	"slices"
)

// sortSpans brings spans in the order in which they are written: track by track, by
// their start, and what contains another before it.
func sortSpans(spans []span) {
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.track, b.track), cmp.Compare(a.start, b.start), cmp.Compare(b.length, a.length))
	})
}

// rowsOf gives each of some sorted spans of one track a row, from 0, the first one
// that has room: a viewer drops what overlaps in a row without nesting. Without
// nest, nothing may overlap at all: boxes below each other look as if one had
// called the other.
func rowsOf(spans []span, nest bool) (rows []int, n int) {
	rows = make([]int, len(spans))
	var open [][]int64 // by row: the ends of what contains the next, outermost first
	for i, s := range spans {
		row := 0
		for ; row < len(open); row++ {
			o := open[row]
			for len(o) > 0 && o[len(o)-1] <= s.start {
				o = o[:len(o)-1]
			}
			open[row] = o
			if len(o) == 0 || nest && s.start+s.length <= o[len(o)-1] {
				break
			}
		}
		if row == len(open) {
			open = append(open, nil)
		}
		open[row] = append(open[row], s.start+s.length)
		rows[i] = row
	}
	return rows, len(open)
}

package trace

import (
	"cmp"
	"slices"
)

// sortSpans sorts spans for writing: by track, by start, and enclosing spans first.
func sortSpans(spans []span) {
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.track, b.track), cmp.Compare(a.start, b.start), cmp.Compare(b.length, a.length))
	})
}

// rowsOf assigns each of a track's sorted spans to the first row with space: viewers drop spans
// that overlap in a row without nesting. Without nest, no spans of a row overlap, because nested
// spans look like function calls.
func rowsOf(spans []span, nest bool) (rows []int, n int) {
	rows = make([]int, len(spans))
	var open [][]int64 // ends of the enclosing spans, outermost first, by row
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

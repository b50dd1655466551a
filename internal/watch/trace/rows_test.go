package trace

import (
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/internal/watch/record"
)

func nests(outer, inner span) bool {
	return outer.start <= inner.start && inner.start+inner.length <= outer.start+outer.length
}

func overlap(a, b span) bool { return a.start < b.start+b.length && b.start < a.start+a.length }

// deepest is how many spans at most go on at once, counted the slow way.
func deepest(spans []span) int {
	most := 0
	for _, s := range spans {
		n := 0
		for _, o := range spans {
			if o.start <= s.start && (s.start < o.start+o.length) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestRowsHoldWhatAViewerCanShow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for trial := range 300 {
		spans := make([]span, 1+rnd.IntN(30))
		for i := range spans {
			spans[i] = span{track: record.Exchange, start: rnd.Int64N(40), length: 1 + rnd.Int64N(20)}
		}
		sortSpans(spans)
		for _, nest := range []bool{false, true} {
			rows, n := rowsOf(spans, nest)
			used := map[int]bool{}
			for i, a := range spans {
				used[rows[i]] = true
				for j := range i {
					if b := spans[j]; rows[i] == rows[j] && overlap(a, b) && !(nest && nests(b, a)) {
						t.Fatalf("trial %d, nest %v: %+v and %+v are both in row %d", trial, nest, a, b, rows[i])
					}
				}
			}
			if len(used) != n || !nest && n != deepest(spans) || n > deepest(spans) {
				t.Fatalf("trial %d, nest %v: %d rows, %d used, for at most %d spans at once", trial, nest, n, len(used), deepest(spans))
			}
		}
	}
}

func TestASpanStandsInWhatContainsIt(t *testing.T) {
	spans := []span{{start: 0, length: 10}, {start: 0, length: 4}, {start: 4, length: 6}, {start: 4, length: 0}, {start: 8, length: 4}}
	sortSpans(spans)
	rows, n := rowsOf(spans, true)
	for i, want := range []int{0, 0, 0, 0, 1} { // only the last sticks out
		if rows[i] != want {
			t.Errorf("span %+v is in row %d, want %d", spans[i], rows[i], want)
		}
	}
	if n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

package collective

import (
	"math"
	"testing"
	"time"
)

// The worked figures: 300 million parameters of 4 bytes.
func TestCostFigures(t *testing.T) {
	const k = 300e6 * 4
	at := func(ranks int, gb float64) Cost { return Cost{Bytes: k, Ranks: ranks, Bandwidth: gb * 1e9} }
	for _, c := range []struct {
		name      string
		got, want time.Duration
	}{
		{"straw man of 2, one way", at(2, 1).NaiveOneWay(), 1200 * time.Millisecond},
		{"straw man of 10, one way", at(10, 1).NaiveOneWay(), 10800 * time.Millisecond},
		{"straw man of 2", at(2, 1).Naive(), 2400 * time.Millisecond},
		{"straw man of 10", at(10, 1).Naive(), 21600 * time.Millisecond},
		{"ring of 40", at(40, 6).seconds(at(40, 6).RingBytes()), 390 * time.Millisecond},
		{"ring of 2", at(2, 1).seconds(at(2, 1).RingBytes()), 1200 * time.Millisecond},
		{"ring of 1", at(1, 1).seconds(at(1, 1).RingBytes()), 0},
	} {
		if d := c.got - c.want; d.Abs() > time.Microsecond {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if moved := at(40, 6).RingBytes(); math.Abs(moved-2.34e9) > 1 {
		t.Errorf("a rank of 40 moves %v bytes, want 2.34e9", moved)
	}
}

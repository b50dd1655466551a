package median

import "testing"

// TestOf: the middle value, and the mean of the two middle values.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 5}, 5}, {[]float64{8, 2, 4, 6}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Of(c.x); got != c.want {
			t.Errorf("%v: %v, want %v", c.x, got, c.want)
		}
	}
}

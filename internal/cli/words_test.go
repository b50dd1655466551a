package cli

import (
	"strings"
	"testing"
)

func TestListsInLines(t *testing.T) {
	long := strings.Repeat("x", 40)
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"a"}, "  a"},
		{[]string{"a", "b", "c"}, "  a, b, c"},
		{[]string{long, long}, "  " + long + ",\n  " + long},
	} {
		if got := InLines(c.names); got != c.want {
			t.Errorf("%v: %q, want %q", c.names, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0 steps", 1: "1 step", 999: "999 steps", 1000: "1,000 steps", 1234567: "1,234,567 steps"} {
		if got := Counted(n, "step"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestRated(t *testing.T) {
	for rate, want := range map[float64]string{0: "0.0", 1.26: "1.3", 10: "10", 12345.6: "12,345"} {
		if got := Rated(rate); got != want {
			t.Errorf("%v: %s, want %s", rate, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for text, want := range map[string]Count{"7": 7, "500k": 500_000, "10M": 10_000_000, "1.5m": 1_500_000, "2G": 2_000_000_000} {
		var n Count
		if err := n.Set(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "NaN", "1e30", "0.1", "M"} {
		var n Count
		if err := n.Set(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

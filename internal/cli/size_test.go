package cli

import "testing"

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "4GiB": 4 << 30, "1.5MiB": 3 << 19, "500MB": 5e8, "17": 17, "17B": 17, "2 TiB": 2 << 40, "1kB": 1000} {
		var b, again Size
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%q is %d, %v; want %d", text, b, err, want)
		}
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%q is written as %q, which is %d", text, b.String(), again)
		}
	}
	for _, bad := range []string{"", "GiB", "-1", "x", "1PB", "NaN", "1e30", "Inf"} {
		var b Size
		if err := b.Set(bad); err == nil {
			t.Errorf("%q is %d", bad, b)
		}
	}
}

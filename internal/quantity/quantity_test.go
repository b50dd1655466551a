package quantity

import (
	"math"
	"testing"
	"time"
)

// TestCount checks singular and plural.
func TestCount(t *testing.T) {
	for _, c := range []struct {
		n    int
		noun string
		want string
	}{
		{0, "row", "0 rows"}, {1, "row", "1 row"}, {2, "row", "2 rows"}, {1000, "epoch", "1,000 epochs"}, {-1234, "step", "-1,234 steps"},
		{3, "batch", "3 batches"}, {2, "class", "2 classes"}, {2, "key", "2 keys"}, {2, "category", "2 categories"}, {2, "day", "2 days"},
		{1, "class of train without an image in val", "1 class of train without an image in val"},
		{2, "class of train without an image in val", "2 classes of train without an image in val"},
		{4, "file without an ending", "4 files without an ending"}, {1234567, "sample", "1,234,567 samples"}, {-999, "step", "-999 steps"},
	} {
		if got := Count(c.n, c.noun); got != c.want {
			t.Errorf("Count(%d, %q) is %q, want %q", c.n, c.noun, got, c.want)
		}
	}
}

// TestBytes writes three digits in the largest filled unit.
func TestBytes(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 4097: "4 KiB", 1 << 20: "1 MiB", 1<<20 - 1: "1 MiB", 22797 << 20: "22.3 GiB",
		100 << 20: "100 MiB", 1023 << 20: "1023 MiB", 5 << 40: "5 TiB", 3 << 60: "3072 PiB", 99.96 * (1 << 20): "100 MiB", 1.2 * (1 << 30): "1.2 GiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%v) is %q, want %q", n, got, want)
		}
	}
}

// TestFloat checks the forms of Float and Exact.
func TestFloat(t *testing.T) {
	for v, want := range map[float64]string{6.767e-05: "6.77e-5", 0.0003125: "0.000313", 5.5e8: "5.5e8", 1: "1", 0: "0", 0.05: "0.05", 1234: "1.23e3", math.Inf(1): "+Inf"} {
		if got := Float(v); got != want {
			t.Errorf("Float(%v) is %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{6.767e-05: "6.767e-5", 0.1: "0.1", 1e6: "1000000", -1234567: "-1234567", 1e20: "1e20", 0: "0"} {
		if got := Exact(v); got != want {
			t.Errorf("Exact(%v) is %q, want %q", v, got, want)
		}
	}
	if got := Exact(float32(0.1)); got != "0.1" {
		t.Errorf("Exact of a float32: %q", got)
	}
	if got := FloatDigits(6.7671e-05, 4); got != "6.767e-5" {
		t.Errorf("FloatDigits: %q", got)
	}
}

// TestTraffic writes three digits in the largest filled unit of 1000.
func TestTraffic(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 1: "1 B", 999: "999 B", 999.6: "1 kB", 1500: "1.5 kB", 2.5e6: "2.5 MB", 12e9: "12 GB", 235.4e3: "235 kB", 4e12: "4 TB", 7e18: "7000 PB",
	} {
		if got := Traffic(n); got != want {
			t.Errorf("Traffic(%v) is %q, want %q", n, got, want)
		}
	}
}

// TestDuration writes three digits below a minute and whole seconds above, in the notation of
// settings.
func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234: "1.23µs", 12345678: "12.3ms", 1234567890: "1.23s", 59*time.Second + 949*time.Millisecond: "59.9s",
		59*time.Second + 960*time.Millisecond: "1m0s", 72*time.Second + 400*time.Millisecond: "1m12s", 10 * time.Minute: "10m0s", 30 * time.Second: "30s",
		-1234567890: "-1.23s", 26*time.Hour + 1: "26h0m0s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) is %q, want %q", d, got, want)
		}
	}
	if got := Seconds(90.24); got != "1m30s" {
		t.Errorf("Seconds(90.24) is %q", got)
	}
}

// TestPercent writes three digits, and 0% for tiny shares.
func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{0: "0%", 0.00001: "0%", 0.0004: "0.04%", 0.1234: "12.3%", 0.9996: "100%", 1: "100%", -0.25: "-25%"} {
		if got := Percent(share); got != want {
			t.Errorf("Percent(%v) is %q, want %q", share, got, want)
		}
	}
}

// TestRate writes whole numbers, and small rates with a decimal place.
func TestRate(t *testing.T) {
	for rate, want := range map[float64]string{0: "0.0", 1.26: "1.3", 10: "10", 12345.6: "12,345"} {
		if got := Rate(rate); got != want {
			t.Errorf("%v: %s, want %s", rate, got, want)
		}
	}
}

// TestMilliseconds keeps more digits of a short time.
func TestMilliseconds(t *testing.T) {
	for ms, want := range map[float64]string{0: "0", 0.5: "0.500", 0.9996: "1.00", 12.345: "12.35", 99.96: "100.0", 1234.5: "1234.5"} {
		if got := Milliseconds(ms); got != want {
			t.Errorf("%v: %s, want %s", ms, got, want)
		}
	}
}

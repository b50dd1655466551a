package setting_test

import (
	"math"
	"math/big"
	"strconv"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
)

// What a value writes it reads; what it refuses leaves the field as it was.
func TestValues(t *testing.T) {
	var (
		n    int
		u    uint64
		u32  uint32
		x    float64
		on   bool
		text string
		word string
		d    time.Duration
		size int64
		list []string
		big  big.Int
	)
	for name, c := range map[string]struct {
		value       setting.Value
		right, want []string
		wrong       []string
	}{
		"int":      {setting.Int(&n), []string{"0", "-7", "+5", "9223372036854775807"}, []string{"0", "-7", "5", "9223372036854775807"}, []string{"", "1.5", "9223372036854775808", "0x10", "1e3", "many"}},
		"uint64":   {setting.Int(&u), []string{"18446744073709551615"}, []string{"18446744073709551615"}, []string{"-1", "18446744073709551616", ""}},
		"uint32":   {setting.Int(&u32), []string{"4294967295"}, []string{"4294967295"}, []string{"4294967296", "-1"}},
		"float":    {setting.Float(&x), []string{"0.1", "1e-3", "inf"}, []string{"0.1", "0.001", "+Inf"}, []string{"nan", "", "a"}},
		"bool":     {setting.Bool(&on), []string{"true", "false"}, []string{"true", "false"}, []string{"yes", "1", "", "True"}},
		"text":     {setting.Text(&text), []string{"", "a b"}, []string{"", "a b"}, nil},
		"choice":   {setting.Choice(&word, "wal", "none"), []string{"wal"}, []string{"wal"}, []string{"", "WAL"}},
		"or empty": {setting.Choice(&word, "wal", ""), []string{"wal", ""}, []string{"wal", ""}, []string{"none"}},
		"parsed":   {setting.Parsed(&n, strconv.Atoi, strconv.Itoa), []string{"7", "-1"}, []string{"7", "-1"}, []string{"", "x"}},
		"duration": {setting.Duration(&d), []string{"90s"}, []string{"1m30s"}, []string{"90", "soon"}},
		"bytes":    {setting.Bytes(&size), []string{"4GiB", "1.5GB", "1536", "0", "2 MiB", "1e3"}, []string{"4GiB", "1500000000", "1536", "0", "2MiB", "1000"}, []string{"-1", "4giga", "", "1e30"}},
		"list":     {setting.List(&list), []string{"", "a", "a, b"}, []string{"", "a", "a,b"}, []string{"a,,b", ","}},
		"textual":  {setting.Textual(&big), []string{"12345678901234567890123"}, []string{"12345678901234567890123"}, []string{"x"}},
	} {
		for i, text := range c.right {
			if err := c.value.Set(text); err != nil {
				t.Errorf("%s %q: %v", name, text, err)
			} else if got := c.value.String(); got != c.want[i] {
				t.Errorf("%s %q is written as %q, want %q", name, text, got, c.want[i])
			} else if err := c.value.Set(got); err != nil || c.value.String() != got {
				t.Errorf("%s does not read what it wrote, %q: %v", name, got, err)
			}
		}
		for _, text := range c.wrong {
			before := c.value.String()
			if err := c.value.Set(text); err == nil {
				t.Errorf("%s takes %q", name, text)
			} else if c.value.String() != before {
				t.Errorf("%s refuses %q and becomes %s", name, text, c.value)
			}
		}
	}
}

func FuzzBytes(f *testing.F) {
	for _, s := range []string{"4GiB", "1.5GB", "0", "-1", "NaN", "1e18", "B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var n, again int64
		if setting.Bytes(&n).Set(text) != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", text, n)
		}
		if err := setting.Bytes(&again).Set(setting.Bytes(&n).String()); err != nil || again != n && n < 1<<53 {
			t.Fatalf("%q is %d, then %d (%v)", text, n, again, err)
		}
	})
}

func TestFloatsKeepTheirBits(t *testing.T) {
	for _, want := range []float64{0.1, math.Pi, 1e-300, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		x, y := want, 0.0
		if err := setting.Float(&y).Set(setting.Float(&x).String()); err != nil || y != want {
			t.Errorf("%v is read as %v (%v)", want, y, err)
		}
	}
}

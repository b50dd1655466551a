package spelling

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestNear(t *testing.T) {
	flags := []string{"np", "batch", "bucket-bytes", "lr", "lr-schedule", "data", "train-file", "eval-file", "epochs", "seed", "seeds", "servers"}
	for given, want := range map[string][]string{
		"bacth": {"batch"}, "Batch": {"batch"}, "batchsize": {"batch"}, "bucketbytes": {"bucket-bytes"}, "bucket_bytes": {"bucket-bytes"},
		"train_file": {"train-file"}, "trian-file": {"train-file"}, "file": {"train-file", "eval-file"}, "epoch": {"epochs"}, "sed": {"seed"}, "serves": {"servers"},
		"zzz": nil, "": nil, "x": nil,
	} {
		if got := Near(given, flags...); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
	if got := Near("aa", "aab", "aac", "aad", "aae"); len(got) != most {
		t.Errorf("%q", got)
	}
	if got := Hint("bacth", flags...); got != ` (did you mean "batch"?)` {
		t.Error(got)
	}
	if got := Hint("zzz", flags...); got != "" {
		t.Error(got)
	}
}

// naive is edits by definition.
func naive(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	m, n := len(a)-1, len(b)-1
	d := naive(a[:m], b[:n])
	if a[m] != b[n] {
		d++
	}
	d = min(d, naive(a[:m], b)+1, naive(a, b[:n])+1)
	if m > 0 && n > 0 && a[m] == b[n-1] && a[m-1] == b[n] {
		d = min(d, naive(a[:m-1], b[:n-1])+1)
	}
	return d
}

func TestEdits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		w := make([]byte, r.IntN(6))
		for i := range w {
			w[i] = "abc"[r.IntN(3)]
		}
		return string(w)
	}
	for range 300 {
		if a, b := word(), word(); edits(a, b) != naive(a, b) {
			t.Fatalf("%q and %q: %d, want %d", a, b, edits(a, b), naive(a, b))
		}
	}
}

package launch

import (
	"errors"
	"strings"
	"testing"
)

// What is said of checkpoints is read as it was written, and what cannot be is refused.
func TestSaving(t *testing.T) {
	read := func(kv string) (CheckpointEnv, error) {
		name, value, _ := strings.Cut(kv, "=")
		r := envReader{lookup: func(asked string) (string, bool) { return value, asked == name }}
		return r.saving(), errors.Join(r.errs...)
	}
	for _, want := range []CheckpointEnv{{}, {Dir: "/a b/\"c\"=d", Attempt: 3, Resume: true}} {
		if got, err := read(want.String()); got != want || err != nil {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	for _, text := range []string{"x", `{"Dir":"a","Start":1}`, `{"Dir":"/a","Start":0}`} {
		if _, err := read(checkpointVar + "=" + text); err == nil || !strings.Contains(err.Error(), "want what `ringo run --checkpoint` makes of it") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Package settingtest generates other values of settings, for tests of whole tables.
package settingtest

import (
	"strconv"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Another returns a valid value other than the row's current value, and leaves the row unchanged.
// Candidates are the known words, a larger number, a longer time, fixed texts and more. If the row
// rejects all, the test fails: add a valid text to more.
func Another(t testing.TB, row setting.Row, more ...string) string {
	t.Helper()
	now := row.Value.String()
	for _, text := range append(candidates(row, now), more...) {
		if row.Value.Set(text) != nil {
			continue
		}
		got := row.Value.String()
		if err := row.Value.Set(now); err != nil {
			t.Fatalf("%s does not take back its own %q: %v", row.Path, now, err)
		}
		if got != now {
			return got
		}
	}
	t.Fatalf("%s, which is %q, takes none of the other values that are tried", row.Path, now)
	return ""
}

// candidates returns texts that a row may accept.
func candidates(row setting.Row, now string) []string {
	out := setting.Known(row.Value)
	if n, err := strconv.ParseInt(now, 10, 64); err == nil {
		out = append(out, strconv.FormatInt(n+1, 10))
	}
	if x, err := strconv.ParseFloat(now, 64); err == nil {
		out = append(out, strconv.FormatFloat(x/2+0.125, 'g', -1, 64))
	}
	if d, err := time.ParseDuration(now); err == nil {
		out = append(out, (2*d + time.Second).String())
	}
	return append(out, "1", "0.5", "90s", "64MiB", "count:3", "1:0.5", "bound=7", "127.0.0.1:5", "other", "on")
}

// Package settingtest makes other values of settings, for tests over whole tables.
package settingtest

import (
	"strconv"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Another is the text of a value that a row accepts and that it has not now; the row keeps its own. It is another of the known
// words, one more of a number, twice a time, or the first of some texts that the row takes. A row that takes none of these
// fails the test: give a text of its own among more.
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

// candidates are texts that a row may take.
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
	return append(out, "1", "0.5", "90s", "64MiB", "count:3", "1:0.5", "bound=7", "127.0.0.1:5", "other", "a,b,c")
}

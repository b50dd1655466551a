package cli_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

// A long transfer is told about now and then, a file's end always.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &cli.Progress{Style: "plain", To: &out, Unit: "bytes"}
		for _, file := range []string{"a.gz", "b.gz"} {
			for done := range 26 {
				p.Update(file, int64(done)*1000, 25000)
				time.Sleep(time.Second)
			}
		}
		p.Finish()
		const one = "X.gz: 10,000 of 25,000 bytes\nX.gz: 20,000 of 25,000 bytes\nX.gz: 25,000 bytes\n"
		if want := strings.ReplaceAll(one, "X", "a") + strings.ReplaceAll(one, "X", "b"); out.String() != want {
			t.Errorf("got\n%swant\n%s", &out, want)
		}
		for _, columns := range []int{30, 80} {
			term := &commandtest.Terminal{}
			p := &cli.Progress{Style: "bar", To: term, Unit: "bytes", Columns: columns}
			for done := range 26 {
				p.Update("train-images-idx3-ubyte.gz", int64(done)*1e6, 25e6)
				time.Sleep(time.Second)
			}
			p.Finish()
			if left := term.Text(); left != "train-images-idx3-ubyte.gz: 25,000,000 bytes\n" || len(term.Drawn) < 20 {
				t.Errorf("%d columns: %q stays of %d drawings", columns, left, len(term.Drawn))
			}
			for _, drawn := range term.Drawn {
				if len([]rune(drawn)) >= columns {
					t.Errorf("%d columns: a bar of %d: %q", columns, len([]rune(drawn)), drawn)
				}
			}
			if columns == 80 && !slices.ContainsFunc(term.Drawn, func(s string) bool {
				return strings.Contains(s, "train-images-idx3-ubyte.gz  40% |") && strings.HasSuffix(s, "(10/25 MB, 1.0 MB/s) [10s:15s]")
			}) {
				t.Errorf("the bar at 40 %% is not among %q", term.Drawn)
			}
		}
	})
}

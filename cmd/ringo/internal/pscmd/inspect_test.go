package pscmd

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/ps/schema"
)

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	for line, want := range map[string]string{
		"show":                          "takes one folder, the --ps-dir of a job",
		"show a b":                      "takes one folder",
		"export x":                      "needs --out FILE, or - for stdout",
		"export x --format csv --out y": `--format "csv" is not known: use text or binary`,
		"export x --out y --progress z": `--progress "z" is not known: use auto, bar, plain or none`,
		"recover x --ps-disk 1GiB":      "--ps-disk 1GiB has no effect without --ps-memory",
		"recover x --ps-memory 1GiB --ps-disk 1MiB": "--ps-disk 1MiB: want at least 16MiB, or 0 for no limit",
		"recover": "takes one folder",
		"shwo":    "did you mean show?",
	} {
		commandtest.Refused(t, Command(), cli.UsageError, line, want)
	}
	for _, line := range []string{"show ", "recover ", "export --out - "} {
		commandtest.Refused(t, Command(), cli.Failed, line+filepath.Join(dir, "none"), "no such file or directory")
		commandtest.Refused(t, Command(), cli.Failed, line+dir, "has no folder server-0")
	}
}

// What a person reads of a job whose server was killed and has a delta.
func TestLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	has := contents{
		Dir: "DIR", Job: "ctr", Mode: "async", Durability: "wal", Trainers: 1,
		Tables:  []table{{"embedding", 10, 1200, schema.Rule{Name: "click", LR: 0.5, Settings: map[string]float64{"rate": 5, "decay": 0.98}}}},
		Arrays:  []array{{"dense", 77, schema.Rule{Name: "sgd", LR: 0.1}}},
		Servers: []server{{Step: 9, Rows: 1200, UncheckpointedRecords: 3, Checkpoints: []checkpoint{{1, 0, 1 << 20, at}, {2, 1, 1 << 19, at}}}, {Lost: "its log is cut"}},
	}
	const want = `DIR: 2 servers of job ctr for 1 trainer, async, durability wal
table embedding: 1,200 rows of 10 weights, click, learning rate 0.5 at first; decay 0.98, rate 5
array dense: 77 values, sgd, learning rate 0.1 at first
server 0: 1,200 rows, after step 9; its log is 3 records ahead
  checkpoint 1, 2026-01-02 03:04:05: whole, 1 MiB
  checkpoint 2, 2026-01-02 03:04:05: changes since 1, 512 KiB
server 1: 0 rows, after step 0; its log is cut
`
	var got strings.Builder
	has.print(&cli.Output{Lines: &got})
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

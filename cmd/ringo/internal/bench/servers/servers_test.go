package servers

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

const (
	psCostFields = " server_resident_bytes server_peak_bytes server_bytes_per_row server_rows server_stored_rows server_stored_bytes server_gc_share server_gc_longest_pause_us"
	psFillFields = "bench op keys dim optimizer clients rows_s server_max_bytes_per_row growth" + psCostFields
	resultFields = "bench op dist batch keys dim optimizer clients ahead insert rows_s min_rows_s max_rows_s p50_us p99_us p999_us single_batches " +
		"bytes_s sent_bytes_per_row read_bytes_per_row memory_hit_rate server_allocs_per_batch limit_rows_s latency_rows_s share_of_limit share_of_latency checked_rows turns" + psCostFields
)

// actVar makes the test binary act as the program whose hidden command is the server.
const actVar = "RINGO_TEST_BENCH_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(actVar) != "" && len(os.Args) > 1 && os.Args[1] == ServerName {
		cmd := Server()
		cmd.SetArgs(os.Args[2:])
		if cmd.Execute() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv(actVar, "1")
	os.Exit(m.Run())
}

// benchPS runs a command line and returns its lines of JSON, the filling's first.
func benchPS(t *testing.T, line string, results int) []map[string]any {
	t.Helper()
	status, out, errs := commandtest.Run(Command(), "--time 3ms --repeat 2 --progress none --json - "+line)
	if status != 0 {
		t.Fatalf("%s: status %d, stderr %s", line, status, errs)
	}
	return commandtest.JSON(t, out, append([]string{psFillFields}, slices.Repeat([]string{resultFields}, results)...)...)
}

func TestBenchPS(t *testing.T) {
	got := benchPS(t, "--keys 20k --dim 8 --batch 100,700 --dist uniform,zipf:1.2 --op pull,both --clients 2 --insert 0.1 --ahead 2", 8)
	fill := got[0]
	if fill["op"] != "fill" || fill["keys"] != 20000. || fill["server_rows"] != 20000. || fill["rows_s"].(float64) <= 0 {
		t.Errorf("%v", fill)
	}
	points := fill["growth"].([]any)
	if last := points[len(points)-1].(map[string]any); len(points) < 3 || last["rows"] != 20000. {
		t.Errorf("%v", points)
	} else if _, err := os.Stat("/proc/self/status"); err == nil && last["bytes_per_row"].(float64) <= 0 {
		t.Errorf("%v", last)
	}
	keys := 20000.
	for i, r := range got[1:] {
		dist, batch, op := []string{"uniform", "zipf:1.2"}[i/4], []float64{100, 700}[i/2%2], []string{"pull", "both"}[i%2]
		if r["dist"] != dist || r["batch"] != batch || r["op"] != op || r["turns"] != 2. || r["clients"] != 2. {
			t.Errorf("result %d is %v", i, r)
		}
		if i%2 == 0 && i > 0 && r["keys"].(float64) <= keys {
			t.Errorf("%v keys after %v, though a tenth is new", r["keys"], keys)
		}
		keys = r["keys"].(float64)
		if r["memory_hit_rate"] != 1. || r["checked_rows"].(float64) < 1024 || r["server_stored_rows"] != 0. {
			t.Errorf("%v", r)
		}
		for _, share := range []string{"share_of_limit", "share_of_latency", "p50_us", "bytes_s"} {
			if r[share].(float64) <= 0 {
				t.Errorf("%s is %v", share, r[share])
			}
		}
		if n := r["server_allocs_per_batch"].(float64); n < 0 { // none is well
			t.Errorf("%v allocations", n)
		}
		if want := r["rows_s"].(float64) / r["limit_rows_s"].(float64); math.Abs(want-r["share_of_limit"].(float64)) > 1e-9 {
			t.Errorf("%v, want %v", r["share_of_limit"], want)
		}
		if sent := map[string]float64{"pull": 8, "both": 48}[op]; math.Abs(r["sent_bytes_per_row"].(float64)-sent) > 0.1*sent+1 {
			t.Errorf("%s sends %v bytes a row, want about %v", op, r["sent_bytes_per_row"], sent)
		}
	}
}

// Rows beyond memory are asked for, too, and nothing stays of them.
func TestBenchPSBelowMemory(t *testing.T) {
	dir := t.TempDir()
	got := benchPS(t, "--keys 30k --batch 500 --dist uniform --op push --optimizer adagrad-rowwise --ps-memory 1200KiB --ps-disk 64MiB --ps-dir "+dir, 1)
	r := got[1]
	rows := r["server_rows"].(float64) + r["server_stored_rows"].(float64)
	if rows < 30000 || rows > 30300 || r["server_stored_bytes"].(float64) <= 0 { // a row in transit may be counted twice
		t.Error(r)
	}
	if hit := r["memory_hit_rate"].(float64); hit <= 0.05 || hit >= 0.95 {
		t.Errorf("%v of the keys are in memory", hit)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v are left: %v", left, err)
	}
}

// What a person reads has a line for each operation under its header.
func TestBenchPSLines(t *testing.T) {
	status, out, errs := commandtest.Run(Command(), "--keys 8k --batch 100 --time 2ms --repeat 1 --progress plain")
	if status != 0 || errs != "filling: 8,000 rows\n" {
		t.Fatalf("status %d, stderr %q", status, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d lines:\n%s", len(lines), out)
	}
	commandtest.Holds(t, "stdout", lines[0], "# filled 8,000 rows of 16, adagrad: ", "; the server takes ", " bytes per row (", " of its CPU")
	for i, op := range []string{" pull uniform ", " push uniform "} {
		if line := lines[4+i]; !strings.HasPrefix(line, op) || len(strings.Fields(line)) != len(header[0]) {
			t.Errorf("%q under\n%q", line, lines[3])
		}
	}
}

// Figures stand under their words, those of fast and of slow servers.
func TestBenchPSColumns(t *testing.T) {
	for _, r := range []result{
		{Op: "pull", Dist: "uniform", Batch: 1},
		{Op: "both", Dist: "zipf:0.99", Batch: 262144, RowsPerS: 123456789, P50US: 99999999, P99US: 99999999, P999US: 99999999, BytesPerS: 99999e6,
			SentBytesPerRow: 520, ReadBytesPerRow: 264, MemoryHitRate: 1, ShareOfLimit: 12.5, ShareOfLatency: 125, AllocsPerBatch: 12345, serverCost: serverCost{GCShare: 1}},
	} {
		line := fmt.Sprintf(format, r.columns()...)
		for _, words := range header {
			if header := fmt.Sprintf(headerFormat, words...); len(header) != len(line) {
				t.Errorf("%d characters under %d:\n%s\n%s", len(line), len(header), header, line)
			}
		}
	}
}

// What takes no CPU time collects nothing, and a collection takes at most all of it.
func TestBenchPSGCShare(t *testing.T) {
	m := new(measurement)
	figures := serverFigures{}
	for _, c := range [][3]float64{{0, 0, 0}, {2, 0.5, 0.25}, {1, 1.5, 1}} {
		if got := m.cost(figures, c[0], c[1]).GCShare; got != c[2] {
			t.Errorf("%v s of %v s are %v, want %v", c[1], c[0], got, c[2])
		}
	}
}

func TestBenchPSRefuses(t *testing.T) {
	commandtest.Refused(t, Command(), cli.UsageError, "--dist zipf --batch 0 --op get --insert 1 --ahead 0 --clients 0 --repeat 0 --time 0s --dim 0 --optimizer none",
		`--dist "zipf"`, "batches of 0", `operation "get"`, "a share of 1", "--ahead 0", "--clients 0", "--repeat 0", "--time 0s", `"none" is not known`, "rows of 0 weights")
	commandtest.Refused(t, Command(), cli.UsageError, "--ps-memory 1MiB --op ''", `--ps-memory 1MiB and --ps-disk 0 with --ps-dir ""`)
	commandtest.Refused(t, Command(), cli.UsageError, "--ps-dir x --ps-disk 1MiB", `--ps-memory 0 and --ps-disk 1MiB`)
	commandtest.Refused(t, Command(), cli.UsageError, "--keys 1000 --batch 126", "an eighth of the keys")
	commandtest.Refused(t, Command(), cli.UsageError, "--keys none", "want a number of rows")
	commandtest.Refused(t, Command(), cli.Failed, "--keys 8k --batch 100 --ps-memory 1MiB --ps-dir /nowhere", "--ps-dir", "/nowhere")
	commandtest.Refused(t, Command(), cli.Failed, "--keys 8k --batch 100 --ps-memory 1KiB --ps-dir "+t.TempDir(), "want room for 4096")
	commandtest.Refused(t, Server(), cli.Failed, "", "RINGO_TICKET")
	if _, _, errs := commandtest.Run(Command(), "--batch 0"); strings.Count(errs, "batches of 0") != 1 { // of both operations
		t.Errorf("a fault is told more than once: %s", errs)
	}
}

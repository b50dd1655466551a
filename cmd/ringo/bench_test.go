package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/servers"
	"github.com/ringo-ml/ringo/internal/cli"
)

const (
	allReduceFields = "bench np transport algorithm floats median_us min_us bytes_sent_per_rank busbw_gb_s iterations"
	stepFields      = "bench model batch np threads step_ms step_mean_ms samples_per_s compute_ms compress_ms exposed_comm_ms update_ms density bytes_sent params steps optimizer strategy plan buckets kernels allocs_per_step rss_growth_bytes plan_sha256"
)

// ringBytes is the payload that the busiest rank of a ring of n sends in one
// allreduce of so many floats: all chunks but one, twice.
func ringBytes(floats, n int) (most int) {
	for without := range n {
		sent := 0
		for _, skip := range []int{without, (without + 1) % n} {
			chunk := floats*(skip+1)/n - floats*skip/n
			sent += 4 * (floats - chunk)
		}
		most = max(most, sent)
	}
	return most
}

// processes is what the processes of one host talk over.
var processes = map[bool]string{true: ringo.TransportSHM, false: ringo.TransportTCP}[runtime.GOOS == "linux"]

// withoutPlace is what a benchmark tells, but for where its ranks run: that depends on the machine.
func withoutPlace(text string) string {
	return regexp.MustCompile(`(?m)^# ranks are .*\n`).ReplaceAllString(text, "")
}

func TestBenchAllReduce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags     string
		np        int
		transport string
		algorithm string
	}{
		{"", 1, "mem", "doubling"}, // what the table has for few bytes
		{"--np 2 --transport mem --collective-algorithm ring", 2, "mem", "ring"},
		{"--np 3 --transport mem --collective-algorithm ring", 3, "mem", "ring"},
		{"--np 2 --transport mem --collective-algorithm naive", 2, "mem", "naive"},
		{"--np 2 --transport tcp --collective-algorithm ring", 2, "tcp", "ring"},
		{"--np 2", 2, processes, map[string]string{"shm": "direct", "tcp": "exchange"}[processes]},
	} {
		status, out, errs := command(t, "bench allreduce --floats 0,1,2,1000 --time 1ms --json - "+c.flags)
		errs = withoutPlace(errs)
		if status != 0 || strings.Count(errs, "\n") != 4 || strings.Count(errs, "bytes sent per rank") != 4 {
			t.Fatalf("%s: status %d, stderr %s", c.flags, status, errs)
		}
		for i, got := range checkJSON(t, out, allReduceFields, allReduceFields, allReduceFields, allReduceFields) {
			floats := []int{0, 1, 2, 1000}[i]
			for name, want := range map[string]any{
				"bench": "allreduce", "np": float64(c.np), "transport": c.transport, "algorithm": c.algorithm, "floats": float64(floats),
			} {
				if got[name] != want {
					t.Errorf("%s: %s is %v, want %v", c.flags, name, got[name], want)
				}
			}
			median, least, n := got["median_us"].(float64), got["min_us"].(float64), float64(c.np)
			if least <= 0 || median < least || got["iterations"].(float64) < 5 {
				t.Errorf("%s: times %v", c.flags, got)
			}
			// nccl-tests: algbw is bytes over time, busbw is that times 2(n-1)/n.
			algbw := 4 * float64(floats) / (median / 1e6) / 1e9
			if want := algbw * 2 * (n - 1) / n; math.Abs(got["busbw_gb_s"].(float64)-want) > 1e-9*want {
				t.Errorf("%s: busbw %v, want %v", c.flags, got["busbw_gb_s"], want)
			}
			if want := float64(ringBytes(floats, c.np)); c.algorithm == "ring" && got["bytes_sent_per_rank"] != want {
				t.Errorf("%s: %d floats: %v bytes sent, want %v", c.flags, floats, got["bytes_sent_per_rank"], want)
			}
		}
	}
}

// The table in force is that of the ranks there are, and of what was named.
func TestExplain(t *testing.T) {
	for line, want := range map[string][]string{
		"--np 3 --transport mem":                             {"3 ranks on 1 host, by the default rules\nallreduce     doubling to 128 KiB, then pairwise\n", "\nbarrier       doubling\n"},
		"--np 3 --transport mem --collective-algorithm ring": {"; ring wherever an operation has it\nallreduce     ring\n", "\nbarrier       doubling\n"},
	} {
		status, out, errs := command(t, "bench allreduce --explain "+line)
		if status != 0 || errs != "" {
			t.Errorf("%s: status %d, stderr %q", line, status, errs)
		}
		checkHolds(t, line, out, want...)
	}
}

func TestBenchStep(t *testing.T) {
	for _, c := range []struct {
		flags string
		np    int
		want  map[string]any
	}{
		{"", 1, nil},
		{"--np 2 --transport mem --strategy partialUpdate --plan one", 2, map[string]any{"strategy": "partialUpdate", "plan": "one"}},
		{"--np 2 --transport tcp", 2, map[string]any{"strategy": "fp32", "plan": "fixed"}},
	} {
		file := filepath.Join(t.TempDir(), "step.json")
		status, out, errs := command(t, "bench step mlp --batch 4 --threads 1 --steps 3 --json "+file+" "+c.flags)
		out = withoutPlace(out)
		if status != 0 || errs != "" || !strings.HasPrefix(out, "step mlp  batch 4 x "+cli.Counted(c.np, "rank")) {
			t.Fatalf("%s: status %d, stdout %q, stderr %q", c.flags, status, out, errs)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := checkJSON(t, string(text), stepFields)[0]
		want := map[string]any{"bench": "step", "model": "mlp", "batch": 4., "np": float64(c.np), "threads": 1., "params": 79510., "steps": 3.}
		for _, m := range []map[string]any{want, c.want} {
			for name, v := range m {
				if got[name] != v {
					t.Errorf("%s: %s is %v, want %v", c.flags, name, got[name], v)
				}
			}
		}
		ms, perS := got["step_ms"].(float64), got["samples_per_s"].(float64)
		if ms <= 0 || math.Abs(perS*ms/1e3-4*float64(c.np)) > 1e-6 || got["exposed_comm_ms"].(float64) > ms {
			t.Errorf("%s: times do not fit together: %v", c.flags, got)
		}
	}
}

// What cannot be written is told before ranks are started, once.
func TestOutputsAreLookedAtFirst(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "none", "x.json")
	for _, line := range []string{"bench collective", "bench allreduce", "bench step mlp", "train mlp --data synthetic"} {
		checkRefused(t, exitFailed, line+" --np 3 --json "+nowhere, "--json: open "+nowhere)
	}
}

// benchServerOf is the process of a benchmark's server.
func (p *program) benchServerOf() (pid int) {
	p.t.Helper()
	eventually(p.t, p.line+" to start its server", func() bool {
		for found := range p.processes() {
			if words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", found)); strings.Contains(string(words), servers.ServerName) {
				pid = found
			}
		}
		return pid != 0
	})
	return pid
}

// A server ends with who has started it, however that ends, and one that is lost is an
// error that says how it ended.
func TestBenchPSServerEnds(t *testing.T) {
	line := "bench ps --keys 8k --batch 100 --time 1h --progress plain"
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		p := start(t, line)
		p.await(&p.errs, "filling: 8,000 rows")
		p.benchServerOf()
		if err := p.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if status := p.wait(); signal == syscall.SIGINT && status != exitInterrupted {
			t.Errorf("status %d; stderr:\n%s", status, &p.errs)
		}
		p.checkGone()
	}
	p := start(t, line)
	p.await(&p.errs, "filling: 8,000 rows")
	if err := syscall.Kill(p.benchServerOf(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(exitFailed, "the server has ended: signal: killed") // whatever it was asked just then
	if n := strings.Count(p.errs.String(), "\n"); n != 2 {
		t.Errorf("%d lines on stderr:\n%s", n, fmt.Sprint(&p.errs))
	}
}

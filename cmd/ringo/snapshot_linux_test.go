package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// longEpoch is a job of one epoch, without a checkpoint before its end.
const longEpoch = "train mlp:64 --data synthetic --epochs 1 --batch 32 --train-limit 256000 --eval-limit 33 --workers 4 --threads 1 --progress none "

// TestGoesOnFromMemory kills ranks of a job without checkpoints, rank 0 too. At most the printed
// number of steps is repeated, and the bits, with those of residuals, are those of an undisturbed
// job.
func TestGoesOnFromMemory(t *testing.T) {
	t.Parallel()
	const line = longEpoch + "--strategy dgc --spars 0.05 --momentum 0.9 "
	want := hashOf(t, line+"--np 2 ")
	dir, out := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "json")
	p := start(t, line+"--np 3 --min-np 2 --checkpoint "+dir+" --log-every 1 --json "+out)
	interval := p.interval(1)
	eventually(t, "two intervals of steps", func() bool { return stepsIn(out, 1) > 2*interval+8 })
	before := stepsIn(out, 1)
	syscall.Kill(p.worker(1), syscall.SIGKILL)
	first := p.lostLine(1)
	if first < before-interval {
		t.Errorf("killed after step %d, goes on from step %d: more than %d steps", before, first, interval)
	}
	eventually(t, "steps of the second start", func() bool { return stepsIn(out, 2) > first+10 })
	syscall.Kill(p.worker(0), syscall.SIGKILL)
	if second := p.lostLine(2); second < first+4 {
		t.Errorf("goes on from step %d, then from step %d without its first snapshot", first, second)
	}
	p.checkEnd(0)
	p.checkGone()
	if got := sha(t, p.out.String()); got != want {
		t.Errorf("sha256 %s, want %s; stderr:\n%s", got, want, &p.errs)
	}
}

var (
	intervalLine = regexp.MustCompile(`a snapshot in memory every ([\d,]+) steps?: \d[.\d]* % of the time`)
	lostLine     = regexp.MustCompile(`the job goes on with 2 ranks from step (\d+) \(a snapshot in memory\)`)
)

// interval waits for the line about the interval of a start.
func (p *program) interval(start int) int { return p.number(&p.out, intervalLine, start) }

// lostLine waits for the line about a loss, and returns the step.
func (p *program) lostLine(loss int) int { return p.number(&p.errs, lostLine, loss) }

func (p *program) number(b *buffer, line *regexp.Regexp, nth int) (n int) {
	p.t.Helper()
	eventually(p.t, "line "+strconv.Itoa(nth)+" of "+line.String(), func() bool {
		all := line.FindAllStringSubmatch(b.String(), -1)
		if len(all) < nth {
			return false
		}
		n, _ = strconv.Atoi(strings.ReplaceAll(all[nth-1][1], ",", ""))
		return true
	})
	return n
}

// stepsIn returns the number of the last step in a file of --json, 0 before that of a start.
func stepsIn(file string, start int) int {
	b, _ := os.ReadFile(file)
	runs := strings.Split(string(b), `"event":"run"`)
	if len(runs) <= start {
		return 0
	}
	for _, line := range slices.Backward(strings.Split(runs[start], "\n")) {
		var step struct {
			Event string
			Done  int
		}
		if json.Unmarshal([]byte(line), &step) == nil && step.Event == "step" {
			return step.Done
		}
	}
	return 0
}

// TestMemoryEndsWithTheLauncher kills the launcher of a job with snapshots: no process of the job,
// and so no memory, is left.
func TestMemoryEndsWithTheLauncher(t *testing.T) {
	t.Parallel()
	p := start(t, longEpoch+"--np 2 --min-np 2 --checkpoint "+filepath.Join(t.TempDir(), "run"))
	p.interval(1)
	holders := 0
	for pid := range p.processes() {
		if slices.ContainsFunc(descriptors(pid), func(to string) bool { return strings.Contains(to, "memfd:ringo-snapshot") }) {
			holders++
		}
	}
	if holders != 3 { // the launcher and its ranks, not the guard
		t.Errorf("%d processes have the memory", holders)
	}
	syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL)
	p.checkGone()
}

// descriptors returns the targets of a process's descriptors.
func descriptors(pid int) (out []string) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, _ := os.ReadDir(dir) // a process that has ended has none
	for _, e := range entries {
		to, _ := os.Readlink(filepath.Join(dir, e.Name()))
		out = append(out, to)
	}
	return out
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestGoesOnWithFewerRanks kills ranks of a job of virtual workers, and wants the bits of an
// undisturbed job on another number of ranks. The other ranks continue in their processes.
func TestGoesOnWithFewerRanks(t *testing.T) {
	t.Parallel()
	type kill struct {
		processes []int // by their first ranks
		wait      time.Duration
		told      string
	}
	line := "train mnist --data synthetic --epochs 8 --batch 8 --train-limit 512 --eval-limit 33 --workers 4 --threads 1 --progress none --strategy topk --spars 0.05 "
	undisturbed := sync.OnceValue(func() string { return hashOf(t, line+"--np 2 ") })
	for _, c := range []struct {
		more  string
		kills []kill // by epoch
		sig   syscall.Signal
		long  bool
	}{
		// Process 1 becomes rank 0, and is replaced at the end.
		{"--min-np 1 ", []kill{{[]int{2}, 0, `rank 2 is lost \(.*killed by signal 9 \(SIGKILL\)\): the job goes on with 2 ranks`}, {[]int{0}, 0, `rank 0 is lost \(.*killed by signal 9 \(SIGKILL\)\): the job goes on with 1 rank`}, {[]int{1}, 0, `rank 0 is lost \(.*killed by signal 9 \(SIGKILL\)\): the job goes on with 1 rank`}}, syscall.SIGKILL, false},
		{"--min-np 3 ", []kill{{[]int{1, 2}, 0, "the job goes on with 3 ranks"}, {[]int{0}, 0, `rank 0 is lost \(.*killed by signal 9 \(SIGKILL\)\): the job goes on with 3 ranks`}}, syscall.SIGKILL, false},
		// The second is lost while the job continues after the loss of the first.
		{"--min-np 2 ", []kill{{[]int{0, 2}, 30 * time.Millisecond, "the job goes on with 2 ranks"}}, syscall.SIGKILL, false},
		{"--min-np 1 --heartbeat-timeout 2s ", []kill{{[]int{1}, 0, `rank 1 is lost \(no sign of life`}}, syscall.SIGSTOP, true},
	} {
		t.Run(c.more, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("two runs")
			}
			t.Parallel()
			want := undisturbed()
			dir := filepath.Join(t.TempDir(), "run")
			out := filepath.Join(t.TempDir(), "json")
			p := start(t, line+c.more+"--np 3 --checkpoint "+dir+" --checkpoint-every 2 --log-every 1 --json "+out)
			for i, k := range c.kills {
				awaitStepsOf(p, out, i+1)
				rest := p.processes()
				for _, r := range k.processes {
					pid := p.worker(r)
					syscall.Kill(pid, c.sig)
					delete(rest, pid)
					time.Sleep(k.wait)
				}
				told := regexp.MustCompile(k.told) // the reason may begin with the end of the connection
				eventually(t, k.told, func() bool { return told.MatchString(p.errs.String()) })
				now := p.processes()
				for pid := range rest {
					if now[pid] == nil {
						t.Errorf("process %d has not continued", pid)
					}
				}
			}
			p.checkEnd(0, "the job goes on with")
			if got := sha(t, p.out.String()); got != want {
				t.Errorf("sha256 %s, want %s; stderr:\n%s", got, want, &p.errs)
			}
		})
	}
}

// awaitStepsOf waits for six steps of a start, which make a checkpoint.
func awaitStepsOf(p *program, file string, start int) {
	eventually(p.t, fmt.Sprintf("steps of start %d of %s", start, p.line), func() bool {
		b, _ := os.ReadFile(file)
		runs := strings.Split(string(b), `"event":"run"`)
		return len(runs) > start && strings.Count(runs[start], `"event":"step"`) >= 6
	})
}

// TestSameStartEnds wants the end of a job that is lost three times before its first checkpoint.
func TestSameStartEnds(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	p := start(t, endless+"--workers 2 --np 2 --min-np 2 --checkpoint "+dir+" --checkpoint-every 1000000 --train-limit 100000 --batch 16000 ")
	for i := range 3 {
		eventually(t, "a rank 1", func() bool { return p.worker(1) != 0 })
		syscall.Kill(p.worker(1), syscall.SIGKILL)
		if i < 2 {
			eventually(t, "the next start", func() bool {
				return strings.Count(p.errs.String(), "the job goes on with 2 ranks from the beginning") == i+1
			})
		}
	}
	p.checkEnd(1, "rank 1 is lost", "3 starts of the job from the beginning have ended before the next checkpoint")
}

// TestMinRanksRefused wants jobs refused whose ranks cannot be started again.
func TestMinRanksRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	line := "train mnist --data synthetic --checkpoint " + dir + " "
	for more, want := range map[string]string{
		"--np 2 --min-np 1":                             "--min-np has no effect: it needs --workers",
		"--np 2 --min-np 3 --workers 4":                 "--min-np 3: want 1 to 2",
		"--np 2 --min-np 1 --workers 4 --transport mem": "--min-np 1: only ranks that this command starts as processes of this host",
		"--np 1 --min-np 1 --workers 4":                 "--min-np 1: only ranks that this command starts as processes of this host",
		"--np 2 --min-np 1 --workers 4 --hosts a:1,b:1": "--min-np 1: only ranks that this command starts as processes of this host",
	} {
		checkRefused(t, 2, line+more, want)
	}
	for more, want := range map[string]string{
		"--np 2 --min-np 3 -- true":             "--min-np 3: want 1 to 2",
		"--np 2 --min-np 1 --servers 1 -- true": "--min-np 1: is for ranks alone",
		"--np 2 --min-np 1 --hosts a:2 -- true": "--min-np 1: only ranks that this command starts as processes of this host",
	} {
		checkRefused(t, 2, "run "+more, want)
	}
}

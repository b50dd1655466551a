package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// leaving is a job of virtual workers from which ranks leave.
const leaving = "train mnist --data synthetic --epochs 8 --batch 8 --train-limit 1024 --eval-limit 33 --workers 4 --threads 1 --progress none "

// TestRankLeaves sends SIGTERM to ranks of a job of virtual workers. The job goes on without them,
// or with as many ranks as it needs at least, repeats no step, and has the bits of an undisturbed
// job.
func TestRankLeaves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		more   string
		leaves [][]int // ranks, in starts of the job
		told   []string
		long   bool
	}{
		{"--np 3 --min-np 1 ", [][]int{{2}, {0}}, []string{`rank 2 leaves \(SIGTERM\): the job goes on with 2 ranks from step \d+ \(a snapshot in memory\)`, `rank 0 leaves \(SIGTERM\): the job goes on with 1 rank from step `}, false},
		{"--np 2 --min-np 2 ", [][]int{{1}}, []string{`rank 1 leaves \(SIGTERM\): the job goes on with 2 ranks from step `}, false},
		{"--np 3 --min-np 1 --transport tcp --strategy topk --spars 0.05 ", [][]int{{1, 2}}, []string{`rank 1 leaves \(SIGTERM\), rank 2 leaves \(SIGTERM\): the job goes on with 1 rank from step `}, true},
	} {
		t.Run(c.more, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("two runs")
			}
			t.Parallel()
			_, plain, _ := strings.Cut(c.more, "--min-np ")
			want := hashOf(t, leaving+plain[len("1 "):]+"--np 2 ")
			out := filepath.Join(t.TempDir(), "json")
			p := start(t, leaving+c.more+"--checkpoint "+filepath.Join(t.TempDir(), "run")+" --log-every 1 --json "+out)
			for i, ranks := range c.leaves {
				awaitStepsOf(p, out, i+1)
				for _, r := range ranks {
					syscall.Kill(p.worker(r), syscall.SIGTERM)
				}
				told := regexp.MustCompile(c.told[i])
				eventually(t, c.told[i], func() bool { return told.MatchString(p.errs.String()) })
			}
			p.checkEnd(0)
			if got := sha(t, p.out.String()); got != want {
				t.Errorf("sha256 %s, want %s; stderr:\n%s", got, want, &p.errs)
			}
			if checkStepsOnce(t, out, 8*1024/8/4); t.Failed() {
				t.Log(p.errs.String())
			}
		})
	}
}

var doneSteps = regexp.MustCompile(`"event":"step".*"done":(\d+)`)

// checkStepsOnce wants each of n steps once in a file of --json.
func checkStepsOnce(t *testing.T, file string, n int) {
	t.Helper()
	b, _ := os.ReadFile(file)
	all := doneSteps.FindAllStringSubmatch(string(b), -1)
	for i, s := range all {
		if s[1] != fmt.Sprint(i+1) {
			t.Errorf("line %d is of step %s, after step %s", i+1, s[1], all[max(0, i-1)][1])
			return
		}
	}
	if len(all) != n {
		t.Errorf("%d steps, want %d", len(all), n)
	}
}

// TestAllRanksLeave sends SIGTERM to all ranks, and to the launcher during the change of a rank:
// the job stops and saves its last step.
func TestAllRanksLeave(t *testing.T) {
	t.Parallel()
	for name, signals := range map[string]func(p *program){
		"all ranks": func(p *program) {
			for _, r := range []int{0, 1} {
				syscall.Kill(p.worker(r), syscall.SIGTERM)
			}
		},
		"a rank and the launcher": func(p *program) {
			syscall.Kill(p.worker(1), syscall.SIGTERM)
			p.cmd.Process.Signal(syscall.SIGTERM)
		},
		"the launcher after a rank": func(p *program) {
			syscall.Kill(p.worker(1), syscall.SIGTERM)
			p.await(&p.errs, "rank 1 leaves")
			awaitMore(p, p.dir())
			p.cmd.Process.Signal(syscall.SIGTERM)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "saved")
			p := start(t, endless+"--workers 2 --np 2 --min-np 1 --checkpoint-every 100 --checkpoint "+dir)
			awaitSteps(p, dir, 1)
			signals(p)
			checkStopped(p, syscall.SIGTERM, dir)
		})
	}
}

// dir is the folder of a program's checkpoints, its last word.
func (p *program) dir() string { return p.line[strings.LastIndexByte(p.line, ' ')+1:] }

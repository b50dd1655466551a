package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/cmd/ringo/internal/trainjob/trainjobtest"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
)

// Each of several pods starts as many ranks of one job as it is told, whose parameters are those of one host; a rank that dies is named where it was
// started, and all pods end. The pod of rank 0 alone tells Kubeflow Trainer how the job has ended, with its figures.
func TestPodsStartRanks(t *testing.T) {
	ticket := filepath.Join(t.TempDir(), "ticket")
	if status, _, errs := command(t, "ticket "+ticket); status != 0 {
		t.Fatal(errs)
	}
	told := trainjobtest.New(t, nil)
	pods := func(line string) (zero, one *program) {
		host, port, _ := strings.Cut(freeport.Address(t), ":")
		env := func(node int) []string {
			return []string{"PET_NNODES=2", "PET_NPROC_PER_NODE=2", "PET_MASTER_ADDR=" + host, "PET_MASTER_PORT=" + port, fmt.Sprint("PET_NODE_RANK=", node), launch.TicketFileVar + "=" + ticket,
				"KUBEFLOW_TRAINER_SERVER_URL=" + told.Where.URL, "KUBEFLOW_TRAINER_SERVER_CA_CERT=" + told.Where.CACert, fmt.Sprint("KUBEFLOW_TRAINER_SERVER_TOKEN=", told.Where.Token, strings.Repeat("-of-another", node))}
		}
		return start(t, line, env(0)...), start(t, line, env(1)...)
	}
	_, want, _ := command(t, "train mlp "+small+"--np 4 --progress none")
	zero, one := pods("train mlp " + small)
	one.checkEnd(0, "ringo: ranks 2 to 3 of 4, placed by Kubeflow Trainer (PET_NNODES=2, PET_NPROC_PER_NODE=2")
	zero.checkEnd(0, "ringo: ranks 0 to 1 of 4")
	if _, sum, _ := strings.Cut(want, "params sha256 "); sum == "" || !strings.Contains(zero.out.String(), sum) {
		t.Errorf("%s\nwant\n%s", zero.out.String(), want)
	}
	last := func() trainjobtest.Status {
		_, bodies := told.Took()
		return trainjobtest.Read(t, bodies[len(bodies)-1])
	}
	if s := last(); *s.ProgressPercentage != 100 || *s.EstimatedRemainingSeconds != 0 || !strings.Contains(fmt.Sprint(s.Metrics), "{eval_accuracy ") {
		t.Errorf("%+v", s)
	}

	zero, one = pods("train mlp " + small + "--epochs 100000")
	zero.await(&zero.out, "epoch ")
	if err := syscall.Kill(one.worker(3), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	one.checkEnd(exitFailed, "ringo: rank 3 is lost: killed by signal 9 (SIGKILL)")
	zero.checkEnd(exitFailed, "rank 3 is lost")
	if s := last(); *s.ProgressPercentage == 100 || s.EstimatedRemainingSeconds != nil || !strings.Contains(fmt.Sprint(s.Metrics), "[{failed 1} {epoch ") {
		t.Errorf("%+v", s)
	}
	if strings.Contains(one.errs.String(), "is not reported") {
		t.Error("a pod without rank 0 tells, too")
	}

	t.Setenv("PET_NNODES", "2")
	t.Setenv("PET_NPROC_PER_NODE", "2")
	t.Setenv("PET_NODE_RANK", "1")
	t.Setenv("PET_MASTER_ADDR", "h")
	t.Setenv("PET_MASTER_PORT", "1")
	t.Setenv(launch.TicketFileVar, ticket)
	for line, want := range map[string]string{
		"train mlp --data synthetic --sync bsp":      "--sync bsp needs servers, which Kubeflow Trainer",
		"train mlp --data synthetic --hosts a:4":     "--hosts starts all ranks, and Kubeflow Trainer",
		"run --transport tcp --np 3 -- ./trainer":    "the number of ranks is 3, but Kubeflow Trainer",
		"train mlp --data synthetic --transport mem": "--transport mem runs all ranks in one process",
	} {
		checkRefused(t, exitUsage, line, want)
	}
}

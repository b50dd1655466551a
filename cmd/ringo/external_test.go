package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/freeport"
)

// The ranks that another launcher has started on one host find each other by its variables alone, and rank 0 says by which.
// Elsewhere they need to be told where to meet, and a program that is to run once says so.
func TestStartedByAnotherLauncher(t *testing.T) {
	dir := t.TempDir()
	ompi := func(rank, local int) []string {
		return []string{"OMPI_COMM_WORLD_SIZE=2", fmt.Sprint("OMPI_COMM_WORLD_RANK=", rank), fmt.Sprint("OMPI_COMM_WORLD_LOCAL_SIZE=", local),
			fmt.Sprint("OMPI_COMM_WORLD_LOCAL_RANK=", rank*(local-1)), "PMIX_NAMESPACE=12.1", "TMPDIR=" + dir}
	}
	both := func(line string, env func(rank int) []string) (zero, one *program) {
		zero, one = start(t, line, env(0)...), start(t, line, env(1)...)
		one.checkEnd(0)
		return zero, one
	}
	zero, _ := both("train mlp "+small, func(rank int) []string { return ompi(rank, 2) })
	zero.checkEnd(0, "ringo: 2 ranks, placed by mpirun of Open MPI (OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2")
	ticket := filepath.Join(dir, "ticket")
	if status, out, errs := command(t, "ticket "+ticket); status != 0 || out+errs != "" {
		t.Fatal(status, out, errs)
	}
	line := fmt.Sprintf("train mlp %s --rendezvous %s --ticket-file %s", small, freeport.Address(t), ticket)
	zero, _ = both(line, func(rank int) []string { return ompi(rank, 1) })
	zero.checkEnd(0, "ringo: 2 ranks, placed by ")

	for _, v := range ompi(1, 1) {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	for line, want := range map[string]string{
		"train mnist --data synthetic":                                         "do not have the address of rank 0, and the ranks are on several hosts",
		"train mnist --data synthetic --rendezvous h:1":                        "RINGO_TICKET is not set, nor is RINGO_TICKET_FILE",
		"train mnist --data synthetic --np 4 --rendezvous /x":                  "the number of ranks is 4, but mpirun of Open MPI",
		"train mnist --data synthetic --transport mem --rendezvous /x":         "--transport mem is for all ranks in one process",
		"run -- ./trainer --epochs 3":                                          "this command must run once",
		"bench ps":                                                             "this command must run once",
		"train mnist --data synthetic --rendezvous h:1 --ticket-file /no/such": "ticket: ",
	} {
		if strings.HasSuffix(line, "/no/such") {
			status, _, errs := command(t, line)
			checkHolds(t, "stderr", errs, want)
			if status == 0 {
				t.Errorf("%s ended well", line)
			}
			continue
		}
		checkRefused(t, exitUsage, line, want)
	}
	os.Unsetenv("OMPI_COMM_WORLD_SIZE")
	checkRefused(t, exitUsage, "train mnist --data synthetic", "OMPI_COMM_WORLD_SIZE is not set")
}

// A new ticket is printed, or written to a file that is not there yet.
func TestTicketCommand(t *testing.T) {
	status, out, errs := command(t, "ticket")
	if status != 0 || len(strings.TrimSpace(out)) != 64 || errs != "" {
		t.Error(status, out, errs)
	}
	checkRefused(t, exitFailed, "ticket "+filepath.Join(t.TempDir(), "a", "b"), "ticket: ")
}

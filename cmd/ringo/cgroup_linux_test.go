package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// limited makes a control group with a limit, a file's name and content by version, and returns the
// file that takes processes. It skips without permission.
func limited(t *testing.T, controller string, one, two [2]string) (name, processes string) {
	t.Helper()
	name = fmt.Sprintf("ringo-test-%s-%d", controller, os.Getpid())
	for _, v := range []struct {
		folder    string
		limit     [2]string
		processes string
	}{{"/sys/fs/cgroup/" + controller, one, "tasks"}, {"/sys/fs/cgroup", two, "cgroup.procs"}} {
		at := filepath.Join(v.folder, name)
		if os.Mkdir(at, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(at, v.limit[0]), []byte(v.limit[1]), 0) != nil {
			syscall.Rmdir(at)
			continue
		}
		t.Cleanup(func() {
			eventually(t, "the control group to be empty", func() bool { return syscall.Rmdir(at) == nil })
		})
		return name, filepath.Join(at, v.processes)
	}
	t.Skipf("NOT tested: this user may not make a control group with a limit of %s", controller)
	return "", ""
}

// inGroup returns the words before a command line that run it in a control group.
func inGroup(processes string) []string {
	return []string{"/bin/sh", "-c", "echo $$ >" + processes + ` && exec "$@"`, "sh", os.Args[0]}
}

// A rank computes on no more threads than the quota of its control group lets run, in one process
// and in several.
func TestThreadsWithinQuota(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("NOT tested: one processor")
	}
	_, processes := limited(t, "cpu", [2]string{"cpu.cfs_quota_us", "100000"}, [2]string{"cpu.max", "100000 100000"})
	for _, flags := range []string{"", "--sync aggregate --servers 1"} {
		p := startAs(t, inGroup(processes), nil, "train mlp --data synthetic --train-limit 64 --eval-limit 16 --epochs 1 --np 1 "+flags)
		if p.checkEnd(0); !strings.Contains(p.out.String(), "1 rank, 1 thread each") {
			t.Errorf("%s: %s", flags, &p.out)
		}
	}
}

// The error about a process that was killed for lack of memory has the limit of its control group,
// on this host and on others, and the error about one that was killed by another process has not.
func TestKilledForMemory(t *testing.T) {
	group, processes := limited(t, "memory", [2]string{"memory.limit_in_bytes", "150M"}, [2]string{"memory.max", "150M"})
	ssh := filepath.Join(t.TempDir(), "ssh")
	script := "#!/bin/sh\nwhile [ $# -gt 0 ]; do case \"$1\" in -o|-p|-i|-l) shift 2;; -*) shift;; *) break;; esac; done\nshift; exec sh -c \"$*\"\n"
	if err := os.WriteFile(ssh, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	kill := filepath.Join(t.TempDir(), "kill")
	if err := os.WriteFile(kill, []byte("#!/bin/sh\ntest $1 = hand && kill -9 $$\ntest $1 = shell || exec tail /dev/zero\ntail /dev/zero\nexit $?\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	reached := "because memory reached the limit of control group /" + group + ", 150 MiB"
	for line, want := range map[string]string{
		"--np 1 -- " + kill + " self":                                    "rank 0 is lost: killed by signal 9 (SIGKILL), " + reached,
		"--np 1 -- " + kill + " shell":                                   "rank 0 is lost: exit status 137, " + reached,
		"--np 1 -- " + kill + " hand":                                    "rank 0 is lost: killed by signal 9 (SIGKILL); ",
		"--hosts node7:1 --set job.ssh=" + ssh + " -- " + kill + " self": "rank 0 on node7 is lost: killed by signal 9 (SIGKILL), " + reached,
	} {
		p := startAs(t, inGroup(processes), nil, "run "+line)
		p.checkEnd(exitFailed, want)
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// limited makes a control group with a limit of memory and returns the file that takes processes. It skips without permission.
func limited(t *testing.T, mebibytes int) (name, processes string) {
	t.Helper()
	name = fmt.Sprintf("ringo-test-%d", os.Getpid())
	for _, v := range []struct{ folder, limit, processes string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "tasks"}, {"/sys/fs/cgroup", "memory.max", "cgroup.procs"},
	} {
		at := filepath.Join(v.folder, name)
		if os.Mkdir(at, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(at, v.limit), fmt.Append(nil, mebibytes<<20), 0) != nil {
			syscall.Rmdir(at)
			continue
		}
		t.Cleanup(func() {
			eventually(t, "the control group to be empty", func() bool { return syscall.Rmdir(at) == nil })
		})
		return name, filepath.Join(at, v.processes)
	}
	t.Skip("NOT tested: this user may not make a control group with a limit of memory")
	return "", ""
}

// The error about a process that was killed for lack of memory has the limit of its control group, on this host and on others, and the
// error about one that was killed by another process has not.
func TestKilledForMemory(t *testing.T) {
	group, processes := limited(t, 150)
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
		"--np 1 -- " + kill + " self":  "rank 0 is lost: killed by signal 9 (SIGKILL), " + reached,
		"--np 1 -- " + kill + " shell": "rank 0 is lost: exit status 137, " + reached,
		"--np 1 -- " + kill + " hand":  "rank 0 is lost: killed by signal 9 (SIGKILL); ",
		"--hosts node7:1 --set job.ssh=" + ssh + " -- " + kill + " self": "rank 0 on node7 is lost: killed by signal 9 (SIGKILL), " + reached,
	} {
		p := startAs(t, []string{"/bin/sh", "-c", `echo $$ >` + processes + ` && exec "$@"`, "sh", os.Args[0]}, nil, "run "+line)
		p.checkEnd(exitFailed, want)
	}
}

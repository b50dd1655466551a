package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeSSH is an ssh whose hosts are folders of a test on this host.
func fakeSSH(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ssh")
	script := `#!/bin/sh
while [ "$1" != "--" ]; do shift; done
host=$2; shift 2
[ "$host" = dead ] && { echo "Host key verification failed." >&2; exit 255; }
export SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22"
exec sh -c "$*"
`
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// Hosts of a file take ranks and servers in their places, with the parameters of one host, and each has a file with what it printed.
func TestHosts(t *testing.T) {
	ssh, dir := fakeSSH(t), t.TempDir()
	file := filepath.Join(dir, "hosts")
	if err := os.WriteFile(file, []byte("# two\na slots=1\nb:2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, want, _ := command(t, "train mlp "+small+"--np 3 --sync bsp --servers 2")
	p := start(t, "train mlp "+small+"--verbose --hostfile "+file+" --sync bsp --servers 2 --set job.ssh="+ssh+" --log-dir "+dir)
	p.checkEnd(0, "[a: ps 0] parameter server 0 of 2 is up at 127.0.0.1:", "[b: ps 1] parameter server 1 of 2 is done", "[b: rank 2] trainer 2 of 3 is done")
	if _, sum, _ := strings.Cut(want, "params sha256 "); sum == "" || !strings.Contains(p.out.String(), sum) {
		t.Errorf("%s\nwant\n%s", p.out.String(), want)
	}
	for _, name := range []string{"rank-0", "rank-1", "rank-2", "ps-0", "ps-1"} {
		if b, err := os.ReadFile(filepath.Join(dir, name+".log")); err != nil || !strings.Contains(string(b), "is done") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	checkRefused(t, exitFailed, "train mlp "+small+"--hosts a,dead --set job.ssh="+ssh, `host dead: ssh failed: "Host key verification failed."; its host key is not accepted yet: run `)
	for line, want := range map[string]string{
		"train mlp --hosts a:0":                                   `--hosts host "a:0": "0" ranks: want 1 to 1024`,
		"train mlp --hosts @" + dir + "/none":                     "--hosts: open " + dir + "/none",
		"train mlp --hosts @" + ssh:                               "--hosts: " + ssh + ": line 2: ",
		"train mlp --np 3 --hosts a:2":                            "--hosts has places for 2 ranks, but --np is 3",
		"train mlp --hosts a:2 --transport mem":                   "--hosts with --transport mem",
		"train mlp --hosts a:2 --rendezvous /x":                   "--rendezvous /x: want a HOST:PORT of this host",
		"train mlp --hosts a:2 --rank 0 --rendezvous h:1":         "--hosts starts all ranks",
		"train mlp --set job.copy=true":                           "job.copy",
		"train mlp --hosts a:2 --set servers.hosts=-x --sync bsp": "want a name or address",
	} {
		checkRefused(t, exitUsage, line, want)
	}
}

// MPI's way to name a host file is ours.
func TestHostFileFlag(t *testing.T) {
	for line, want := range map[string]string{
		"train mnist --hostfile f --np 2": "train mnist --hosts=@f --np 2",
		"train -hostfile=f":               "train --hosts=@f",
		"run --hostfile":                  "run --hosts=@",
		"run -np 2 -- p --hostfile f":     "run --np 2 -- p --hostfile f",
		"data hostfile":                   "data hostfile",
		"run p --hostfile f":              "run p --hostfile f",
		"run --np 2 p --resume auto":      "run --np 2 p --resume auto",
		"run --np=2 --hostfile f p":       "run --np=2 --hosts=@f p",
	} {
		if got := asWeWrite(strings.Fields(line)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// What other hosts get of an environment has a meaning there.
func TestHostEnv(t *testing.T) {
	got := hostEnv([]string{"PATH=/x", "RINGO_DATA=/d", pageVar + "=1", "GOMAXPROCS=2", "GOPATH=/g"})
	if want := []string{"RINGO_DATA=/d", "GOMAXPROCS=2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	host, _ := os.Hostname()
	for name, want := range map[string]bool{"localhost": true, "127.0.0.1": true, host: true, "me@localhost": false, "nowhere": false} {
		if isHere(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// The doctor looks at another host by ssh, and measures links to it, with and without TLS; what is wrong there has its name.
func TestDoctor(t *testing.T) {
	ssh := fakeSSH(t)
	p := start(t, "doctor --hosts a --ssh "+ssh)
	p.checkEnd(0)
	checkHolds(t, "stdout", p.out.String(), "ok    a: program: version ", "\n", " a: cores: ", "ok    a: link: ", "ok    a: link under TLS: ", " Gbit/s from it")
	p = start(t, "doctor --hosts dead --json - --ssh "+ssh)
	p.checkEnd(1, "1 fault would make jobs fail")
	checkHolds(t, "stdout", p.out.String(), `{"what":"dead","found":"ssh failed: \"Host key verification failed.\"; its host key is not accepted yet: run `+"`ssh dead true`", `"level":"bad"`)
}

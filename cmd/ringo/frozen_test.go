package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/freeport"
)

// lostAtOnce makes servers lost soon after they are frozen.
const lostAtOnce = "--heartbeat-timeout 3s "

// freeze stops a server that keeps parameters in the middle of training.
func (p *program) freeze(server int) {
	p.t.Helper()
	p.await(&p.out, "2/")
	if err := syscall.Kill(p.keeper(server), syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
}

// checkNobodyBlamed wants no rank to be named as lost.
func (p *program) checkNobodyBlamed() {
	p.t.Helper()
	for _, rank := range []string{"rank 0 is lost", "rank 1 is lost", "trainer 0 is lost", "trainer 1 is lost"} {
		if strings.Contains(p.errs.String(), rank) {
			p.t.Errorf("%s: %q is in\n%s", p.line, rank, &p.errs)
		}
	}
}

// A server that is frozen is named by all, and killed, in every mode; no rank is blamed.
func TestFrozenKeeper(t *testing.T) {
	t.Parallel()
	modes := []string{"bsp", "async", "ssp --staleness 1", "geo", "bsp --ps-failure-policy continue", "async --ps-failure-policy continue"}
	if testing.Short() {
		modes = []string{"bsp", "bsp --ps-failure-policy continue"}
	}
	for _, mode := range modes {
		p := start(t, endless+lostAtOnce+"--np 2 --servers 2 --sync "+mode)
		p.freeze(0)
		p.checkEnd(exitFailed, "\nringo: parameter server 0 is lost: ", "; ranks 0 and 1 ended because of it", "; it wrote nothing\n")
		p.checkSilent("parameter server 0", 3*time.Second)
		errs := p.errs.String()
		if !stepped.MatchString(errs) || strings.Count(errs, "parameter server 0 is lost") != 1 {
			t.Errorf("it is not told once, with the step:\n%s", errs)
		}
		p.checkNobodyBlamed()
		p.checkGone()
	}
}

// Where it may be started again the job goes on with the same bits, under ringo run too, and no rank is put out.
func TestFrozenKeeperComesBack(t *testing.T) {
	t.Parallel()
	line := "train mlp:20 --data synthetic --epochs 30 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none "
	want := runSummary(t, line+"--np 2 --transport mem --collective-algorithm naive")["params_sha256"]
	flags := lostAtOnce + "--np 2 --servers 2 --sync bsp --ps-durability wal --set job.max-restarts=1 "
	runs := []string{
		line + flags + "--ps-failure-policy continue --ps-dir " + t.TempDir(),
		"run " + flags + "--ps-dir " + t.TempDir() + " -- " + os.Args[0] + " " + line + "--servers 2 --sync bsp",
	}
	if testing.Short() {
		runs = runs[:1]
	}
	for _, run := range runs {
		p := start(t, run)
		p.freeze(0)
		p.checkEnd(0, "it is started again (1 of 1)")
		p.checkSilent("parameter server 0", 3*time.Second)
		p.checkNobodyBlamed()
		if got := sha(t, p.out.String()); got != want {
			t.Errorf("%s: sha256 %s, want %s", p.line, got, want)
		}
	}
}

// Ranks that were started by hand, as their servers were, name the frozen one themselves.
func TestFrozenKeeperByHand(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"fail", "continue"} {
		addrs, mark := freeport.Address(t)+","+freeport.Address(t), ticket()
		both := lostAtOnce + "--np 2 --sync async --ps-failure-policy " + lost + " --ps-addresses " + addrs + " "
		ranks, meet := endless+"--servers 2 "+both, ""
		if lost == "fail" {
			meet = "--rendezvous " + freeport.Address(t)
		}
		servers := []*program{start(t, "server --index 0 "+both, mark), start(t, "server --index 1 "+both, mark)}
		zero, one := start(t, ranks+"--rank 0 "+meet, mark), start(t, ranks+"--rank 1 "+meet, mark)
		zero.await(&zero.out, "2/")
		if err := servers[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*program{zero, one} {
			p.checkEnd(exitFailed)
			p.checkSilent("parameter server 1 at "+strings.Split(addrs, ",")[1], 3*time.Second)
			p.checkNobodyBlamed()
		}
		servers[0].cmd.Process.Signal(os.Interrupt) // it would wait a minute for its trainers
		servers[1].cmd.Process.Kill()
		for _, s := range servers {
			s.wait()
		}
	}
}

// So do those of servers that sum gradients, which are members of the mesh.
func TestFrozenServerByHand(t *testing.T) {
	t.Parallel()
	mark, both := ticket(), lostAtOnce+"--np 2 --servers 2 --rendezvous "+freeport.Address(t)
	servers := []*program{start(t, "server --index 0 "+both, mark), start(t, "server --index 1 "+both, mark)}
	zero, one := start(t, endless+"--sync aggregate --rank 0 "+both, mark), start(t, endless+"--sync aggregate --rank 1 "+both, mark)
	zero.await(&zero.out, "2/")
	if err := servers[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*program{zero, one, servers[0]} {
		p.checkEnd(exitFailed, "rank 3 is lost: server 1: no sign of life for ")
	}
	servers[1].cmd.Process.Kill()
	servers[1].wait()
}

// --timeout bounds what a rank waits for at servers, too, such as the pushes of another one that is alive as far as anybody knows.
func TestTimeoutOfKeepers(t *testing.T) {
	t.Parallel()
	p := start(t, endless+"--timeout 4s --heartbeat-timeout 5m --np 2 --servers 2 --sync bsp")
	p.await(&p.out, "2/")
	if err := syscall.Kill(p.worker(1), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(exitFailed, "within 4s: is the server stuck, or does it wait for other trainers?")
	p.checkGone()
}

// A job that is suspended as a whole for longer than the limit goes on, and nobody is lost: not in a mesh, and not
// where servers alone say who lives.
func TestSuspendedJob(t *testing.T) {
	t.Parallel()
	line := "train mlp:20 --data synthetic --epochs 30 --batch 16 --train-limit 640 --eval-limit 33 --threads 1 --progress none "
	want := runSummary(t, line+"--np 2 --transport mem --collective-algorithm naive")["params_sha256"]
	for _, lost := range []string{"fail", "continue"} {
		p := start(t, line+"--heartbeat-timeout 2s --np 2 --servers 2 --sync bsp --ps-failure-policy "+lost)
		p.await(&p.out, "epoch  2/")
		pids := append([]int{p.keeper(0), p.keeper(1), p.worker(0), p.worker(1)}, p.cmd.Process.Pid)
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			for _, pid := range pids {
				if err := syscall.Kill(pid, sig); err != nil {
					t.Fatal(err)
				}
			}
			if sig == syscall.SIGSTOP {
				time.Sleep(3 * time.Second)
			}
		}
		p.checkEnd(0)
		p.checkNobodyBlamed()
		if got := sha(t, p.out.String()); got != want {
			t.Errorf("--ps-failure-policy %s: sha256 %s, want %s", lost, got, want)
		}
	}
}

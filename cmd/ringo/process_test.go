package main

import (
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// endless are the flags of a run that does not end by itself.
const endless = "train mlp --data synthetic --epochs 1000000 --batch 16 --train-limit 1600 --eval-limit 33 --threads 1 --progress none "

func ticket() string { return launch.TicketVar + "=" + transport.NewTicket().String() }

// byHand starts one rank of a job of two.
func byHand(t *testing.T, line, rank, address, ticket string) *program {
	t.Helper()
	return start(t, line+" --np 2 --rank "+rank+" --rendezvous "+address, ticket)
}

// sha is the hash that a run has printed.
func sha(t *testing.T, text string) string {
	t.Helper()
	_, sum, ok := strings.Cut(text, "params sha256 ")
	if sum = strings.TrimSpace(sum); !ok || len(sum) != 64 {
		t.Fatalf("no hash at the end of\n%s", text)
	}
	return sum
}

// Ranks started by hand, in any order, learn what launched ones do.
func TestByHand(t *testing.T) {
	t.Parallel()
	line := "train mlp " + small
	want := summary(t, line+"--np 2")["params_sha256"]
	for _, order := range [][2]string{{"0", "1"}, {"1", "0"}} {
		address, ticket := freeport.Address(t), ticket()
		ranks := map[string]*program{}
		for _, rank := range order {
			ranks[rank] = byHand(t, line, rank, address, ticket)
		}
		ranks["0"].checkEnd(0)
		ranks["1"].checkEnd(0)
		if got := sha(t, ranks["0"].out.String()); got != want {
			t.Errorf("order %v: sha256 %s by hand, %s launched", order, got, want)
		}
		if text := ranks["1"].out.String() + ranks["1"].errs.String(); text != "" {
			t.Errorf("rank 1 says %q: rank 0 speaks for all", text)
		}
	}
	address, ticket := freeport.Address(t), ticket()
	one := byHand(t, "bench allreduce --floats 10 --time 1ms --json -", "1", address, ticket)
	zero := byHand(t, "bench allreduce --floats 10 --time 1ms --json -", "0", address, ticket)
	zero.checkEnd(0)
	one.checkEnd(0)
	checkJSON(t, zero.out.String(), allReduceFields)
}

// A rank with a wrong ticket is refused, at once and with a reason; the job goes
// on waiting for the right one.
func TestWrongTicket(t *testing.T) {
	address, right, wrong := freeport.Address(t), ticket(), ticket()
	line := "train mlp " + small
	zero := byHand(t, line, "0", address, right)
	stranger := byHand(t, line, "1", address, wrong)
	stranger.checkEnd(exitFailed, "rank 1 cannot join at "+address, "the tickets differ")
	zero.await(&zero.errs, "refused a connection")
	byHand(t, line, "1", address, right).checkEnd(0)
	zero.checkEnd(0, "the tickets differ")
	for _, p := range []*program{zero, stranger} {
		for _, secret := range []string{right, wrong} {
			_, digits, _ := strings.Cut(secret, "=")
			if strings.Contains(p.out.String()+p.errs.String(), digits) {
				t.Errorf("%s shows a ticket", p.line)
			}
		}
	}
}

// Ranks of one job must be of one mind.
func TestDifferentRanks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zero, one, want string }{
		{"train mlp " + small, "train mlp --lr 0.1 " + small, "--lr is 0.005 on rank 0 and 0.1 on rank 1"},
		{"train mlp " + small, "train mnist " + small, "model is mlp on rank 0 and mnist-cnn on rank 1"},
		{"train mlp " + small, "train mlp --collective-algorithm naive " + small, "--collective-algorithm is auto on rank 0 and naive on rank 1"},
	} {
		address, ticket := freeport.Address(t), ticket()
		zero, one := byHand(t, c.zero, "0", address, ticket), byHand(t, c.one, "1", address, ticket)
		zero.checkEnd(exitFailed, c.want, "give all processes of a job the same")
		one.checkEnd(exitFailed, c.want)
	}
	address, ticket := freeport.Address(t), ticket()
	zero := byHand(t, "train mlp "+small, "0", address, ticket)
	one := start(t, "train mlp "+small+"--np 3 --rank 2 --rendezvous "+address, ticket)
	one.checkEnd(exitFailed, "for a job of 3 ranks, but the job has 2")
	eventually(t, "rank 0 to tell whom it refused", func() bool { return strings.Contains(zero.errs.String(), "for a job of 3 ranks, but the job has 2") })
	zero.cmd.Process.Signal(os.Interrupt)
	zero.checkEnd(exitInterrupted, "for a job of 3 ranks, but the job has 2", "interrupted")
}

// What keeps a rank that is started by hand from joining.
func TestCannotJoin(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	free, line := freeport.Address(t), "train mlp "+small+"--np 2 --join-timeout 2s " // in which rank 0 joins
	for _, c := range [][]string{
		{"--rank 0 --rendezvous " + busy.Addr().String(), busy.Addr().String(), "address already in use"},
		{"--rank 1 --rendezvous " + free, "rank 1 cannot join at " + free, "no coordinator for 2s", "is the launcher, or rank 0, running there?"},
		{"--rank 0 --rendezvous " + free, "rank 1 of 2 did not join within 2s"},
	} {
		name, value, _ := strings.Cut(ticket(), "=")
		t.Setenv(name, value)
		checkRefused(t, exitFailed, line+c[0], c[1:]...)
	}
	t.Setenv(launch.TicketVar, "not-a-ticket")
	checkRefused(t, exitFailed, line+"--rank 0 --rendezvous "+free, "RINGO_TICKET", "64 hexadecimal digits")
	if _, _, errs := command(t, line+"--rank 0 --rendezvous "+free); strings.Contains(errs, "not-a-ticket") {
		t.Errorf("what may be a secret is shown: %s", errs)
	}
	os.Unsetenv(launch.TicketVar) // t.Setenv brings back what was
	checkRefused(t, exitFailed, line+"--rank 0 --rendezvous "+free, "RINGO_TICKET is not set")
}

// When a worker dies, all end, and the launcher tells of it once, with the step, the bucket and
// all who ended because of it.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rank int
		want string
	}{
		{2, `^ringo: rank 2 is lost: killed by signal 9 \(SIGKILL\)(, in step \d+ of epoch \d+.*|, while .*)?; ranks 0 and 1 ended because of it.*; it wrote nothing\n  black box: operation .*\n  black box: last operations of each process: ringo blackbox .*\n$`},
		{0, `^ringo: rank 0 is lost: killed by signal 9 \(SIGKILL\)(, in step \d+ of epoch \d+.*|, while .*)?; ranks 1 and 2 ended because of it.*; its last lines:\n(  .*\n)+$`},
	} {
		p := start(t, endless+"--np 3")
		p.await(&p.out, "epoch       2/") // the next one is under way
		if err := syscall.Kill(p.worker(c.rank), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.checkEnd(exitFailed)
		if errs := p.errs.String(); !regexp.MustCompile(c.want).MatchString(errs) || !stepped.MatchString(errs) {
			t.Errorf("got\n%s\nwant %s", errs, c.want)
		}
		if c.rank == 0 {
			if !regexp.MustCompile(`\n  epoch +\d+/1000000  +\d`).MatchString(p.errs.String()) {
				t.Errorf("the last lines have no epoch:\n%s", &p.errs)
			}
		}
		p.checkGone()
	}
}

// stepped is how a fault says where in its run it was.
var stepped = regexp.MustCompile(`(in|while evaluating after) step \d+ of epoch \d+`)

// When a rank started by hand dies, the others end by themselves.
func TestRankKilled(t *testing.T) {
	t.Parallel()
	for _, victim := range []int{0, 1} {
		address, ticket := freeport.Address(t), ticket()
		ranks := []*program{byHand(t, endless, "0", address, ticket), byHand(t, endless, "1", address, ticket)}
		ranks[0].await(&ranks[0].out, "epoch       2/")
		ranks[victim].cmd.Process.Kill()
		ranks[victim].wait()
		want := []string{"coordinator", "rank 1 is lost"}[victim]
		ranks[1-victim].checkEnd(exitFailed, want)
		errs := ranks[1-victim].errs.String()
		if n := strings.Count(errs, "\n"); n != 1 || !stepped.MatchString(errs) || strings.Count(errs, " is lost") != 1 {
			t.Errorf("%d lines: %s", n, errs)
		}
	}
}

// The workers of a launcher that is killed end too.
func TestLauncherKilled(t *testing.T) {
	t.Parallel()
	p := start(t, endless+"--np 3")
	p.await(&p.out, "epoch       2/")
	for rank := range 3 {
		p.worker(rank)
	}
	p.cmd.Process.Kill()
	if status := p.wait(); status != -1 {
		t.Errorf("status %d of a killed process", status)
	}
	p.checkGone()
}

// Ctrl-C, a terminal's end, and what schedulers send, ends all in good order, however the ranks run. The status and
// a line tell of the signal.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line   string
		signal syscall.Signal
	}{
		{endless + "--np 3", syscall.SIGINT},
		{endless + "--np 3", syscall.SIGTERM},
		{endless + "--np 2 --transport mem", syscall.SIGINT},
		{endless + "--np 1", syscall.SIGHUP},
		{"run --np 2 -- " + os.Args[0] + " " + endless + "--np 2", syscall.SIGHUP},
	} {
		p := start(t, c.line)
		p.await(&p.out, "epoch       2/")
		p.cmd.Process.Signal(c.signal)
		p.checkEnd(128 + int(c.signal))
		if !strings.HasSuffix("\n"+p.errs.String(), "\nringo: interrupted by "+unix.SignalName(c.signal)+"\n") {
			t.Errorf("%s: the last word is not that it was interrupted: %s", p.line, &p.errs)
		}
		if n := strings.Count(p.errs.String(), "interrupted"); n != 1 {
			t.Errorf("%s: it says %d times that it was interrupted: %s", p.line, n, &p.errs)
		}
		p.checkGone()
	}
	p := start(t, "run --np 2 -- sleep 1000")
	p.worker(1)
	p.cmd.Process.Signal(os.Interrupt)
	p.checkEnd(exitInterrupted, "ringo: interrupted by SIGINT\n")
}

// `ringo run` starts any program: this one, too.
func TestRun(t *testing.T) {
	t.Parallel()
	line := "run --np 2 -- " + os.Args[0] + " train mlp " + small
	status, out, errs := command(t, line)
	if status != 0 || !strings.HasPrefix(errs, "ringo: ranks are ") || strings.Count(errs, "\n") != 1 || sha(t, out) != summary(t, "train mlp "+small+"--np 2")["params_sha256"] {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
	status, _, errs = command(t, line+"--np 3")
	if status != exitFailed {
		t.Errorf("status %d of a job of two whose ranks want to be of three", status)
	}
	checkHolds(t, "stderr", errs, "--np 3, but RINGO_WORLD_SIZE is 2", "ringo: rank")
}

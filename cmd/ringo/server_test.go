package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// runSummary is the summary of a run, whatever fields it has.
func runSummary(t *testing.T, line string) (sum map[string]any) {
	t.Helper()
	status, out, errs := command(t, line+" --json -")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); status != 0 || err != nil {
		t.Fatalf("ringo %s: status %d, %v, stderr %s", line, status, err, errs)
	}
	return sum
}

// Servers give the bits that the naive algorithm gives, however many there are and
// however the members talk.
func TestModePS(t *testing.T) {
	t.Parallel()
	for _, np := range []int{2, 3} {
		line := fmt.Sprintf("train mlp %s--np %d --transport mem ", small, np)
		naive := runSummary(t, line+"--collective-algorithm naive")
		for servers := 1; servers <= 3; servers++ {
			got := runSummary(t, fmt.Sprintf("%s--sync aggregate --servers %d", line, servers))
			if got["params_sha256"] != naive["params_sha256"] || got["servers"] != float64(servers) {
				t.Errorf("%d ranks, %d servers: %v, want %v", np, servers, got, naive["params_sha256"])
			}
		}
	}
	line := "train mlp " + small + "--np 3 --transport "
	for _, strategy := range []string{"fp32 --collective-algorithm naive", "int8", "dlgs"} {
		among, own, _ := strings.Cut(strategy, " --collective-algorithm")
		if own != "" {
			own = "--collective-algorithm" + own
		}
		want := runSummary(t, line+"mem --strategy "+among+" "+own)["params_sha256"]
		got := runSummary(t, line+"tcp --sync aggregate --servers 2 --strategy "+among)["params_sha256"]
		if got != want {
			t.Errorf("%s: sha256 %v on servers, %v among the ranks", strategy, got, want)
		}
	}
}

// Each role says when it is up and how it ended: this text.
func TestRolesTell(t *testing.T) {
	status, _, errs := command(t, "train mlp "+small+"--verbose --np 2 --sync aggregate --servers 2")
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	lines := strings.Split(strings.TrimSpace(regexp.MustCompile(`[\d.]+ [kMG]?B`).ReplaceAllString(errs, "N MB")), "\n")
	slices.Sort(lines)
	want := []string{
		"[rank 1] trainer 1 of 2 is done",
		"[rank 1] trainer 1 of 2 is up, with 2 servers",
		"[server 0] server 0 of 2 is done: 24 exchanges, N MB received, N MB sent",
		"[server 0] server 0 of 2 is up (rank 2), for 2 trainers",
		"[server 1] server 1 of 2 is done: 24 exchanges, N MB received, N MB sent",
		"[server 1] server 1 of 2 is up (rank 3), for 2 trainers",
		"trainer 0 of 2 is done",
		"trainer 0 of 2 is up, with 2 servers",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

// TestTrainIsQuiet: without --verbose ringo train prints no plan, kernels, connections, or lines of
// other processes.
func TestTrainIsQuiet(t *testing.T) {
	t.Parallel()
	status, out, errs := command(t, "train mlp "+small+"--np 2 --sync aggregate --servers 1")
	if status != 0 || errs != "" || regexp.MustCompile(`plan|kernels|over |bound|is up|is done`).MatchString(out) {
		t.Errorf("status %d, stderr %q, stdout %s", status, errs, out)
	}
	_, out, _ = command(t, "train mlp "+small+"--verbose --np 2")
	checkHolds(t, "stdout", out, "exchange  strategy fp32, plan fixed (", " sha256 ", "\n          over ", "\nmachine   ", " kernels")
}

// A server that is killed is named by all, and so is a rank.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	for victim, want := range map[int][2]string{
		2: {"server 0: ", `ranks 0 and 1 and server 1 ended because of it.*; its last lines:\n  server 0 of 2 is up \(rank 2\), for 2 trainers`},
		1: {"", `rank 0 and servers 0 and 1 ended because of it.*; its last lines:\n  trainer 1 of 2 is up, with 2 servers`},
	} {
		p := start(t, endless+"--verbose --np 2 --sync aggregate --servers 2")
		p.await(&p.out, "epoch       2/")
		if err := syscall.Kill(p.worker(victim), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.checkEnd(exitFailed)
		told := fmt.Sprintf(`\nringo: rank %d is lost: %skilled by signal 9 \(SIGKILL\).*; `, victim, want[0]) + want[1]
		if errs := p.errs.String(); !regexp.MustCompile(told).MatchString(errs) || strings.Count(errs, " is lost") != 1 || !stepped.MatchString(errs) {
			t.Errorf("%s is not told once:\n%s", told, errs)
		}
		p.checkGone()
	}
}

// A server that is stopped is lost when it shows no sign of life.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	p := start(t, endless+"--np 2 --sync aggregate --servers 1 --heartbeat-timeout 5s")
	p.await(&p.out, "epoch       2/")
	if err := syscall.Kill(p.worker(2), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(exitFailed)
	p.checkSilent("rank 2", 5*time.Second)
	p.checkGone()
}

// Servers that are started by hand, in any order, serve ranks that are.
func TestServerByHand(t *testing.T) {
	t.Parallel()
	want := runSummary(t, "train mlp "+small+"--np 2 --transport mem --sync aggregate --servers 2")["params_sha256"]
	address, ticket := freeport.Address(t), ticket()
	line, file := "server --servers 2 --np 2 --rendezvous "+address, filepath.Join(t.TempDir(), "ticket")
	if err := os.WriteFile(file, []byte(strings.TrimPrefix(ticket, launch.TicketVar+"=")), 0o600); err != nil {
		t.Fatal(err)
	}
	one := start(t, line+" --index 1 --ticket-file "+file)
	ranks := []*program{
		byHand(t, "train mlp "+small+"--sync aggregate --servers 2", "0", address, ticket),
		byHand(t, "train mlp "+small+"--sync aggregate --servers 2", "1", address, ticket),
	}
	zero := start(t, line+" --index 0", ticket)
	for i, p := range ranks {
		p.checkEnd(0, fmt.Sprintf("trainer %d of 2 is up, with 2 servers\n", i), fmt.Sprintf("trainer %d of 2 is done\n", i))
	}
	zero.checkEnd(0, "server 0 of 2 is up (rank 2), for 2 trainers\n", "server 0 of 2 is done: 24 exchanges")
	one.checkEnd(0, "server 1 of 2 is done: 24 exchanges")
	if got := sha(t, ranks[0].out.String()); got != want {
		t.Errorf("sha256 %s by hand, want %s", got, want)
	}
	// A server that never comes is missed.
	address = freeport.Address(t)
	other := byHand(t, "train mlp "+small+"--sync aggregate --servers 1", "1", address, ticket) // it joins in time
	rank := byHand(t, "train mlp "+small+"--sync aggregate --servers 1 --join-timeout 5s", "0", address, ticket)
	rank.checkEnd(exitFailed, "rank 2 of 3, the last of which is a server, did not join within 5s")
	other.checkEnd(exitFailed, "rank 2 of 3, the last of which is a server, did not join")
}

// Without a launcher too, those who are left name who was killed.
func TestServerByHandKilled(t *testing.T) {
	t.Parallel()
	for victim, want := range map[int]string{1: "rank 1 is lost: its control connection ended", 2: "rank 2 is lost: server 0: its control connection ended"} {
		address, ticket := freeport.Address(t), ticket()
		line := endless + "--sync aggregate --servers 1"
		all := []*program{
			byHand(t, line, "0", address, ticket), byHand(t, line, "1", address, ticket),
			start(t, "server --index 0 --servers 1 --np 2 --rendezvous "+address, ticket),
		}
		all[0].await(&all[0].out, "epoch       2/")
		all[victim].cmd.Process.Kill()
		all[victim].wait()
		for i, p := range all {
			if i != victim {
				p.checkEnd(exitFailed, want)
			}
		}
	}
}

// `ringo run` starts servers beside any program, which need not be told.
func TestRunServers(t *testing.T) {
	t.Parallel()
	program := os.Args[0] + " train mlp " + small
	status, out, errs := command(t, "run --np 2 --servers 2 -- "+program)
	if want := runSummary(t, "train mlp "+small+"--np 2 --transport mem --collective-algorithm naive")["params_sha256"]; status != 0 || sha(t, out) != want {
		t.Errorf("status %d, stdout %q, stderr %q, want sha256 %v", status, out, errs, want)
	}
	checkHolds(t, "stderr", errs, "[server 1] server 1 of 2 is done: 24 exchanges")
	status, _, errs = command(t, "run --np 2 --servers 1 -- "+program+"--sync aggregate --servers 2")
	if status != exitFailed {
		t.Errorf("status %d", status)
	}
	checkHolds(t, "stderr", errs, "servers 2, but RINGO_SERVERS is 1")
	// A program that does not join leaves no server behind.
	begun := time.Now()
	status, _, errs = command(t, "run --np 1 --servers 1 -- true")
	if status != exitFailed || time.Since(begun) > patience {
		t.Errorf("status %d after %v", status, time.Since(begun))
	}
	checkHolds(t, "stderr", errs, "rank 0 ended early: its process ended with status 0 before it joined the job")
}

func TestServerUsage(t *testing.T) {
	for name, value := range map[string]string{
		launch.RankVar: "1", launch.WorldSizeVar: "1", launch.ServersVar: "1", launch.RoleVar: "server",
		launch.RendezvousVar: freeport.Address(t), launch.TicketVar: transport.NewTicket().String(), launch.CoordinatorVar: "launcher",
	} {
		t.Setenv(name, value)
	}
	checkRefused(t, exitUsage, "server --servers 2 --np 2 --rendezvous localhost:70 --index 0", "--index 0, but a launcher has already placed this process")
	checkRefused(t, exitFailed, "server --join-timeout 100ms", "rank 1 cannot join at")
	checkRefused(t, exitFailed, "train mlp "+small+"--np 1 --join-timeout 100ms", "this process is server 0 of its job")
}

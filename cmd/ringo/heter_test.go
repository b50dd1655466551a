package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// splitClicks is a click model whose dense layers two heter-trainers have.
const splitClicks = fewClicks + "--verbose --np 2 --servers 1 --sync bsp --heter 2 "

// Each role says that it is up, what it does, and that it is done, and the model learns what it learns in one piece.
func TestHeterRoles(t *testing.T) {
	t.Parallel()
	whole := runSummary(t, fewClicks+"--np 2 --servers 1 --sync bsp")
	status, out, errs := command(t, splitClicks+"--json -")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var split map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &split); status != 0 || err != nil {
		t.Fatalf("status %d, %v: %s", status, err, errs)
	}
	checkHolds(t, "stderr", errs, "[heter 0] heter-trainer 0 of 2 is up at 127.0.0.1:", "[heter 1] heter-trainer 1 of 2 is up at 127.0.0.1:", ", for 2 trainers, on ",
		"[heter 0]   to them    embedding", "[heter 0]   from them  the output [2] and the loss\n",
		"[heter 0] heter-trainer 0 of 2 is done: 7 steps, ", "[heter 1] heter-trainer 1 of 2 is done: 7 steps, ",
		"trainer 0 of 2 is done: pull", "[rank 1] trainer 1 of 2 is done: pull", "; send busy ", "[ps 0] parameter server 0 of 1 is done: ")
	stages := split["stages"].(map[string]any)
	for _, name := range []string{"pool", "send", "back"} {
		if busy := stages[name].(map[string]any)["busy_s"].(float64); busy <= 0 {
			t.Errorf("stage %s was busy for %v s", name, busy)
		}
	}
	for _, figure := range []string{"eval_loss", "eval_auc"} {
		a, b := whole[figure].(float64), split[figure].(float64)
		if d := a - b; d > 1e-5 || d < -1e-5 {
			t.Errorf("%s is %v, in one piece %v", figure, b, a)
		}
	}
}

// The last heter-trainer that is killed is named, and the job ends.
func TestLostHeter(t *testing.T) {
	t.Parallel()
	p := start(t, strings.Replace(splitClicks, "--heter 2", "--heter 1", 1)+"--epochs 100 --heartbeat-timeout 6s")
	p.await(&p.out, "epoch  ")
	if err := syscall.Kill(p.process("RINGO_HETER_INDEX", 0), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.checkEnd(1, "ringo: heter-trainer 0 is lost: killed by signal 9 (SIGKILL)")
}

// While another heter-trainer is left a job goes on without one that is killed or stopped, and ends in good order, with the micro-batches of
// the lost one done by the other.
func TestGoesOnWithoutHeter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sig        syscall.Signal
		sync, done string
	}{{syscall.SIGKILL, "bsp", "70 steps, "}, {syscall.SIGSTOP, "bsp", "70 steps, "}, {syscall.SIGKILL, "async", ""}} {
		p := start(t, strings.Replace(splitClicks, "--sync bsp", "--sync "+c.sync, 1)+"--epochs 10 --heartbeat-timeout 2s")
		p.await(&p.out, "epoch  2")
		if err := syscall.Kill(p.process("RINGO_HETER_INDEX", 1), c.sig); err != nil {
			t.Fatal(err)
		}
		p.checkEnd(0, "ringo: heter-trainer 1 is lost: ", "; the other processes continue", "heter-trainer 0 of 2 is done: "+c.done, "parameter server 0 of 1 is done")
	}
}

// A heter-trainer that is lost is started again, learns its part from the other one, and then stands in for that.
func TestHeterStartedAgain(t *testing.T) {
	t.Parallel()
	p := start(t, strings.Replace(splitClicks, "--epochs 1 ", "--epochs 1000000 ", 1)+"--heartbeat-timeout 2s --set job.max-restarts=1")
	for _, which := range []int{1, 0} {
		p.await(&p.out, "epoch  ")
		if err := syscall.Kill(p.process("RINGO_HETER_INDEX", which), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.await(&p.errs, fmt.Sprintf("heter-trainer %d: it has the others' parameters, and takes part from step ", which))
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.checkEnd(143, "ringo: heter-trainer 1 is lost: killed by signal 9 (SIGKILL)", "ringo: heter-trainer 0 is lost: killed by signal 9 (SIGKILL)", "; it is started again (1 of 1)")
}

// Roles that are started one by one find each other by their addresses; a heter-trainer that is started again where the first was takes part again.
func TestHeterByHand(t *testing.T) {
	t.Parallel()
	mark, servers, heters, meet := ticket(), freeport.Address(t), freeport.Address(t)+","+freeport.Address(t), freeport.Address(t)
	const soon = "--heartbeat-timeout 2s "
	heter := func(i int) *program {
		return start(t, fmt.Sprintf("heter --index %d --set model=ctr-dnn --np 2 %s--set data.table-rows=5000 --set heter.addresses=%s", i, soon, heters), mark)
	}
	line := fmt.Sprintf("%s%s--epochs 30 --servers 1 --ps-addresses %s --set heter.addresses=%s", fewClicks, soon, servers, heters)
	one, other := heter(1), heter(0)
	server := start(t, "server --index 0 --np 2 --sync bsp "+soon+"--ps-addresses "+servers, mark)
	ranks := []*program{byHand(t, line, "0", meet, mark), byHand(t, line, "1", meet, mark)}
	ranks[0].await(&ranks[0].out, "epoch  2")
	if err := other.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	other.wait()
	ranks[0].await(&ranks[0].errs, "of this trainer's micro-batches go to others")
	again := heter(0)
	again.await(&again.errs, "heter-trainer 0: it has the others' parameters, and takes part from step ")
	for _, r := range ranks {
		r.checkEnd(0)
	}
	one.checkEnd(0, "heter-trainer 1 of 2 is done: ")
	again.checkEnd(0, "heter-trainer 0 of 2 is done: ")
	server.checkEnd(0)
}

// What a heter-trainer lacks that is started by hand, or has that cannot be, is said.
func TestHeterIsRefused(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	t.Setenv(launch.TicketVar, transport.NewTicket().String())
	const usual = "heter --index 0 --np 2 --set model=ctr-dnn "
	checkRefused(t, exitUsage, "heter --index 0 --set model=ctr-dnn --set heter.addresses=h:1", "--np is missing: a heter-trainer needs the number of trainers")
	checkRefused(t, exitUsage, usual, "heter.addresses is missing: where all heter-trainers listen")
	checkRefused(t, exitUsage, "heter --index 0 --np 2 --set heter.addresses=h:1", "model is missing")
	checkRefused(t, exitUsage, "heter --index 1 --np 2 --set model=ctr-dnn --set heter.addresses=h:1", "--index 1: want 0 to 0, the job has 1 heter-trainers")
	checkRefused(t, exitUsage, usual+"--set heter.addresses=h", `--set heter.addresses "h": `)
	checkRefused(t, exitUsage, usual+"--set heter.addresses=h:1,h:2 --set heter.count=1", "--set heter.addresses has 2 addresses, but --heter is 1")
	checkRefused(t, exitUsage, usual+"--sync aggregate --set heter.addresses=h:1", "--sync aggregate: heter-trainers need parameter servers: use the same value as the servers (bsp, ssp, async, geo)")
	checkRefused(t, exitFailed, usual+"--set heter.addresses="+busy.Addr().String(), "heter.addresses has the place of heter-trainer 0, where it cannot listen: listening on "+busy.Addr().String())
	checkRefused(t, exitUsage, "train ctr-dnn --data synthetic --np 2 --servers 1 --set heter.addresses=h:1", "--set heter.addresses is for ranks started by hand: give --rank too")
}

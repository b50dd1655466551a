package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
)

// flags is a command line of mlp with some flags at fault.
func flags(more ...string) func(*trap) []string {
	return func(*trap) []string {
		return with([]string{"train", "mlp", "--data", "synthetic", "--train-limit", "160", "--eval-limit", "32", "--epochs", "1", "--threads", "1"}, more...)
	}
}

var hostileFlags = []hostile{
	{name: "no ranks", blame: []string{"--np"}, make: flags("--np", "0")},
	{name: "ranks below 0", blame: []string{"--np"}, make: flags("--np", "-3")},
	{name: "a batch of 0", blame: []string{"batch"}, make: flags("--batch", "0"), mayTrain: []string{"batch 64"}},
	{name: "a batch beyond memory", blame: []string{"batch"}, make: flags("--batch", "9000000000000000000")},
	{name: "a rate that is no number", blame: []string{"--lr", "learning rate"}, make: flags("--lr", "NaN")},
	{name: "a rate below 0", blame: []string{"--lr", "learning rate"}, make: flags("--lr", "-1")},
	{name: "a strategy that is none", blame: []string{"nosuch"}, make: flags("--strategy", "nosuch")},
	{name: "a share above 1", blame: []string{"spars"}, make: flags("--strategy", "topk", "--spars", "2")},
	{name: "an unknown flag", blame: []string{"--batchsize"}, make: flags("--batchsize", "5")},
	{name: "an unknown model", blame: []string{"mistake"}, make: func(*trap) []string { return []string{"train", "mistake", "--data", "synthetic"} }},
	{name: "epochs below 0", blame: []string{"epochs"}, make: flags("--epochs", "-1")},
	{name: "a size of no unit", blame: []string{"1XB"}, make: flags("--sync", "bsp", "--ps-memory", "1XB")},
	{name: "a sign of life every nanosecond", blame: []string{"dead-after", "heartbeat"}, make: flags("--np", "2", "--heartbeat-timeout", "1ns")},
	{name: "a seed below 0", blame: []string{"--seed"}, make: flags("--seed", "-1")},
	{name: "a port that is none", blame: []string{"99999"}, make: flags("--np", "2", "--set", "network.port-range=99998-99999")},
	{name: "an address that is none", blame: []string{"http"}, make: flags("--http", "a:b:c")},
}

// ticketVar is the environment of a rank that is started by hand.
const ticketVar = "RINGO_TICKET=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// taken returns a port of loopback at which another listens.
func (t *trap) taken() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.err = err
		return ""
	}
	t.undo = append(t.undo, func() { l.Close() })
	return l.Addr().String()
}

var hostilePlaces = []hostile{
	{name: "the rendezvous's port is taken", env: []string{ticketVar}, blame: []string{"127.0.0.1:"}, make: func(t *trap) []string {
		return flags("--np", "2", "--rank", "0", "--rendezvous", t.taken(), "--join-timeout", "3s")(t)
	}},
	{name: "nobody is at the rendezvous", env: []string{ticketVar}, blame: []string{"127.0.0.1:1"}, make: flags("--np", "2", "--rank", "1", "--rendezvous", "127.0.0.1:1", "--join-timeout", "2s")},
	{name: "a ticket that is none", env: []string{"RINGO_TICKET=zebra"}, blame: []string{"RINGO_TICKET"}, make: flags("--np", "2", "--rank", "1", "--rendezvous", "127.0.0.1:1")},
	{name: "the administration's port is taken", blame: []string{"127.0.0.1:"}, make: func(t *trap) []string {
		return flags("--sync", "bsp", "--http", t.taken())(t)
	}},
	{name: "checkpoints into a file", blame: []string{"/taken"}, make: func(t *trap) []string { return flags("--checkpoint", t.write("taken", nil))(t) }},
	{name: "checkpoints where nothing may be written", blame: []string{"/proc/nowhere"}, make: flags("--checkpoint", "/proc/nowhere")},
	{name: "figures into a folder that is not there", blame: []string{"nowhere"}, make: flags("--json", "/nowhere/at/all")},
	{name: "figures onto a full device", blame: []string{"/dev/full"}, make: flags("--json", "/dev/full")},
	{name: "a timeline onto a full device", blame: []string{"/dev/full"}, make: flags("--trace", "/dev/full")},
	{name: "a profile of garbage", blame: []string{"prof"}, make: func(t *trap) []string { return flags("--cost-profile", t.write("prof", t.bytes(300)))(t) }},
	{name: "checkpoints of garbage", blame: []string{"step-000000001.ringo"}, make: func(t *trap) []string {
		t.write("saved/step-000000001.ringo", t.bytes(3000))
		return flags("--checkpoint", t.dir+"/saved", "--resume")(t)
	}},
	{name: "checkpoints onto a full disk, which is given room then", mayTrain: noSpace, relief: noSpace[0], skip: notRoot, make: func(t *trap) []string {
		return flags("--checkpoint", t.disk("256k"))(t)
	}},
	// One server: several that fail are several faults, each with a line.
	{name: "a server's logs onto a full disk", blame: noSpace, skip: notRoot, make: func(t *trap) []string {
		return with(tables, "--servers", "1", "--ps-durability", "wal", "--ps-dir", t.disk("1m"))
	}},
	{name: "started by mpirun", env: []string{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1"}, blame: []string{"OMPI_"}, make: flags("--np", "1")},
	{name: "started by srun", env: []string{"SLURM_NTASKS=4", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_ID=0"}, blame: []string{"SLURM_"}, make: flags("--np", "1")},
	{name: "started by torchrun", env: []string{"WORLD_SIZE=2", "RANK=1"}, blame: []string{"WORLD_SIZE"}, make: flags("--np", "1")},
}

var noSpace = []string{"no space left"}

// disk mounts a file system of a given size and returns its folder.
func (t *trap) disk(size string) string {
	dir := t.dir + "/disk"
	if t.err = os.Mkdir(dir, 0o755); t.err != nil {
		return dir
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "chaos", dir).CombinedOutput(); err != nil {
		t.err = fmt.Errorf("mounting a small disk: %w: %s", err, out)
		return dir
	}
	t.undo = append(t.undo, func() { _ = exec.Command("umount", "-l", dir).Run() })
	return dir
}

// grow gives the mounted disk room.
func (t *trap) grow() error {
	out, err := exec.Command("mount", "-o", "remount,size=64m", t.dir+"/disk").CombinedOutput()
	if err != nil {
		return fmt.Errorf("giving the small disk room: %w: %s", err, out)
	}
	return nil
}

func notRoot() string {
	if os.Geteuid() != 0 {
		return "only root may mount a small disk"
	}
	return ""
}

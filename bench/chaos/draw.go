package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// dice are what one case is drawn from: a function of seed, part and number alone, so
// that a case repeats whatever ran before it.
func dice(seed uint64, part string, number int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", part, number)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// pick takes one of several.
func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// model is a model with data so small that an epoch takes a moment.
type model struct{ Name, Batch, Train, Eval string }

var (
	clicks = model{"ctr-dnn", "16", "320", "64"}
	models = []model{{"mnist", "8", "160", "64"}, {"mlp", "16", "640", "64"}, {"cifar-resnet20", "4", "48", "16"}, {"gpt-mini", "2", "48", "8"}, clicks}
)

// moment is when in its life a job is struck.
type moment string

const (
	joining    moment = "join"
	firstStep  moment = "first step"
	midEpoch   moment = "mid-epoch"
	evaluation moment = "evaluation"
	atSaving   moment = "checkpoint"
	atEnd      moment = "end"
)

// strikeCase is one job of which one process is killed or stopped.
type strikeCase struct {
	Model      model
	Ranks      int
	Servers    int    // 0: allreduce
	Mode       string // allreduce, aggregate, bsp, async, ssp, geo
	Transport  string
	Strategy   string
	Accumulate int
	GoOn       bool // --ps-failure-policy continue
	Restarts   bool // --ps-durability wal --set job.max-restarts=3
	Stop       bool // SIGSTOP instead of SIGKILL
	Victim     victim
	Moment     moment
	Delay      time.Duration // after the moment has come
	Epochs     int           // 0: so many that only the fault ends the job
}

// drawRank draws a fault of a rank.
func drawRank(rng *rand.Rand) strikeCase {
	c := strikeCase{Mode: pick(rng, "allreduce", "allreduce", "allreduce", "aggregate", "bsp", "async", "ssp", "geo"), Stop: rng.IntN(2) == 0}
	c.drawJob(rng)
	c.GoOn = c.tables() && rng.IntN(3) == 0
	c.Victim = victim{Number: rng.IntN(c.Ranks), Ranks: c.Ranks}
	c.Moment = pick(rng, joining, firstStep, midEpoch, midEpoch, evaluation, atSaving, atEnd)
	c.Delay = drawDelay(rng, c.Moment)
	if c.GoOn { // such jobs have no checkpoints of the whole, and end by themselves
		c.Epochs = 40
		c.Moment = pick(rng, joining, firstStep, midEpoch, midEpoch)
		c.Delay = time.Duration(rng.IntN(300)) * time.Millisecond
	}
	if c.Moment == atEnd {
		c.Epochs = 3
	}
	return c
}

// serverStops of serverCases are stops, the others kills.
const serverCases, serverStops = 130, 30

// drawServer draws a fault of a server. Of the first serverCases numbers serverStops are stops.
func drawServer(rng *rand.Rand, number int) strikeCase {
	c := strikeCase{Mode: pick(rng, "aggregate", "bsp", "bsp", "async", "ssp", "geo"), Stop: number*serverStops%serverCases < serverStops}
	c.drawJob(rng)
	c.Victim = victim{Server: true, Number: rng.IntN(c.Servers), Ranks: c.Ranks}
	c.Restarts = c.tables() && rng.IntN(2) == 0
	c.Moment = pick(rng, firstStep, midEpoch, midEpoch, evaluation, atSaving)
	if c.Restarts {
		c.Epochs = 25
		c.Moment = pick(rng, firstStep, midEpoch, midEpoch)
	}
	c.Delay = drawDelay(rng, c.Moment)
	return c
}

// drawJob draws all but the fault.
func (c *strikeCase) drawJob(rng *rand.Rand) {
	c.Ranks, c.Accumulate, c.Strategy = 2+rng.IntN(3), 1, "fp32"
	c.Transport = pick(rng, "shm", "tcp")
	c.Model = pick(rng, models...)
	if c.Mode != "allreduce" {
		c.Servers = 1 + rng.IntN(3)
	}
	if c.tables() {
		c.Model = pick(rng, clicks, clicks, clicks, models[0], models[1])
		return
	}
	c.Strategy = pick(rng, "fp32", "fp32", "topk", "dlgs", "int8", "partialUpdate")
	if c.Mode == "aggregate" && c.Strategy == "partialUpdate" { // it averages among the ranks, and has nothing for servers
		c.Strategy = "fp16"
	}
	c.Accumulate = pick(rng, 1, 1, 2)
}

// tables tells whether the servers keep the parameters.
func (c *strikeCase) tables() bool { return c.Mode != "allreduce" && c.Mode != "aggregate" }

// drawDelay draws how long after its moment the fault comes.
func drawDelay(rng *rand.Rand, m moment) time.Duration {
	most := map[moment]int{joining: 40, firstStep: 30, midEpoch: 400, evaluation: 100, atSaving: 50, atEnd: 8}[m]
	return time.Duration(rng.IntN(most*1000)) * time.Microsecond
}

// args is the command line of the job. Files go to dir.
func (c *strikeCase) args(dir string) []string {
	epochs := c.Epochs
	if epochs == 0 {
		epochs = 1_000_000
	}
	train, eval := c.Model.Train, c.Model.Eval
	if c.Moment == evaluation { // most of the job evaluates
		train, eval = strconv.Itoa(2*c.Ranks*c.batch()*c.Accumulate), train
	}
	out := []string{
		"train", c.Model.Name, "--data", "synthetic", "--batch", c.Model.Batch, "--train-limit", train, "--eval-limit", eval,
		"--np", strconv.Itoa(c.Ranks), "--threads", "1", "--epochs", strconv.Itoa(epochs), "--strategy", c.Strategy,
		"--accumulate", strconv.Itoa(c.Accumulate), "--heartbeat-timeout", deadAfter.String(), "--join-timeout", joinTimeout.String(),
	}
	if c.Model == clicks {
		out = append(out, "--set", "data.table-rows=1000")
	}
	if c.Mode == "allreduce" || c.Mode == "aggregate" {
		out = append(out, "--transport", c.Transport)
	}
	if c.Mode != "allreduce" {
		out = append(out, "--servers", strconv.Itoa(c.Servers), "--sync", c.Mode)
	}
	if c.Mode == "ssp" {
		out = append(out, "--staleness", "2")
	}
	if c.GoOn {
		out = append(out, "--ps-failure-policy", "continue")
	}
	if c.Restarts {
		out = append(out, "--ps-durability", "wal", "--set", "job.max-restarts=3", "--ps-dir", dir+"/servers")
	}
	if c.Moment == atSaving {
		out = append(out, "--checkpoint", dir+"/saved", "--checkpoint-every", "2")
	}
	return out
}

func (c *strikeCase) batch() int {
	n, _ := strconv.Atoi(c.Model.Batch)
	return n
}

// What the jobs take for a sign of death, how long their ranks wait for each other at the start, and by when a job with
// a fault must have ended: a rank that was stopped is found after deadAfter, is waited for as long again where it may
// come back, and machines under load pause processes for seconds.
const (
	deadAfter   = 3 * time.Second
	joinTimeout = 8 * time.Second
	strikeLimit = 2*deadAfter + joinTimeout + 20*time.Second
)

func (c strikeCase) String() string {
	how := "kill"
	if c.Stop {
		how = "stop"
	}
	return fmt.Sprintf("%s %v at %s + %v of: ringo %s", how, c.Victim, c.Moment, c.Delay, strings.Join(c.args("DIR"), " "))
}

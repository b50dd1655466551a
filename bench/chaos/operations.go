package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cluster"
)

// operations are the operations of a group, which a rank repeats until one fails.
var operations = map[string]func(g *collective.Group, x []float32, turn int) error{
	"allreduce": func(g *collective.Group, x []float32, _ int) error {
		return collective.AllReduce(g, x, collective.Mean)
	},
	"broadcast": func(g *collective.Group, x []float32, turn int) error {
		return collective.Broadcast(g, x, turn%g.Size())
	},
	"allgather": func(g *collective.Group, x []float32, _ int) error {
		n := len(x) / g.Size()
		return collective.AllGather(g, x[:n*g.Size()], x[g.Rank()*n:][:n])
	},
	"allgatherv": func(g *collective.Group, x []float32, turn int) error {
		counts := make([]int, g.Size())
		counts[turn%g.Size()] = len(x)
		return collective.AllGatherV(g, x, x[:counts[g.Rank()]], counts)
	},
	"reduce": func(g *collective.Group, x []float32, turn int) error {
		return collective.Reduce(g, x, collective.Max, turn%g.Size())
	},
	"reduce-scatter": func(g *collective.Group, x []float32, _ int) error {
		n := len(x) / g.Size()
		return collective.ReduceScatter(g, x[g.Rank()*n:][:n], x[:n*g.Size()], collective.Sum)
	},
	"scatter and gather": func(g *collective.Group, x []float32, turn int) error {
		n, root := len(x)/g.Size(), turn%g.Size()
		if err := collective.Scatter(g, x[g.Rank()*n:][:n], x[:n*g.Size()], root); err != nil {
			return err
		}
		return collective.Gather(g, x[:n*g.Size()], x[g.Rank()*n:][:n], root)
	},
	"all-to-all": func(g *collective.Group, x []float32, _ int) error {
		n := len(x) / 2 / g.Size() * g.Size()
		return collective.AllToAll(g, x[:n], x[n:][:n])
	},
	"send and receive": func(g *collective.Group, x []float32, _ int) error {
		n := len(x) / 2
		out := collective.StartSend(g, x[:n], (g.Rank()+1)%g.Size())
		err := collective.Receive(g, x[n:], (g.Rank()+g.Size()-1)%g.Size())
		return errors.Join(out.Wait(), err)
	},
	"barrier": func(g *collective.Group, _ []float32, _ int) error { return collective.Barrier(g) },
	"in flight": func(g *collective.Group, x []float32, _ int) error {
		var works []*collective.Work
		for n := len(x) / 4; len(x) >= n && n > 0 && len(works) < 4; x = x[n:] {
			works = append(works, collective.StartAllReduce(g, x[:n], collective.Max))
		}
		works = append(works, collective.StartBarrier(g))
		var errs []error
		for _, w := range slices.Backward(works) {
			errs = append(errs, w.Wait())
		}
		return errors.Join(errs...)
	},
}

// operationCase is a job of this program's ranks, without a launcher, of which one fails in the
// middle of an operation.
type operationCase struct {
	Op, Transport, Algorithm string
	Floats, Ranks, Victim    int
	Fault                    string        // kill, stop; cut: its link to the switch, without a word to either end
	Delay                    time.Duration // from when all ranks are at work
}

// drawOperation draws a case.
func drawOperation(rng *rand.Rand) *operationCase {
	c := &operationCase{
		Op: pick(rng, slices.Sorted(maps.Keys(operations))...), Transport: pick(rng, ringo.TransportTCP, ringo.TransportSHM), Ranks: 2 + rng.IntN(3),
		Fault: pick(rng, killFault, stopFault, cutFault), Floats: pick(rng, 0, 2, 100, 10_000, 1_000_000), Delay: time.Duration(rng.IntN(60)) * time.Millisecond,
	}
	c.Victim = rng.IntN(c.Ranks)
	if c.Fault == cutFault {
		c.Transport = ringo.TransportTCP // hosts share no memory
	}
	if c.Op == "allreduce" {
		c.Algorithm = pick(rng, slices.DeleteFunc(append(collective.Algorithms(), ""), func(a string) bool {
			return a == collective.Direct && c.Transport == ringo.TransportTCP || a == collective.Exchange && c.Ranks > 2
		})...)
	}
	return c
}

func (c *operationCase) text() string {
	b, _ := json.Marshal(c) // has only numbers and texts
	return string(b)
}

func (c *operationCase) String() string { return "a program of one operation: " + c.text() }

// operationWord, as the first argument, makes this program such a rank. Behind it are an
// operationCase as JSON, the rank, and the address where ranks meet.
const operationWord = "operation"

// operate is such a rank.
func operate(args []string) error {
	var c operationCase
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	rank, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	return ringo.Run(context.Background(), ringo.Config{
		Size: c.Ranks, Rank: rank, Rendezvous: args[2], Times: cluster.Times{DeadAfter: deadAfter}, Transport: c.Transport,
		Collective: collective.Config{Algorithm: c.Algorithm, Timeout: time.Minute},
	}, func(job *ringo.Job) error {
		x := make([]float32, c.Floats)
		for turn := 0; ; turn++ {
			if turn == 3 {
				fmt.Fprintln(os.Stdout, "WORKING")
			}
			err := operations[c.Op](job.Group(), x, turn)
			if err == nil && turn%8 == 0 { // roots must not run ahead of the others for ever
				err = collective.Barrier(job.Group())
			}
			if err != nil {
				return err
			}
		}
	})
}

var (
	working = regexp.MustCompile(`^WORKING$`)
	// namedOp is how an error names the operation and the message at fault.
	namedOp = regexp.MustCompile(`\b(all\w+|reduce\w*|broadcast|gather|scatter|send|receive|barrier) \d+ on rank \d+`)
)

// run starts the ranks, strikes one, and wants each other to end by its name and that of the
// operation.
func (c *operationCase) run(_ *setup, dir string) verdict {
	segments := sharedFiles()
	at, err := freeAddress()
	if err != nil {
		return broken(err)
	}
	var hosts []host
	if c.Fault == cutFault {
		made, remove, err := newHosts(c.Ranks)
		defer remove()
		if err != nil {
			return verdict{Skipped: err.Error()}
		}
		hosts, at = made, net.JoinHostPort(made[0].address, "7000")
	}
	var ranks []*job
	defer func() {
		for _, j := range ranks {
			j.end()
		}
	}()
	for rank := range c.Ranks {
		j, err := c.start(dir, rank, at, hosts)
		if err != nil {
			return broken(err)
		}
		ranks = append(ranks, j)
	}
	for rank, j := range ranks {
		if !j.await(startLimit, func() bool { return j.says(working) }) {
			return broken(fmt.Errorf("rank %d does not begin: %s", rank, lastLine(j.errs.String())))
		}
	}
	time.Sleep(c.Delay)
	if err := c.strike(ranks[c.Victim], hosts); err != nil {
		return broken(err)
	}
	return c.judge(ranks, time.Now(), segments)
}

// start starts a rank, on its host where there are some.
func (c *operationCase) start(dir string, rank int, at string, hosts []host) (*job, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := []string{self, operationWord, c.text(), strconv.Itoa(rank), at}
	if hosts != nil {
		argv = append(hosts[rank].enter(), argv...)
	}
	return (&setup{Ringo: argv[0]}).start(dir, argv[1:], "RINGO_TICKET="+strings.Repeat("5a", 32))
}

func (c *operationCase) strike(victim *job, hosts []host) error {
	switch c.Fault {
	case killFault:
		return victim.cmd.Process.Kill()
	case stopFault:
		return victim.cmd.Process.Signal(syscall.SIGSTOP)
	}
	return hosts[c.Victim].cut()
}

// judge judges the ranks that were not struck, and the memory that ranks share.
func (c *operationCase) judge(ranks []*job, struck time.Time, segments []string) (v verdict) {
	who := victim{Number: c.Victim, Ranks: c.Ranks}
	for rank, j := range ranks {
		if rank == c.Victim {
			continue
		}
		e := j.finish(strikeLimit)
		e.Named = j.named(who, struck)
		one := judgeLost(who, e)
		if !namedOp.MatchString(e.Errs) {
			one.wrong("it does not name the operation: %s", lastLine(e.Errs))
		}
		for _, w := range one.Wrong {
			v.wrong("rank %d: %s", rank, w)
		}
		v.Named = max(v.Named, one.Named)
	}
	ranks[c.Victim].end()
	left := newOf(segments, sharedFiles())
	for end := time.Now().Add(leftLimit); len(left) > 0 && time.Now().Before(end); left = newOf(segments, sharedFiles()) {
		time.Sleep(20 * time.Millisecond) // another case's may be there for a moment
	}
	if len(left) > 0 {
		v.wrong("shared memory is left: %v", left)
	}
	return v
}

// sharedFiles are the named segments of shared memory of this host that ringo may have made.
func sharedFiles() (out []string) {
	entries, _ := os.ReadDir("/dev/shm") // other systems have none
	for _, e := range entries {
		if !e.IsDir() && strings.Contains(e.Name(), "ringo") { // folders are of jobs that are observed
			out = append(out, e.Name())
		}
	}
	return out
}

func newOf(before, after []string) []string {
	return slices.DeleteFunc(after, func(s string) bool { return slices.Contains(before, s) })
}

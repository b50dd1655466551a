package ringo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/cluster"
	"github.com/ringo-ml/ringo/internal/freeport"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/transport/shm"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/transport"
)

// The campaign of faults: jobs of real processes, in which one rank is killed,
// stopped or cut off in the middle of an operation. More than the sample:
//
//	go test -run TestFaults -timeout 1h . -faults.cases 100 [-faults.seed 7]
var (
	faultCases = flag.Int("faults.cases", 6, "how many cases TestFaults draws")
	faultSeed  = flag.Uint64("faults.seed", 1, "from which seed it draws them")
	faultRank  = flag.String("faults.rank", "", "of one case and rank, as JSON: what TestFaultRank, in a process of its own, is to do")
)

// What the ranks of the campaign take for a sign of death, by when the survivors must have named the rank, and
// by when all must have ended. Machines under load pause processes for seconds.
const (
	faultBeat  = 100 * time.Millisecond
	faultDead  = 5 * time.Second
	faultNamed = faultDead + 15*time.Second
	faultLimit = faultNamed + 20*time.Second
)

// faultCase is one job and its fault.
type faultCase struct {
	Op, Transport, Algorithm string
	Floats, Size             int
	Victim                   int
	Fault                    string // kill, stop, cut
	DelayMillis              int    // from when all ranks are at work to the fault
}

// faultyRank is what one process is told.
type faultyRank struct {
	faultCase
	Rank       int
	Rendezvous string
}

// faultEnd is what a survivor reports of its end.
type faultEnd struct {
	Lost int       // the rank that it names; -1: none
	Text string    // its error
	At   time.Time // when it had it

	Epoch, Step int   // where in the run, of train's loop
	Counted     int64 // the step that distopt has counted; -1: none
	Bucket      string
}

// trains is the operation that is train's whole loop.
const trains = "train"

// faultOps are the operations, endless until one fails, beside trains.
var faultOps = map[string]func(g *collective.Group, x []float32, turn int) error{
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

// drawFault draws a case. Links can be cut only between network namespaces.
func drawFault(rng *rand.Rand, namespaces bool) faultCase {
	ops := append(slices.Sorted(maps.Keys(faultOps)), trains, trains, trains)
	faults := []string{"kill", "stop"}
	if namespaces {
		faults = append(faults, "cut")
	}
	c := faultCase{
		Op: ops[rng.IntN(len(ops))], Size: 2 + rng.IntN(3), Fault: faults[rng.IntN(len(faults))],
		Floats: []int{0, 2, 100, 10_000, 1_000_000}[rng.IntN(5)], DelayMillis: rng.IntN(60),
		Transport: []string{ringo.TransportTCP, ringo.TransportSHM}[rng.IntN(2)],
	}
	c.Victim = rng.IntN(c.Size)
	if c.Fault == "cut" || !shm.Supported {
		c.Transport = ringo.TransportTCP // hosts share no memory
	}
	names := append(collective.Algorithms(), "")
	if c.Transport == ringo.TransportTCP {
		names = slices.DeleteFunc(names, func(a string) bool { return a == collective.Direct })
	}
	if c.Size > 2 {
		names = slices.DeleteFunc(names, func(a string) bool { return a == collective.Exchange })
	}
	if c.Op == "allreduce" {
		c.Algorithm = names[rng.IntN(len(names))]
	}
	return c
}

// Whatever the operation, the rank and the fault, every survivor names the right
// rank in time and leaves nothing behind.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	namespaces := canMakeNamespaces(t)
	rng := rand.New(rand.NewPCG(*faultSeed, 4))
	segments := sharedFiles()
	t.Run("cases", func(t *testing.T) {
		for i := range *faultCases {
			c := drawFault(rng, namespaces)
			if i == 0 { // the sample has one, too
				c.Op, c.Algorithm = trains, ""
			}
			t.Run(fmt.Sprintf("%d %+v", i, c), func(t *testing.T) {
				t.Parallel()
				runFault(t, c)
			})
		}
	})
	if left := newOf(segments, sharedFiles()); len(left) > 0 {
		t.Errorf("shared memory is left: %v", left)
	}
}

func runFault(t *testing.T, c faultCase) {
	var hosts []host
	if c.Fault == "cut" {
		hosts = newHosts(t, c.Size)
	}
	ranks := startFaulty(t, c, hosts)
	for _, p := range ranks {
		p.awaitWork(t)
	}
	time.Sleep(time.Duration(c.DelayMillis) * time.Millisecond)
	var err error
	switch victim := ranks[c.Victim].cmd.Process; c.Fault {
	case "kill":
		err = victim.Kill()
	case "stop":
		err = victim.Signal(syscall.SIGSTOP)
	case "cut":
		err = hosts[c.Victim].cut()
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for rank, p := range ranks {
		if rank != c.Victim {
			p.checkNames(t, c, began)
		}
	}
	_ = ranks[c.Victim].cmd.Process.Kill()
	<-ranks[c.Victim].done
}

// faultyProcess is a rank.
type faultyProcess struct {
	rank    int
	cmd     *exec.Cmd
	out     bytes.Buffer // to be read after done
	working chan struct{}
	done    chan struct{}
}

func startFaulty(t *testing.T, c faultCase, hosts []host) []*faultyProcess {
	t.Helper()
	address, ticket := freeport.Address(t), transport.NewTicket().String()
	if hosts != nil {
		address = net.JoinHostPort(hosts[0].address, "7000")
	}
	ranks := make([]*faultyProcess, c.Size)
	for rank := range ranks {
		what, err := json.Marshal(faultyRank{c, rank, address})
		if err != nil {
			t.Fatal(err)
		}
		argv := []string{os.Args[0], "-test.run=^TestFaultRank$", "-test.timeout=2m", "-faults.rank=" + string(what)}
		if hosts != nil {
			argv = append(hosts[rank].enter(), argv...)
		}
		ranks[rank] = startFaultyProcess(t, rank, argv, ticket)
	}
	return ranks
}

func startFaultyProcess(t *testing.T, rank int, argv []string, ticket string) *faultyProcess {
	t.Helper()
	p := &faultyProcess{rank: rank, working: make(chan struct{}), done: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(os.Environ(), launch.TicketVar+"="+ticket)
	pipe, err := p.cmd.StdoutPipe()
	p.cmd.Stderr = p.cmd.Stdout
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		buf := make([]byte, 4096)
		for waiting := true; ; {
			n, err := pipe.Read(buf)
			p.out.Write(buf[:n])
			if waiting && strings.Contains(p.out.String(), "WORKING") {
				close(p.working)
				waiting = false
			}
			if err != nil {
				break
			}
		}
		_ = p.cmd.Wait() // its output says more
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *faultyProcess) awaitWork(t *testing.T) {
	t.Helper()
	select {
	case <-p.working:
	case <-p.done:
		t.Fatalf("rank %d ended before its fault:\n%s", p.rank, &p.out)
	case <-time.After(patience):
		t.Fatalf("rank %d does not begin", p.rank)
	}
}

// namedOp is how an error names the operation and the message at fault.
var namedOp = regexp.MustCompile(`\b(sharded update|all\w+|reduce\w*|broadcast|gather|scatter|send|receive|barrier) \d+ on rank \d+`)

// checkNames wants a survivor to end in time, by the victim's name.
func (p *faultyProcess) checkNames(t *testing.T, c faultCase, began time.Time) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Until(began.Add(faultLimit))):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // the stacks are worth seeing
		<-p.done
		t.Fatalf("rank %d did not end in %v:\n%s", p.rank, faultLimit, &p.out)
	}
	ended := time.Since(began)
	var end faultEnd
	_, after, ok := strings.Cut(p.out.String(), "END ")
	if !ok || json.NewDecoder(strings.NewReader(after)).Decode(&end) != nil || !p.cmd.ProcessState.Success() {
		t.Fatalf("rank %d:\n%s", p.rank, &p.out)
	}
	named := end.At.Sub(began)
	t.Logf("rank %d named after %v, ended after %v: %s", p.rank, named.Round(time.Millisecond), ended.Round(time.Millisecond), end.Text)
	if end.Lost != c.Victim || !strings.Contains(end.Text, fmt.Sprintf("rank %d is lost", c.Victim)) || !namedOp.MatchString(end.Text) {
		t.Errorf("rank %d names rank %d, want %d, and the operation: %s", p.rank, end.Lost, c.Victim, end.Text)
	}
	if c.Op == trains && !end.located() {
		t.Errorf("rank %d does not say where in its run that was: %+v", p.rank, end)
	}
	if named > faultNamed {
		t.Errorf("rank %d named the lost rank after %v, want %v at most", p.rank, named, faultNamed)
	}
}

// located tells whether an end is in a step of an epoch, and in a bucket where distopt was at work, as the text says.
func (e *faultEnd) located() bool {
	text := fmt.Sprintf("while evaluating after step %d of epoch %d", e.Step, e.Epoch)
	if e.Counted >= 0 {
		text = fmt.Sprintf("in step %d of epoch %d, %s", e.Step, e.Epoch, e.Bucket)
	}
	return e.Epoch > 0 && e.Step > 0 && (e.Counted < 0 || e.Bucket != "") && strings.Contains(e.Text, text)
}

// TestFaultRank is a rank of the campaign, in a process of its own.
func TestFaultRank(t *testing.T) {
	if *faultRank == "" {
		t.Skip("it is for the processes of TestFaults")
	}
	leakcheck.Check(t)
	var r faultyRank
	if err := json.Unmarshal([]byte(*faultRank), &r); err != nil {
		t.Fatal(err)
	}
	end := faultEnd{Lost: -1, Counted: -1}
	err := ringo.Run(context.Background(), ringo.Config{
		Size: r.Size, Rank: r.Rank, Rendezvous: r.Rendezvous, Times: cluster.Times{Heartbeat: faultBeat, DeadAfter: faultDead}, Transport: r.Transport,
		Collective: collective.Config{Algorithm: r.Algorithm, Timeout: time.Minute},
	}, func(job *ringo.Job) error {
		err := workOn(job, r.faultCase)
		err = job.Err(err)
		end.At = time.Now()
		return err
	})
	end.Text = fmt.Sprint(err)
	var lost *transport.LostError
	if errors.As(err, &lost) {
		end.Lost = lost.Rank
	}
	var at *train.StepError
	if errors.As(err, &at) {
		end.Epoch, end.Step = at.Epoch, at.Step
	}
	var in *distopt.Error
	if errors.As(err, &in) {
		end.Counted, end.Bucket = in.Step, in.Place().Bucket
	}
	line, _ := json.Marshal(end)
	fmt.Fprintf(os.Stdout, "END %s\n", line)
}

// workOn repeats an operation until it fails. Roots must not run ahead of the
// others for ever.
func workOn(job *ringo.Job, c faultCase) error {
	if c.Op == trains {
		mlp, err := models.Lookup("mlp")
		if err != nil {
			return err
		}
		cfg := train.Defaults(mlp, data.Synthetic)
		cfg.Observer = new(worker)
		cfg.TrainLimit, cfg.EvalLimit, cfg.Epochs, cfg.Batch, cfg.Threads = 640, 64, 1e6, 16, 1
		_, err = train.Run(job.Context(), job, mlp, nil, cfg)
		return err
	}
	x := make([]float32, c.Floats)
	for turn := 0; ; turn++ {
		if turn == 3 {
			fmt.Fprintln(os.Stdout, "WORKING")
		}
		err := faultOps[c.Op](job.Group(), x, turn)
		if err == nil && turn%8 == 0 {
			err = collective.Barrier(job.Group())
		}
		if err != nil {
			return err
		}
	}
}

// worker is an observer that says when training is under way.
type worker struct{ said bool }

func (*worker) Start(train.Info)    {}
func (*worker) Epoch(train.Epoch)   {}
func (*worker) Remark(train.Remark) {}
func (w *worker) Step(train.Step)   {}

func (w *worker) Progress(p train.Progress) {
	if !w.said && p.Done == 3 {
		w.said = true
		fmt.Fprintln(os.Stdout, "WORKING")
	}
}

// sharedFiles are the named segments of shared memory of this host.
func sharedFiles() []string {
	entries, _ := os.ReadDir("/dev/shm") // other systems have none
	var out []string
	for _, e := range entries {
		if !e.IsDir() { // folders are of jobs that tell what they are doing: others' tests start some meanwhile
			out = append(out, e.Name())
		}
	}
	return out
}

func newOf(before, after []string) []string {
	return slices.DeleteFunc(after, func(s string) bool { return slices.Contains(before, s) || !strings.Contains(s, "ringo") })
}

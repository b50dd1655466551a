// Command pods measures how soon the pods of a job meet after the last of them has started:
//
//	go run ./bench/pods --pods 64 --rounds 5
//	go run ./bench/pods --pods 64 --rounds 5 --tls
//
// Each pod is a process with a resolver of its own, which learns late under which address the first pod is known: each at another time, in any order. Pods
// start in any order, too, some milliseconds apart. A pod has met the others when it is connected to each of them and has
// summed a value with all. All of them share this machine's processors.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/dnstest"
	"github.com/ringo-ml/ringo/internal/launch"
	"github.com/ringo-ml/ringo/transport"
)

// options are what a person says, and, of a pod, what it is told.
type options struct {
	Pods, Rounds  int
	TLS           bool
	Within        time.Duration
	StartInterval time.Duration
	Seed          uint64

	pod                  int
	resolver, rendezvous string
}

func main() {
	o := options{}
	flag.IntVar(&o.Pods, "pods", 64, "how `many` pods")
	flag.IntVar(&o.Rounds, "rounds", 5, "how `often`")
	flag.BoolVar(&o.TLS, "tls", false, "encrypt all connections")
	flag.DurationVar(&o.Within, "within", 0, "fail where the median of the rounds is longer, 0: never")
	flag.DurationVar(&o.StartInterval, "apart", 20*time.Millisecond, "time between two starts")
	flag.Uint64Var(&o.Seed, "seed", 1, "of the order in which pods start and names appear")
	flag.IntVar(&o.pod, "pod", -1, "be this pod")
	flag.StringVar(&o.resolver, "resolver", "", "HOST:PORT of the pod's server of names")
	flag.StringVar(&o.rendezvous, "rendezvous", "", "HOST:PORT of the first pod")
	flag.Parse()
	do := o.measure
	if o.pod >= 0 {
		do = o.be
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "pods:", err)
		os.Exit(1)
	}
}

// be is a pod: it writes a line when it has met the others, and ends when its input does, so that no pod leaves while others still meet.
func (o options) be() error {
	net.DefaultResolver = dnstest.Resolver(o.resolver)
	cfg := ringo.Config{Size: o.Pods, Rank: o.pod, Rendezvous: o.rendezvous, Transport: ringo.TransportTCP, Bind: launch.BindNone}
	if o.TLS {
		cfg.Network.TLS.Mode = transport.TLSOn
	}
	return ringo.Run(context.Background(), cfg, func(job *ringo.Job) error {
		x := []float32{1}
		if err := collective.AllReduce(job.Group(), x, collective.Sum); err != nil {
			return err
		}
		if x[0] != float32(o.Pods) {
			return fmt.Errorf("a sum of %v over %d pods", x[0], o.Pods)
		}
		fmt.Fprintln(os.Stdout, "met", time.Now().UnixNano())
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
}

// measure does all rounds.
func (o options) measure() error {
	var all []time.Duration
	for round := range o.Rounds {
		took, err := o.round(rand.New(rand.NewPCG(o.Seed, uint64(round))))
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		fmt.Fprintf(os.Stdout, "round %d: %d pods met %.2f s after the last had started\n", round+1, o.Pods, took.Seconds())
		all = append(all, took)
	}
	slices.Sort(all)
	median := all[len(all)/2]
	fmt.Fprintf(os.Stdout, "median %.2f s, least %.2f s, most %.2f s\n", median.Seconds(), all[0].Seconds(), all[len(all)-1].Seconds())
	if o.Within > 0 && median > o.Within {
		return fmt.Errorf("a median of %v: want %v at most", median, o.Within)
	}
	return nil
}

// pod is one that was started.
type pod struct {
	cmd   *exec.Cmd
	names *dnstest.Server
	in    io.Closer
	out   io.Reader
	errs  strings.Builder
}

// round starts all pods, and returns how long after the start of the last one the last one had met all.
func (o options) round(rng *rand.Rand) (took time.Duration, err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	o.rendezvous = "job-0.workers:" + port
	ticket := transport.NewTicket().String()
	pods := make([]*pod, o.Pods)
	defer func() {
		for _, p := range pods {
			if p != nil {
				err = cmp.Or(err, p.end())
			}
		}
	}()
	ahead := time.Duration(o.Pods) * o.StartInterval // until the last starts
	var last time.Time
	for i, at := range rng.Perm(o.Pods) {
		time.Sleep(o.StartInterval)
		last = time.Now()
		if pods[at], err = o.start(at, ticket); err != nil {
			return 0, err
		}
		// Its resolver learns the name until the last pod has started, and the last one's soon after.
		rest := max(ahead-time.Duration(i)*o.StartInterval, 100*time.Millisecond)
		know := time.AfterFunc(time.Duration(rng.Int64N(int64(rest))), pods[at].names.Know)
		defer know.Stop()
	}
	for i, p := range pods {
		at, err := p.met()
		if err != nil {
			return 0, fmt.Errorf("pod %d: %w", i, err)
		}
		took = max(took, at.Sub(last))
	}
	return took, nil
}

// start starts a pod.
func (o options) start(number int, ticket string) (*pod, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := new(pod)
	if p.names, err = dnstest.Listen(); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(self, "--pod", strconv.Itoa(number), "--pods", strconv.Itoa(o.Pods), "--resolver", p.names.Address(), "--rendezvous", o.rendezvous, fmt.Sprint("--tls=", o.TLS))
	p.cmd.Env = append(os.Environ(), launch.TicketVar+"="+ticket)
	p.cmd.Stderr = &p.errs
	in, err := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	if err := errors.Join(err, outErr); err != nil {
		return nil, err
	}
	p.in, p.out = in, out
	return p, p.cmd.Start()
}

// met waits until the pod says when it has met the others.
func (p *pod) met() (time.Time, error) {
	line, err := bufio.NewReader(p.out).ReadString('\n')
	text, ok := strings.CutPrefix(strings.TrimSpace(line), "met ")
	at, numberErr := strconv.ParseInt(text, 10, 64)
	if !ok || numberErr != nil {
		return time.Time{}, fmt.Errorf("it said %q: %w", line, errors.Join(err, numberErr))
	}
	return time.Unix(0, at), nil
}

// end lets the pod leave, and ends one that does not.
func (p *pod) end() error {
	_ = p.in.Close()
	slow := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer slow.Stop()
	err := errors.Join(p.cmd.Wait(), p.names.Close())
	if err != nil {
		return fmt.Errorf("%w: %s", err, p.errs.String())
	}
	return nil
}

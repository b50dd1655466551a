package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/wire"
)

// paceCase is a job that trains while strangers come to every port at which one of its processes listens, and, in turns, to as many of this
// process: they take processors from the job in either case, and what its speed differs by is what it does about them itself.
type paceCase struct {
	pacedJob
	crowd
	At uint64 // what they say is drawn from it
}

// pacedJob is a job of several processes, and the ports that it has.
type pacedJob struct {
	name  string
	args  []string
	ports int // that are open while it trains, at least
}

// pacedJobs have among them all roles: launcher, ranks, servers that sum, servers of tables, heter-trainers, and who answers people.
var pacedJobs = slices.Concat(plainPaced, []pacedJob{
	{"a launcher and ranks, encrypted", with(paced("mlp"), "--transport", "tcp", "--set", "network.tls=on"), 1},
	{"servers of tables, encrypted", with(paced("mlp"), "--sync", "bsp", "--servers", "1", "--set", "network.tls=on"), 1},
})

var plainPaced = []pacedJob{
	{"a launcher and ranks", with(paced("mlp"), "--transport", "tcp"), 1},
	{"ranks that share memory, a page, metrics and profiles", with(paced("mlp"), "--http", "127.0.0.1:0"), 5},
	{"servers that sum", with(paced("mlp"), "--sync", "aggregate", "--servers", "1"), 1},
	{"servers of tables and their administration", with(paced("mlp"), "--sync", "bsp", "--servers", "1", "--http", "127.0.0.1:0"), 2},
	{"a heter-trainer", with(paced("ctr-dnn"), "--sync", "bsp", "--servers", "1", "--heter", "1"), 2},
}

// paced is a command line that trains for ever and tells how far it is.
func paced(model string) []string {
	return []string{"train", model, "--data", "synthetic", "--np", "2", "--batch", "64", "--train-limit", "64000", "--eval-limit", "64", "--epochs", "100000", "--threads", "1", "--log-every", "10", "--json", "-", "--progress", "none"}
}

// crowd is what strangers do at one port.
type crowd struct {
	name string
	come func(at string, ports int, rng *rand.Rand, stop <-chan struct{}) // at is one of so many ports
}

var crowds = []crowd{
	{"one byte a second on 200 connections", trickle},
	{fmt.Sprintf("%d connections a second in all that say nothing", silentASecond), silent},
	{"200 connections a second with garbage", garbage},
	{"100 connections a second that begin TLS with certificates of their own", begin},
}

// How the speed is measured: in rounds of two windows, with strangers elsewhere and with them here, whichever is first, each behind a while that does
// not count. What counts is the median of the rounds' ratios: what else the machine does changes from one round to the next.
const (
	paceRounds = 12
	paceWindow = time.Second
	paceSettle = 250 * time.Millisecond
	paceLeast  = 0.9 // of the speed with strangers elsewhere
)

// drawPace draws a job and a crowd: all of them in turn.
func drawPace(rng *rand.Rand, number int) trial {
	return paceCase{pacedJobs[number/len(crowds)%len(pacedJobs)], crowds[number%len(crowds)], rng.Uint64()}
}

func (c paceCase) String() string {
	return fmt.Sprintf("%s at each port of %s (%x)", c.crowd.name, c.pacedJob.name, c.At)
}

func (c paceCase) run(s *setup, dir string) verdict {
	j, err := s.start(dir, c.args)
	if err != nil {
		return broken(err)
	}
	defer j.end()
	if !j.await(startLimit, func() bool { return j.steps() > 0 }) {
		return broken(fmt.Errorf("it does not train: %s", lastLine(j.errs.String())))
	}
	var v verdict
	ports := j.ports()
	if len(ports) < c.ports {
		v.wrong("ports %v are open, want %d at least", ports, c.ports)
	}
	rng := rand.New(rand.NewPCG(c.At, 0))
	others, shut, err := sinks(len(ports))
	if err != nil {
		return broken(err)
	}
	defer shut()
	quiet := j.speed()
	var ratios, disturbed []float64
	for round := range paceRounds {
		var speeds [2]float64 // elsewhere, here
		for i := range speeds {
			i = (i + round) % 2
			leave := c.arrive([][]int{others, ports}[i], rng)
			speeds[i] = j.speed()
			leave()
		}
		if disturbed = append(disturbed, speeds[1]); speeds[0] > 0 {
			ratios = append(ratios, speeds[1]/speeds[0])
		}
	}
	if j.over() {
		v.wrong("it has ended: %s", lastLine(j.errs.String()))
		return v
	}
	if len(ratios) == 0 {
		return broken(fmt.Errorf("it stands still while strangers come to others"))
	}
	ratio := median.Of(slices.Clone(ratios))
	v.Said = fmt.Sprintf("%.2f of the speed with strangers at %d ports of others (rounds %.2f); %.0f steps a second with them here, at first %.0f without", ratio, len(ports), slices.Sorted(slices.Values(ratios)), median.Of(disturbed), quiet)
	if ratio < paceLeast {
		v.wrong("%s", v.Said)
	}
	if told := strings.Count(j.errs.String(), "refused a connection from 127.0.0.1:"); told > mostTold*len(ports) {
		v.wrong("%d reports of strangers from one host", told)
	}
	return v
}

// sinks listen at so many ports, and read what comes, until shut.
func sinks(n int) (ports []int, shut func(), err error) {
	var all []net.Listener
	shut = func() {
		for _, l := range all {
			_ = l.Close()
		}
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			shut()
			return nil, nil, err
		}
		all, ports = append(all, l), append(ports, l.Addr().(*net.TCPAddr).Port)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_ = c.SetDeadline(time.Now().Add(paceWindow))
					_, _ = io.Copy(io.Discard, c)
				}()
			}
		}()
	}
	return ports, shut, nil
}

// arrive lets strangers come to all ports, until the returned function is called.
func (c paceCase) arrive(ports []int, rng *rand.Rand) (leave func()) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, port := range ports {
		seed := rng.Uint64()
		all.Go(func() { c.come(fmt.Sprintf("127.0.0.1:%d", port), len(ports), rand.New(rand.NewPCG(seed, 0)), stop) })
	}
	return func() { close(stop); all.Wait() }
}

// ports are those at which the processes of a job listen.
func (j *job) ports() (out []int) {
	for _, p := range j.processes() {
		out = append(out, listening(p.PID)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// steps is how many steps the job has told of.
func (j *job) steps() (done int) {
	j.out.mu.Lock()
	defer j.out.mu.Unlock()
	for i := len(j.out.lines) - 1; i >= 0; i-- {
		var r struct {
			Event string
			Done  int
		}
		if json.Unmarshal([]byte(j.out.lines[i].Text), &r) == nil && r.Event == "step" {
			return r.Done
		}
	}
	return 0
}

// speed is how many steps a second the job does in a window.
func (j *job) speed() float64 {
	time.Sleep(paceSettle)
	from, began := j.steps(), time.Now()
	time.Sleep(paceWindow)
	return float64(j.steps()-from) / time.Since(began).Seconds()
}

// trickle sends a byte a second of what looks honest at first on each of 200 connections, and comes again where it is put out.
func trickle(at string, _ int, _ *rand.Rand, stop <-chan struct{}) {
	const text = wire.PrefaceMagic + "\x01\x00"
	conns := make([]net.Conn, 200)
	defer func() { closeAll(conns) }()
	tick := time.NewTicker(time.Second / time.Duration(len(conns)))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		n := i % len(conns)
		if conns[n] != nil {
			if _, err := conns[n].Write([]byte{text[i/len(conns)%len(text)]}); err == nil {
				continue
			}
			_ = conns[n].Close()
		}
		conns[n], _ = net.DialTimeout("tcp", at, time.Second)
	}
}

// silentASecond is how many connections come a second in the crowd of that name: part ports has more, and asks how much memory they take.
const silentASecond = 1000

// silent opens this port's share of so many connections a second, and keeps them; the port puts out most.
func silent(at string, ports int, _ *rand.Rand, stop <-chan struct{}) {
	var conns []net.Conn
	defer func() { closeAll(conns) }()
	tick := time.NewTicker(time.Second * time.Duration(ports) / silentASecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if c, err := net.DialTimeout("tcp", at, time.Second); err == nil {
			conns = append(conns, c)
		}
	}
}

// garbage connects 200 times a second, says what is no message, and waits for the end.
func garbage(at string, _ int, rng *rand.Rand, stop <-chan struct{}) {
	connect(at, 5*time.Millisecond, stop, func() func(net.Conn) {
		text := (&trap{rng: rng}).bytes(1 + rng.IntN(300))
		return func(c net.Conn) {
			if _, err := c.Write(text); err == nil {
				_, _ = io.Copy(io.Discard, c)
			}
		}
	})
}

// begin begins TLS 100 times a second.
func begin(at string, _ int, rng *rand.Rand, stop <-chan struct{}) {
	connect(at, 10*time.Millisecond, stop, func() func(net.Conn) {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		return func(c net.Conn) { _ = strangeTLS(c, own) }
	})
}

// connect connects once in each such time, each time to say the next, and ends with them.
func connect(at string, every time.Duration, stop <-chan struct{}, next func() (say func(net.Conn))) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		say := next()
		all.Go(func() {
			c, err := net.DialTimeout("tcp", at, time.Second)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Second))
			say(c)
		})
	}
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}

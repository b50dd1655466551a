package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/wire"
)

// floodCase is one port of a job to which strangers connect, who say nothing, half of what they should, or garbage.
type floodCase struct {
	flood
	At uint64 // what they say is drawn from it
}

// flood is a kind of port. The job has members that are started one by one; strangers come to the
// port while it waits for the last, and while it trains.
type flood struct {
	port    string
	members [][]string // command lines; RENDEZVOUS and TABLES stand for addresses
	owner   int        // whose port it is
	pick    string     // RENDEZVOUS, TABLES, ADMIN, or "" for another at which the owner listens
	greets  string     // what an honest one says first
	tls     bool       // some begin TLS, with a certificate of their own
	meets   bool       // nobody is let in before all have joined: until then connections wait in the system's queue, which may be full
}

// How many strangers come while a job waits, and again while it trains; and how many files and bytes of memory the owner of
// the port may have at most, and how often it may tell of them.
const (
	strangers       = 10_000
	staying         = 2000 // keep their end open; the port has put out those before them, or its owner has too many files
	moreStrangers   = 200
	backlog         = 128 // connections that the system keeps for a port at least
	descriptorLimit = 512
	memoryLimitMiB  = 512
	mostTold        = 7 // kinds of refusals
)

// members of jobs that train for a few seconds.
func floodTrain(ranks int, more ...string) []string {
	return with([]string{"train", "mlp", "--data", "synthetic", "--batch", "16", "--train-limit", "3200", "--eval-limit", "64", "--epochs", "20", "--threads", "1",
		"--np", strconv.Itoa(ranks)}, more...)
}

// floodRank is the command line of a rank by hand.
func floodRank(ranks, rank int, more ...string) []string {
	return with(floodTrain(ranks, "--rank", strconv.Itoa(rank), "--rendezvous", "RENDEZVOUS"), more...)
}

var floods = slices.Concat(plainFloods, encrypted(plainFloods))

var plainFloods = []flood{
	{port: "the coordinator's", members: [][]string{floodRank(2, 0, "--transport", "tcp"), floodRank(2, 1, "--transport", "tcp")}, pick: "RENDEZVOUS", greets: wire.PrefaceMagic + "\x01\x00"},
	{port: "a rank's", owner: 1, meets: true, greets: wire.PrefaceMagic + "\x01\x00", members: [][]string{
		floodRank(3, 0, "--transport", "tcp"), floodRank(3, 1, "--transport", "tcp"), floodRank(3, 2, "--transport", "tcp"),
	}},
	{port: "a summing server's", owner: 1, meets: true, greets: wire.PrefaceMagic + "\x01\x00", members: [][]string{
		floodRank(2, 0, "--sync", "aggregate", "--servers", "1"),
		{"server", "--index", "0", "--np", "2", "--servers", "1", "--rendezvous", "RENDEZVOUS"},
		floodRank(2, 1, "--sync", "aggregate", "--servers", "1"),
	}},
	{port: "a server's of tables", owner: 0, pick: "TABLES", greets: wire.PrefaceMagic + "\x01\x00", members: [][]string{
		{"server", "--index", "0", "--np", "2", "--sync", "bsp", "--ps-addresses", "TABLES"},
		floodRank(2, 0, "--sync", "bsp", "--ps-addresses", "TABLES"), floodRank(2, 1, "--sync", "bsp", "--ps-addresses", "TABLES"),
	}},
	{port: "the administration's", owner: 0, pick: "ADMIN", greets: "GET /health HTTP/1.1\r\n", members: [][]string{
		{"server", "--index", "0", "--np", "2", "--sync", "bsp", "--ps-addresses", "TABLES", "--http", "127.0.0.1:0"},
		floodRank(2, 0, "--sync", "bsp", "--ps-addresses", "TABLES"), floodRank(2, 1, "--sync", "bsp", "--ps-addresses", "TABLES"),
	}},
}

// encrypted are the ports of the same jobs under TLS.
func encrypted(plain []flood) (out []flood) {
	for _, f := range plain {
		if f.pick == "ADMIN" {
			continue
		}
		f.port, f.tls, f.greets = f.port+" encrypted", true, helloTLS
		f.members = slices.Clone(f.members)
		for i, args := range f.members {
			f.members[i] = with(args, "--set", "network.tls=on")
		}
		out = append(out, f)
	}
	return out
}

// helloTLS is how a ClientHello of 508 bytes begins.
const helloTLS = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

// drawFlood draws a port: all of the list in turn.
func drawFlood(rng *rand.Rand, number int) floodCase {
	return floodCase{floods[number%len(floods)], rng.Uint64()}
}

func (c floodCase) String() string {
	return fmt.Sprintf("%d strangers at %s port (%x)", strangers, c.port, c.At)
}

// floodLimit is by when the job must have ended after its last member was started.
const floodLimit = 2 * time.Minute

func (c floodCase) run(s *setup, dir string) verdict {
	want := s.fixture("flooded: "+c.port, func(dir string) (string, error) {
		f, err := c.start(s, dir)
		defer f.end()
		if err == nil {
			err = f.join()
		}
		if err != nil {
			return "", err
		}
		v := verdict{}
		if f.judge(&v, ""); len(v.Wrong) > 0 {
			return "", fmt.Errorf("%s port, undisturbed: %s", c.port, strings.Join(v.Wrong, "; "))
		}
		return f.sha, nil
	})
	if want.err != nil {
		return broken(want.err)
	}
	f, err := c.start(s, dir)
	defer f.end()
	if err != nil {
		return broken(err)
	}
	var v verdict
	came := f.strangers(strangers)
	if came < strangers && !(c.meets && came >= backlog) {
		v.wrong("the port took %d of %d connections", came, strangers)
	}
	if c.pick == "ADMIN" {
		f.askHealth(&v, "after the flood")
	}
	if err := f.join(); err != nil {
		v.wrong("%v", err)
	}
	last := f.members[len(f.members)-1]
	if f.rank0().await(startLimit, func() bool { return f.rank0().says(epochLine) || last.over() }) {
		f.strangers(moreStrangers) // fewer, where the port is closed by now
	}
	f.judge(&v, want.sha)
	if f.most > descriptorLimit {
		v.wrong("its owner had %d files open, %d at most are right", f.most, descriptorLimit)
	}
	return v
}

// flooded is a job under way.
type flooded struct {
	floodCase
	setup   *setup
	dir     string
	replace *strings.Replacer
	members []*job
	conns   []net.Conn
	address string // of the port
	rng     *rand.Rand
	most    int // open files of its owner
	sha     string
}

var adminAt = regexp.MustCompile(`answers at http://([^:]+:\d+)`)

// start starts all members but the last, and finds the port.
func (c floodCase) start(s *setup, dir string) (*flooded, error) {
	rendezvous, err := freeAddress()
	if err != nil {
		return &flooded{}, err
	}
	table, err := freeAddress()
	if err != nil {
		return &flooded{}, err
	}
	f := &flooded{
		floodCase: c, setup: s, dir: dir, rng: rand.New(rand.NewPCG(c.At, 0)),
		replace: strings.NewReplacer("RENDEZVOUS", rendezvous, "TABLES", table),
	}
	for _, args := range c.members[:len(c.members)-1] {
		if err := f.add(args); err != nil {
			return f, err
		}
	}
	owner := f.members[c.owner]
	found := owner.await(startLimit, func() bool {
		ports := listening(owner.cmd.Process.Pid)
		switch c.pick {
		case "RENDEZVOUS", "TABLES":
			f.address = f.replace.Replace(c.pick)
			_, port, _ := net.SplitHostPort(f.address)
			n, _ := strconv.Atoi(port)
			return slices.Contains(ports, n)
		case "ADMIN":
			if m := adminAt.FindStringSubmatch(owner.errs.String()); m != nil {
				f.address = m[1]
			}
			return f.address != ""
		}
		if len(ports) == 1 {
			f.address = fmt.Sprintf("127.0.0.1:%d", ports[0])
		}
		return len(ports) == 1
	})
	if !found {
		return f, fmt.Errorf("%s port is not open: %s", c.port, owner.errs.String())
	}
	return f, nil
}

// freeAddress is a port of loopback at which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// add starts a member.
func (f *flooded) add(args []string) error {
	line := make([]string, len(args))
	for i, a := range args {
		line[i] = f.replace.Replace(a)
	}
	j, err := f.setup.start(f.dir, line, ticketVar)
	if err == nil {
		f.members = append(f.members, j)
	}
	return err
}

// join starts the last member.
func (f *flooded) join() error { return f.add(f.floodCase.members[len(f.floodCase.members)-1]) }

// rank0 is the member that speaks for all.
func (f *flooded) rank0() *job {
	for _, j := range f.members {
		if at := slices.Index(j.args, "--rank"); at >= 0 && j.args[at+1] == "0" {
			return j
		}
	}
	return f.members[0]
}

// strangers lets n of them connect and stay. It returns how many could.
func (f *flooded) strangers(n int) int {
	owner := f.members[f.owner].cmd.Process.Pid
	for i := range n {
		conn, err := net.DialTimeout("tcp", f.address, 5*time.Second)
		if err != nil {
			return i
		}
		if f.conns = append(f.conns, conn); len(f.conns) > staying {
			f.conns[0].Close()
			f.conns = f.conns[1:]
		}
		kinds := 3
		if f.tls {
			kinds = 4
		}
		switch f.rng.IntN(kinds) {
		case 0: // nothing
		case 1:
			_, _ = io.WriteString(conn, f.greets[:1+f.rng.IntN(len(f.greets))])
		case 2:
			garbage := (&trap{rng: f.rng}).bytes(1 + f.rng.IntN(300))
			_, _ = conn.Write(garbage) // it may have been put out by now
		case 3:
			go strangeTLS(conn, rand.New(rand.NewPCG(f.rng.Uint64(), 0))) // refused, or put out
		}
		if i%20 == 0 {
			f.most = max(f.most, descriptors(owner))
		}
	}
	f.most = max(f.most, descriptors(owner))
	return n
}

// askHealth wants an honest request to be answered.
func (f *flooded) askHealth(v *verdict, when string) {
	status, _, err := request(f.address, "GET /health HTTP/1.1\r\nHost: "+f.address+"\r\nConnection: close\r\n\r\n")
	if err != nil || status != 200 {
		v.wrong("an honest request %s: status %d, %v", when, status, err)
	}
}

// judge waits for all members and wants the same bits.
func (f *flooded) judge(v *verdict, want string) {
	rank0 := f.rank0()
	for i, j := range f.members {
		e := j.finish(floodLimit)
		judgeClean(v, e)
		if told := strings.Count(e.Errs, "refused a connection from 127.0.0.1:"); told > mostTold {
			v.wrong("ringo %s: %d reports of strangers from one host", strings.Join(j.args[:2], " "), told)
		}
		if i == f.owner && e.PeakMiB > memoryLimitMiB {
			v.wrong("its owner had %d MiB of memory, %d at most are right", e.PeakMiB, memoryLimitMiB)
		}
		if j == rank0 {
			judgeSame(v, want, e)
			f.sha = sha(e.Out)
		} else if e.Status != 0 {
			v.wrong("ringo %s: exit status %d: %s", strings.Join(j.args[:2], " "), e.Status, lastLine(e.Errs))
		}
	}
}

// end closes all connections and ends all members.
func (f *flooded) end() {
	for _, c := range f.conns {
		c.Close()
	}
	for _, j := range f.members {
		j.end()
	}
}

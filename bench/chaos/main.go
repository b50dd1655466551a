// Command chaos does to ringo what users, machines and strangers do: it kills and stops the processes of training jobs,
// damages their files, feeds them hostile data and command lines, floods their ports, and sends their administration
// what web pages of strangers would. It judges what ringo prints and how it ends; see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo"
)

// trial is one case.
type trial interface {
	fmt.Stringer                      // what is done, so that a person could repeat it by hand
	run(s *setup, dir string) verdict // in an empty folder of its own
}

// part is a kind of cases.
type part struct {
	name  string
	cases int // by default
	draw  func(rng *rand.Rand, number int) trial
}

var parts = []part{
	{"ranks", 100, func(rng *rand.Rand, _ int) trial { return drawRank(rng) }},
	{"servers", serverCases, func(rng *rand.Rand, n int) trial { return drawServer(rng, n) }},
	{"operations", 100, func(rng *rand.Rand, _ int) trial { return drawOperation(rng) }},
	{"boxes", 100, func(rng *rand.Rand, n int) trial { return drawBox(rng, n) }},
	{"files", 100, func(rng *rand.Rand, n int) trial { return drawDamage(rng, n) }},
	{"odd", oddCases, func(rng *rand.Rand, n int) trial { return drawOdd(rng, n) }},
	{"inputs", len(hostileInputs), func(rng *rand.Rand, n int) trial { return drawInput(rng, n) }},
	{"ports", len(floods), func(rng *rand.Rand, n int) trial { return drawFlood(rng, n) }},
	{"pages", len(adminPaths), func(rng *rand.Rand, n int) trial { return drawPage(rng, n) }},
	{"pace", len(pacedJobs) * len(crowds), drawPace},
}

// options are the command line.
type options struct {
	Ringo, Only, Data, JSON, Keep string
	Seed                          uint64
	Cases, Case, Parallel         int
	List                          bool
}

func main() {
	if isRank, err := rank(os.Args); err != nil {
		if !ringo.Reported(err) {
			fmt.Fprintln(os.Stderr, "chaos:", err)
		}
		os.Exit(1)
	} else if isRank {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	o.register(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	ok, err := campaign(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// rank is a rank of a job of this program's, if the arguments make it one.
func rank(args []string) (is bool, err error) {
	if len(args) > 2 && args[1] == workerWord {
		return true, worker(args[2:])
	}
	if len(args) > 2 && args[1] == operationWord {
		return true, operate(args[2:])
	}
	return false, nil
}

func (o *options) register(f *flag.FlagSet) {
	f.StringVar(&o.Ringo, "ringo", "", "the ringo `binary` to try (required)")
	f.Uint64Var(&o.Seed, "seed", 1, "what cases are drawn from")
	f.StringVar(&o.Only, "only", "", "the parts to do, such as ranks,files (default all: ranks,servers,operations,boxes,files,odd,inputs,ports,pages,pace)")
	f.IntVar(&o.Cases, "cases", 0, "how many cases of each part; 0: as many as README.md says")
	f.IntVar(&o.Case, "case", -1, "do the case of this number alone")
	f.IntVar(&o.Parallel, "parallel", 2, "cases at once")
	f.StringVar(&o.Data, "data", "", "`folder` of real data with mnist/ and criteo/, which the jobs that are struck then train on (default: synthetic data)")
	f.StringVar(&o.JSON, "json", "", "write one JSON object for each case to `FILE`, or to stdout with -")
	f.StringVar(&o.Keep, "keep", "", "keep the folders of cases that are not right, with all that their jobs wrote, in `DIR`")
	f.BoolVar(&o.List, "list", false, "print the cases and do nothing")
}

// numbered is a case with its place.
type numbered struct {
	part   string
	number int
	trial
}

// chosen returns the cases that the options ask for.
func (o *options) chosen() ([]numbered, error) {
	var wanted []string
	if o.Only != "" {
		wanted = strings.Split(o.Only, ",")
	}
	for _, name := range wanted {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return nil, fmt.Errorf("--only %s: there is no part %q", o.Only, name)
		}
	}
	var out []numbered
	for _, p := range parts {
		if len(wanted) > 0 && !slices.Contains(wanted, p.name) {
			continue
		}
		first, last := 0, p.cases
		if o.Cases > 0 {
			last = o.Cases
		}
		if o.Case >= 0 {
			first, last = o.Case, o.Case+1
		}
		for n := first; n < last; n++ {
			out = append(out, numbered{p.name, n, p.draw(dice(o.Seed, p.name, n), n)})
		}
	}
	return out, nil
}

// campaign does what the options say and tells whether all cases were right.
func campaign(ctx context.Context, o options, out io.Writer) (bool, error) {
	cases, err := o.chosen()
	if err != nil {
		return false, err
	}
	if o.List {
		for _, c := range cases {
			fmt.Fprintf(out, "%s %d: %v\n", c.part, c.number, c.trial)
		}
		return true, nil
	}
	if o.Ringo == "" {
		return false, errors.New("--ringo: want the binary to try, such as ./ringo of go build ./cmd/ringo")
	}
	if !supported {
		return false, errors.New("this needs Linux, whose /proc tells which processes a job has")
	}
	s, err := o.setup()
	if err != nil {
		return false, err
	}
	p := &progress{out: out, total: len(cases), began: time.Now(), reported: time.Now()}
	if err := o.record(p); err != nil {
		return false, err
	}
	each(ctx, o.Parallel, cases, func(c numbered) { p.add(s.try(o, c)) })
	if o.Keep == "" {
		err = os.RemoveAll(s.Scratch)
	}
	var names []string
	for _, c := range cases {
		if !slices.Contains(names, c.part) {
			names = append(names, c.part)
		}
	}
	table(out, tallies(names, p.results))
	if ctx.Err() != nil {
		return false, fmt.Errorf("interrupted after %d of %d cases", len(p.results), len(cases))
	}
	return p.failures() == 0, errors.Join(err, p.err)
}

// setup finds the binary and makes the scratch folder.
func (o *options) setup() (*setup, error) {
	ringo, err := filepath.Abs(o.Ringo)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(ringo); err != nil {
		return nil, fmt.Errorf("--ringo: %w", err)
	}
	if o.Keep != "" {
		if err := os.MkdirAll(o.Keep, 0o755); err != nil {
			return nil, fmt.Errorf("--keep: %w", err)
		}
	}
	scratch, err := os.MkdirTemp(o.Keep, "chaos-")
	if err != nil {
		return nil, err
	}
	if scratch, err = filepath.Abs(scratch); err != nil {
		return nil, err
	}
	return &setup{Ringo: ringo, Data: o.Data, Scratch: scratch}, nil
}

// record opens --json.
func (o *options) record(p *progress) error {
	switch o.JSON {
	case "":
	case "-":
		p.records, p.out = os.Stdout, os.Stderr
	default:
		f, err := os.Create(o.JSON)
		if err != nil {
			return fmt.Errorf("--json: %w", err)
		}
		p.records = f // as long as the program
	}
	return nil
}

// each does the cases, some at once, until the context ends.
func each(ctx context.Context, parallel int, cases []numbered, do func(numbered)) {
	next := make(chan numbered)
	var all sync.WaitGroup
	for range max(parallel, 1) {
		all.Go(func() {
			for c := range next {
				do(c)
			}
		})
	}
	for _, c := range cases {
		if ctx.Err() == nil {
			next <- c
		}
	}
	close(next)
	all.Wait()
}

// try does one case in a folder of its own.
func (s *setup) try(o options, c numbered) result {
	began := time.Now()
	dir := filepath.Join(s.Scratch, fmt.Sprintf("%s-%d", c.part, c.number))
	var v verdict
	if err := os.MkdirAll(dir, 0o755); err != nil {
		v = broken(err)
	} else {
		v = c.run(s, dir)
	}
	r := result{
		Part: c.part, Seed: o.Seed, Case: c.number, What: c.String(), Wrong: v.Wrong, NoStep: v.NoStep, Skipped: v.Skipped, Said: v.Said,
		Named: v.Named.Seconds(), Boxed: v.Boxed, Seconds: time.Since(began).Seconds(),
	}
	if o.Keep == "" || !r.failed() {
		_ = os.RemoveAll(dir) // the scratch folder goes in the end, and says if it cannot
	}
	return r
}

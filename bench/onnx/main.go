// Command onnx compares the models of the zoo with ONNX Runtime: whether their exported graphs compute the same there, and how fast.
// README.md has how to run it.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/pathname"
	"github.com/ringo-ml/ringo/models"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "onnx:", err)
		os.Exit(1)
	}
}

// contest is what is compared, and how.
type contest struct {
	runtime *peer
	folder  string
	modules string // the folder whose node_modules has the runtime
	example string // the program that answers from bundles
	batches []int
	steps   int
	rounds  int
	burst   time.Duration
	limit   float64
	out     io.Writer
}

func run(out io.Writer) (err error) {
	runtime := flag.String("runtime", ".", "`folder` whose node_modules has onnxruntime-node")
	script := flag.String("peer", "bench/onnx/peer.js", "the program that runs it")
	only := flag.String("models", strings.Join(models.Names(), ","), "models to compare, by commas")
	batches := flag.String("batches", "1,32", "samples of a batch, by commas")
	rate := flag.Bool("rate", false, "compare how fast they are, too")
	program := flag.String("predict", "", "a `ringo` program: compare what its predict writes, and nothing else")
	c := &contest{out: out}
	flag.StringVar(&c.example, "example", "examples/bundle/predict.js", "the program that answers from bundles")
	flag.IntVar(&c.steps, "steps", 3, "steps of training before")
	flag.IntVar(&c.rounds, "rounds", 5, "turns of each side")
	flag.DurationVar(&c.burst, "burst", 200*time.Millisecond, "length of a turn at least")
	flag.Float64Var(&c.limit, "limit", 1e-5, "how far outputs may be apart, as a share of the largest")
	flag.Parse()
	for _, text := range strings.Split(*batches, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-batches %s: want numbers of samples", *batches)
		}
		c.batches = append(c.batches, n)
	}
	if c.folder, err = os.MkdirTemp("", "ringo-onnx-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.folder)) }()
	c.modules = *runtime
	if c.runtime, err = start(*script, *runtime, os.Stderr); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.runtime.close()) }()
	a, err := c.runtime.ask(request{Ask: "version"})
	if err != nil {
		return fmt.Errorf("%w: `npm install --ignore-scripts onnxruntime-node` in the folder of -runtime", err)
	}
	if *program != "" {
		fmt.Fprintf(out, "onnxruntime-node %s\n", a.Version)
		return c.predicted(*program, strings.Split(*only, ","))
	}
	fmt.Fprintf(out, "onnxruntime-node %s, one thread each\n%-16s %5s %10s", a.Version, "model", "batch", "apart")
	if *rate {
		fmt.Fprintf(out, " %12s %12s %6s", "ringo", "runtime", "ratio")
	}
	fmt.Fprintln(out)
	for _, name := range strings.Split(*only, ",") {
		err = errors.Join(err, c.compare(name, *rate))
	}
	return err
}

// compare compares one model, with all batches.
func (c *contest) compare(name string, rate bool) error {
	n, err := newNet(name, c.folder, c.steps, slices.Max(c.batches))
	if err != nil {
		return err
	}
	defer n.tape.Close()
	defer os.Remove(n.path)
	if _, err := c.runtime.ask(request{Ask: "load", Path: n.path}); err != nil {
		return fmt.Errorf("%s: %w", n.spec.Name, err)
	}
	for _, samples := range c.batches {
		far, err := c.agree(n, samples)
		if err != nil {
			return fmt.Errorf("%s, batch %d: %w", n.spec.Name, samples, err)
		}
		fmt.Fprintf(c.out, "%-16s %5d %10.1e", n.spec.Name, samples, far)
		if rate {
			if err := c.race(n, samples); err != nil {
				return err
			}
		}
		fmt.Fprintln(c.out)
		if !(far <= c.limit) {
			return fmt.Errorf("%s, batch %d: outputs are %.2g apart, at most %g may be", n.spec.Name, samples, far, c.limit)
		}
	}
	return nil
}

// agree is how far the outputs of both are apart.
func (c *contest) agree(n *net, samples int) (float64, error) {
	b := n.batch(samples, 100)
	feed, err := n.feed(b)
	if err != nil {
		return 0, err
	}
	if _, err := c.runtime.ask(feed); err != nil {
		return 0, err
	}
	if _, err := c.runtime.ask(request{Ask: "run", Folder: c.folder}); err != nil {
		return 0, err
	}
	raw, err := pathname.Read(filepath.Join(c.folder, "logits"), 1<<32)
	if err != nil {
		return 0, err
	}
	got := make([]float32, len(raw)/4)
	if _, err := binary.Decode(raw, binary.LittleEndian, got); err != nil {
		return 0, err
	}
	return maxDifference(got, n.logits(b)), nil
}

// race takes turns: the ratio is within a round, and its median over rounds. Above 1 ringo is faster.
func (c *contest) race(n *net, samples int) error {
	b := n.batch(samples, 100)
	n.forward(b) // memory, once
	var ours, theirs []time.Duration
	var ratios []float64
	for range c.rounds {
		a, err := c.runtime.ask(request{Ask: "time", Nanoseconds: int64(c.burst)})
		if err != nil {
			return err
		}
		mine := n.time(b, c.burst)
		ours, theirs = append(ours, mine), append(theirs, time.Duration(a.Nanoseconds))
		ratios = append(ratios, a.Nanoseconds/float64(mine))
	}
	fmt.Fprintf(c.out, " %9.1f us %9.1f us %6.2f", micros(median(ours)), micros(median(theirs)), median(ratios))
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func median[T time.Duration | float64](of []T) T {
	s := slices.Clone(of)
	slices.Sort(s)
	return s[len(s)/2]
}

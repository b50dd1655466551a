//go:build linux

// Command gemm times the matrix products of package simd against OpenBLAS's,
// in turns on the same core, and prints the ratios. The
// other side is openblas/openblas.c, a process of its own; run.sh builds and runs both.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/simd"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gemm:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	theirs := flag.String("openblas", "", "the other side's `program`; empty: none")
	level := flag.String("level", simd.Host().Name(), "kernels to time")
	only := flag.String("only", "", "`pattern` of the names of the shapes to run")
	rounds := flag.Int("rounds", 9, "turns per shape")
	// After each wait for the other side Go's monitor thread wakes every 20 us for some 5 ms, on this very core: turns
	// are long against that.
	burst := flag.Duration("burst", 100*time.Millisecond, "length of a turn")
	serve := flag.Bool("serve", false, "be the other side, for comparing two builds of this program")
	flag.Parse()
	k, err := simd.Lookup(*level)
	if err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	c := &contest{k: k, rounds: *rounds, burst: *burst, out: out}
	if *serve {
		return c.serve(os.Stdin)
	}
	if *theirs != "" {
		if err := c.start(*theirs); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%-34s %9s %6s %9s %9s\n", "m x k x n", "GFLOP/s", "peak", "OpenBLAS", "ratio")
	for _, s := range shapes {
		if pattern.MatchString(s.String()) {
			if err := c.run(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// contest is both sides, and the memory of ours.
type contest struct {
	k       *simd.Kernels
	rounds  int
	burst   time.Duration
	out     io.Writer
	ask     io.Writer
	answer  *bufio.Reader
	a, b, c []float32
	s       simd.Scratch
	packed  simd.PackedB
}

func (c *contest) start(program string) (err error) {
	cmd := exec.Command(program, "-serve") // openblas.c ignores it
	cmd.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS=1")
	cmd.Stderr = os.Stderr
	if c.ask, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	c.answer = bufio.NewReader(out)
	return errorsIn("start "+program, err, cmd.Start())
}

func errorsIn(what string, errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// run prints the medians of one shape's turns, and of the turns' ratios.
func (c *contest) run(s shape) error {
	c.prepare(s)
	flops := 2 * float64(s.m) * float64(s.n) * float64(s.k)
	c.ours(s, 1)
	calls := max(1, int(c.burst.Seconds()/c.ours(s, 1)))
	var our, their, ratio, share []float64
	for i := range c.rounds + 1 {
		peak := c.peak()
		o := c.ours(s, calls) / float64(calls)
		t, err := c.others(s, calls)
		if err != nil {
			return err
		}
		if i == 0 {
			continue // caches and clocks of the first turn are the last shape's
		}
		t /= float64(calls)
		our, their = append(our, flops/o/1e9), append(their, flops/t/1e9)
		ratio, share = append(ratio, t/o), append(share, flops/o/1e9/peak)
	}
	fmt.Fprintf(c.out, "%-34s %9.1f %5.0f%% %9.1f %9.3f\n", s, median(our), 100*median(share), median(their), median(ratio))
	return nil
}

func (c *contest) prepare(s shape) {
	c.a, c.b, c.c = filled(c.a, s.m*s.k), filled(c.b, s.k*s.n), filled(c.c, s.m*s.n)
	if s.packed {
		c.k.PackB(&c.packed, s.tb, s.k, s.n, c.b, ld(s.tb, s.k, s.n))
	}
}

func filled(x []float32, n int) []float32 {
	if len(x) < n {
		x = make([]float32, n)
	}
	for i := range x {
		x[i] = 1e-3 * float32(i%13)
	}
	return x
}

func ld(trans bool, rows, cols int) int {
	if trans {
		return rows
	}
	return cols
}

// ours returns the seconds of so many of our products.
func (c *contest) ours(s shape, calls int) float64 {
	start := processTime()
	for range calls {
		if s.packed {
			c.k.GemmWith(&c.s, s.ta, s.m, s.n, s.k, c.a, ld(s.ta, s.m, s.k), &c.packed, false, c.c, s.n, simd.Epilogue{})
		} else {
			c.k.Gemm(&c.s, s.ta, s.tb, s.m, s.n, s.k, c.a, ld(s.ta, s.m, s.k), c.b, ld(s.tb, s.k, s.n), false, c.c, s.n)
		}
	}
	return processTime() - start
}

// others returns the seconds of so many of the other side's products.
func (c *contest) others(s shape, calls int) (seconds float64, err error) {
	if c.ask == nil {
		return 1, nil
	}
	if _, err = fmt.Fprintln(c.ask, digit(s.ta), digit(s.tb), digit(s.packed), s.m, s.n, s.k, calls); err == nil {
		_, err = fmt.Fscan(c.answer, &seconds)
	}
	return seconds, errorsIn("the other side", err)
}

// serve answers as openblas.c does.
func (c *contest) serve(in io.Reader) error {
	asked := bufio.NewReader(in)
	for last := (shape{}); ; {
		var s shape
		var ta, tb, packed, calls int
		if _, err := fmt.Fscan(asked, &ta, &tb, &packed, &s.m, &s.n, &s.k, &calls); err != nil {
			if err == io.EOF {
				err = nil
			}
			return err
		}
		s.ta, s.tb, s.packed = ta > 0, tb > 0, packed > 0
		if s != last {
			c.prepare(s)
		}
		last = s
		if _, err := fmt.Fprintf(c.out, "%.9f\n", c.ours(s, calls)); err != nil {
			return err
		}
	}
}

// peak returns the GFLOP/s of multiply-adds on registers.
func (c *contest) peak() float64 {
	start := processTime()
	flops := c.k.Peak(1e8)
	return float64(flops) / (processTime() - start) / 1e9
}

// processTime is the seconds this process has run, so that others on the same
// core count for neither side.
func processTime() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return float64(t.Nano()) / 1e9
}

func digit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

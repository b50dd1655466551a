// Command program times the allreduce of a program of one's own, started by `ringo run`, as bench/peers/mpi_allreduce.c
// times MPI's: see bench/collective/README.md.
//
// Usage: ringo run --np N -- program SECONDS FLOATS...
//
// Rank 0 prints one JSON line per size, with the median in microseconds.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
)

// Those of the peers' programs.
const (
	period      = 5
	batch       = 100  // calls of a sample of short operands
	batchFloats = 1024 // the longest of them
	most, least = 2000, 5
)

func main() {
	if err := ringo.Run(context.Background(), ringo.Config{}, run); err != nil {
		fmt.Fprintln(os.Stderr, "program:", err)
		os.Exit(1)
	}
}

func run(job *ringo.Job) error {
	seconds, sizes, err := arguments(os.Args[1:])
	if err != nil {
		return err
	}
	for _, n := range sizes {
		l := newLoop(job, n)
		us, err := l.measure(seconds)
		if err != nil {
			return err
		}
		job.Free(l.x)
		if job.Rank() == 0 {
			found := map[string]any{"floats": n, "median_us": us[len(us)/2], "min_us": us[0], "iterations": len(us)}
			if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
				return err
			}
		}
	}
	return nil
}

func arguments(args []string) (seconds float64, sizes []int, err error) {
	if len(args) < 2 {
		return 0, nil, fmt.Errorf("%d arguments: want SECONDS and then FLOATS, one size or more", len(args))
	}
	if seconds, err = strconv.ParseFloat(args[0], 64); err != nil || !(seconds > 0) {
		return 0, nil, fmt.Errorf("SECONDS %q: want a positive number", args[0])
	}
	for _, text := range args[1:] {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return 0, nil, fmt.Errorf("FLOATS %q: want a number of values, 0 or more", text)
		}
		sizes = append(sizes, n)
	}
	return seconds, sizes, nil
}

// loop is one size's: an operand, and what it is rewritten by and must become, by pattern.
type loop struct {
	job          *ringo.Job
	x            []float32
	source, want [2][]float32
	calls        int // of a sample
}

func newLoop(job *ringo.Job, n int) *loop {
	l := &loop{job: job, x: job.Alloc(n), calls: 1}
	if n <= batchFloats {
		l.calls = batch
	}
	for salt := range l.source {
		l.source[salt], l.want[salt] = make([]float32, n), make([]float32, n)
		for i := range n {
			l.source[salt][i] = operand(job.Rank(), i, salt)
			for rank := range job.Size() {
				l.want[salt][i] += operand(rank, i, salt)
			}
		}
	}
	return l
}

func operand(rank, i, salt int) float32 { return float32((i+2*rank+salt)%period + 1) }

// measure returns the microseconds of a call, by sample in ascending order: those of the slowest rank, and as many as fit
// the time. It is a collective call.
func (l *loop) measure(seconds float64) ([]float64, error) {
	us, err := l.samples(3)
	if err != nil {
		return nil, err
	}
	slices.Sort(us)
	fit := []int64{int64(min(most, max(least, seconds*1e6/(us[1]*float64(l.calls)))))}
	if err := collective.Broadcast(l.job.Group(), fit, 0); err != nil {
		return nil, err
	}
	if us, err = l.samples(int(fit[0])); err != nil {
		return nil, err
	}
	if err := collective.AllReduce(l.job.Group(), us, collective.Max); err != nil {
		return nil, err
	}
	slices.Sort(us)
	return us, nil
}

// samples are the microseconds of a call on this rank: of long ones by themselves after a barrier, of short ones in a row,
// the rewriting included. The last result of each sample is verified.
func (l *loop) samples(n int) ([]float64, error) {
	us := make([]float64, n)
	for i := range us {
		salt := i & 1
		if l.calls == 1 {
			copy(l.x, l.source[salt])
		}
		if err := collective.Barrier(l.job.Group()); err != nil {
			return nil, err
		}
		start := time.Now()
		for call := range l.calls {
			if l.calls > 1 {
				salt = call & 1
				copy(l.x, l.source[salt])
			}
			if err := collective.AllReduce(l.job.Group(), l.x, collective.Sum); err != nil {
				return nil, err
			}
		}
		us[i] = float64(time.Since(start).Nanoseconds()) / 1e3 / float64(l.calls)
		if l.calls == 1 { // verifying would take the core from ranks that are not done
			if err := collective.Barrier(l.job.Group()); err != nil {
				return nil, err
			}
		}
		if !slices.Equal(l.x, l.want[salt]) {
			return nil, fmt.Errorf("rank %d: an allreduce of %d values has a wrong result", l.job.Rank(), len(l.x))
		}
	}
	return us, nil
}

package collectives

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/median"
)

// trial is an operation on one rank, ready for repeated calls.
type trial struct {
	name  string // description, "allreduce of 4096 float32"
	bytes int    // bytes of the operand
	// rewrite copies the next call's operands, leaving their cache lines with this rank's core.
	rewrite func(salt int)
	call    func() error
	// check counts the wrong values of the result and describes the first.
	check func(salt int) (wrong int, first string)
}

// The constants of timing are those of the compared programs (bench/peers). A call of up to
// batchBytes takes little more than a clock reading, and less than the skew of ranks after a
// barrier: such calls are timed in batches, including the rewriting of operands.
const (
	batchBytes = 4096
	batchCalls = 100
	mostTimes  = 2000
	leastTimes = 5
)

type timing struct {
	us    []float64 // times of one call on the slowest rank, ascending
	sent  int64     // payload per call of the busiest rank
	wrong int64     // wrong values of all ranks and verified calls
	loop  float64   // microseconds between calls, for arrivals
}

func (t *timing) median() float64 { return median.Of(t.us) }

// stopwatch times the trials of a rank.
type stopwatch struct {
	job      *ringo.Job
	budget   time.Duration // approximate measuring time
	arrivals arrivals
	wrong    int    // wrong values of the current trial
	first    string // description of the first
}

// measure times a trial for about the budget: 5 to 2,000 samples. Wrong results are counted.
func (s *stopwatch) measure(t trial) (timing, error) {
	s.wrong, s.first = 0, ""
	if s.arrivals.on {
		return s.measureArrivals(t)
	}
	warm, take, calls := make([]float64, 3), s.singles, 1
	if err := s.singles(t, warm); err != nil {
		return timing{}, err
	}
	if t.bytes <= batchBytes {
		take, calls = s.batches, batchCalls
		if err := s.batches(t, warm); err != nil {
			return timing{}, err
		}
	}
	samples, err := s.samples(median.Of(warm) * float64(calls))
	if err != nil {
		return timing{}, err
	}
	sent, err := s.sent(t)
	if err != nil {
		return timing{}, err
	}
	us := make([]float64, samples)
	if err := take(t, us); err != nil {
		return timing{}, err
	}
	return s.overRanks(us, sent)
}

// samples returns the number of samples of us microseconds within the budget, as decided by rank 0.
func (s *stopwatch) samples(us float64) (int, error) {
	count := []int32{int32(min(mostTimes, max(leastTimes, micros(s.budget)/max(1e-3, us))))}
	err := collective.Broadcast(s.job.Group(), count, 0)
	return int(count[0]), err
}

func (s *stopwatch) overRanks(us []float64, sent int64) (timing, error) {
	all, err := bench.Slowest(s.job.Group(), append(us, float64(sent)))
	if err != nil {
		return timing{}, err
	}
	wrong := make([]int64, s.job.Size())
	if err := collective.AllGather(s.job.Group(), wrong, []int64{int64(s.wrong)}); err != nil {
		return timing{}, err
	}
	out := timing{us: all[:len(us)], sent: int64(all[len(us)])}
	slices.Sort(out.us)
	for _, n := range wrong {
		out.wrong += n
	}
	return out, nil
}

// fault returns an error for wrong results, or nil. A rank with correct results waits for the more
// specific error of another rank.
func (s *stopwatch) fault(found timing) error {
	switch {
	case s.wrong > 0:
		return fmt.Errorf("rank %d, %s", s.job.Rank(), s.first)
	case found.wrong > 0:
		return collective.Barrier(s.job.Group())
	}
	return nil
}

func (s *stopwatch) sent(t trial) (int64, error) {
	if err := s.begin(t, 0); err != nil {
		return 0, err
	}
	before := s.job.Traffic().PayloadSent
	if err := t.call(); err != nil {
		return 0, err
	}
	sent := s.job.Traffic().PayloadSent - before
	s.verify(t, 0, 0)
	return sent, nil
}

// singles fills us with times of single calls in microseconds, synchronized and verified.
func (s *stopwatch) singles(t trial, us []float64) error {
	for i := range us {
		if err := s.begin(t, i); err != nil {
			return err
		}
		start := time.Now()
		if err := t.call(); err != nil {
			return err
		}
		us[i] = float64(time.Since(start).Nanoseconds()) / 1e3
		if err := collective.Barrier(s.job.Group()); err != nil {
			return err // verification would take the core from ranks that are still running
		}
		s.verify(t, i, i)
	}
	return nil
}

// batches fills us with the mean times of calls in a row, in microseconds, including the rewriting
// of operands. Every last result is verified.
func (s *stopwatch) batches(t trial, us []float64) error {
	for i := range us {
		if err := s.begin(t, i); err != nil {
			return err
		}
		start := time.Now()
		for k := range batchCalls {
			t.rewrite(k % salts)
			if err := t.call(); err != nil {
				return err
			}
		}
		us[i] = float64(time.Since(start).Nanoseconds()) / 1e3 / batchCalls
		s.verify(t, i, batchCalls-1)
	}
	return nil
}

// begin rewrites the operands and synchronizes the ranks.
func (s *stopwatch) begin(t trial, i int) error {
	if err := context.Cause(s.job.Context()); err != nil {
		return err // a group of one rank would not detect the cancellation
	}
	t.rewrite(i % salts)
	return collective.Barrier(s.job.Group())
}

func (s *stopwatch) verify(t trial, iteration, turn int) {
	n, first := t.check(turn % salts)
	if n > 0 && s.wrong == 0 {
		s.first = fmt.Sprintf("iteration %d: %s: %s", iteration, t.name, first)
	}
	s.wrong += n
}

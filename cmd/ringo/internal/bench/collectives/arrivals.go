package collectives

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/cli"
)

// arrivals are calls with computation in between, as in real programs: some ranks arrive late, and
// the rest wait. The cost is the time from the last rank's arrival to the last rank's end.
type arrivals struct {
	gap  time.Duration // computation of all ranks before each call
	skew time.Duration // maximum additional computation, drawn for each rank and call
	on   bool
}

const longestGap = time.Second

func (a *arrivals) register(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&a.gap, "gap", 0, "compute for this long before each call; a call is then timed from the last rank's arrival to the last rank's end")
	cmd.Flags().DurationVar(&a.skew, "skew", 0, "additional random time of computation, up to this long, for each rank and call; timed as with --gap")
}

func (a *arrivals) check(cmd *cobra.Command, faults *cli.Faults) {
	a.on = cmd.Flags().Changed("gap") || cmd.Flags().Changed("skew")
	for name, d := range map[string]time.Duration{"gap": a.gap, "skew": a.skew} {
		faults.If(d < 0 || d > longestGap, "--%s %v: want 0 to %v", name, d, longestGap)
	}
}

// timed describes the measured time of a call.
func (a arrivals) timed() string {
	if a.on {
		return fmt.Sprintf("from the last rank's arrival to the last one's end after %v to %v of computation", a.gap, a.gap+a.skew)
	}
	return "the slowest rank's"
}

// timeEach is the part of a result about arrivals.
type timeEach struct {
	GapUS  float64 `json:"gap_us"`
	SkewUS float64 `json:"skew_us"`
	MeanUS float64 `json:"mean_us"` // rare long calls, which lose a slice of the core, affect the mean but not the median
	LoopUS float64 `json:"loop_us"` // mean time between calls on the slowest rank, including the computation
}

// result returns nil without computation.
func (a arrivals) result(found timing) *timeEach {
	if !a.on {
		return nil
	}
	return &timeEach{micros(a.gap), micros(a.skew), bench.Mean(found.us), found.loop}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func (s *stopwatch) measureArrivals(t trial) (timing, error) {
	const warmUp = 10
	r, err := newRunner(s.job, s.arrivals)
	if err != nil {
		return timing{}, err
	}
	start := time.Now()
	if _, _, err := s.apart(t, r, warmUp); err != nil {
		return timing{}, err
	}
	calls, err := s.samples(micros(time.Since(start)) / warmUp)
	if err != nil {
		return timing{}, err
	}
	sent, err := s.sent(t)
	if err != nil {
		return timing{}, err
	}
	us, loop, err := s.apart(t, r, calls)
	if err != nil {
		return timing{}, err
	}
	found, err := s.overRanks(us, sent)
	found.loop = loop
	return found, err
}

// apart returns the times of calls in microseconds, equal on every rank: us from the last arrival
// to the last end, and loop, the mean time from call to call. Results are verified after each call.
func (s *stopwatch) apart(t trial, r *runner, calls int) (us []float64, loop float64, err error) {
	arrived, ended := make([]float64, calls), make([]float64, calls)
	if err := s.begin(t, 0); err != nil {
		return nil, 0, err
	}
	start := r.now()
	for i := range calls {
		t.rewrite(i % salts)
		r.compute()
		arrived[i] = r.now()
		if err := t.call(); err != nil {
			return nil, 0, err
		}
		ended[i] = r.now()
		s.verify(t, i, i)
	}
	loop = (r.now() - start) / float64(calls)
	last, err := bench.Slowest(s.job.Group(), slices.Concat(arrived, ended, []float64{loop}))
	if err != nil {
		return nil, 0, err
	}
	us, loop = last[calls:2*calls], last[2*calls]
	for i := range us {
		us[i] -= last[i]
	}
	return us, loop, nil
}

// runner computes on a rank, with a clock common to all ranks of the host.
type runner struct {
	arrivals
	draws *rand.Rand
	perUS float64       // steps of spin per microsecond
	base  time.Time     // reference of the monotonic clock
	ahead time.Duration // base in the common clock
	spun  uint64
}

// newRunner synchronizes the clock. newRunner is a collective call for ranks of one host, because
// the clocks of hosts differ by more than the duration of calls.
func newRunner(job *ringo.Job, a arrivals) (*runner, error) {
	wall := []int64{time.Now().UnixNano()}
	if err := collective.Broadcast(job.Group(), wall, 0); err != nil {
		return nil, err
	}
	elsewhere := []int64{int64(job.Rank() - job.LocalRank())}
	if err := collective.AllReduce(job.Group(), elsewhere, collective.Max); err != nil {
		return nil, err
	}
	if elsewhere[0] != 0 {
		return nil, errors.New("--gap and --skew need ranks of one host, which have one clock: leave them out")
	}
	r := &runner{arrivals: a, draws: rand.New(rand.NewPCG(uint64(job.Rank()), 0)), base: time.Now()}
	r.ahead = clockOffset(r.base, wall[0])
	r.perUS = r.calibrate()
	return r, nil
}

// clockOffset returns the difference between base and a wall-clock time. All processes of a host
// read the same wall clock, which may be adjusted while the monotonic clock continues.
func clockOffset(base time.Time, wall int64) time.Duration {
	looks := make([]time.Duration, 99)
	for i := range looks { // the thread may lose its core between the two clocks
		t := time.Now()
		looks[i] = time.Duration(t.UnixNano()-wall) - t.Sub(base)
	}
	slices.Sort(looks)
	return looks[len(looks)/2]
}

func (r *runner) now() float64 { return micros(r.ahead + time.Since(r.base)) }

// compute computes for the next gap, in processor time: waits for a core do not count.
func (r *runner) compute() {
	d := r.gap
	if r.skew > 0 {
		d += time.Duration(r.draws.Int64N(int64(r.skew)))
	}
	r.spin(int(r.perUS * micros(d)))
}

func (r *runner) spin(steps int) {
	x := r.spun
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	r.spun = x
}

// calibrate returns the steps of spin per microsecond on an undisturbed core.
func (r *runner) calibrate() float64 {
	const steps, tries = 20000, 50
	best := time.Hour
	for range tries {
		start := time.Now()
		r.spin(steps)
		best = min(best, time.Since(start))
	}
	return steps / max(1e-3, micros(best))
}

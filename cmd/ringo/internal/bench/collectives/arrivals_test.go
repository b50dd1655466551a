package collectives

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench"
	"github.com/ringo-ml/ringo/cmd/ringo/internal/bench/benchtest"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

// Both commands time calls with computation between them, and say which.
func TestBenchArrivals(t *testing.T) {
	const more = " gap_us skew_us mean_us loop_us"
	line := "--np 3 --transport mem --time 1us --gap 20us --skew 30us --json - --floats 3,70000"
	status, out, errs := commandtest.Run(Command(&benchtest.Ranks{}), line+" --op all")
	sizes := 2*(len(operations())-1) + 1
	if status != 0 || !strings.Contains(errs, "from the last rank's arrival to the last one's end after 20µs to 50µs of computation") {
		t.Fatalf("status %d, stderr %s", status, errs)
	}
	for _, got := range commandtest.JSON(t, out, slices.Repeat([]string{collectiveFields + more}, sizes)...) {
		if got["wrong"] != 0. || got["gap_us"] != 20. || got["skew_us"] != 30. || got["iterations"] != float64(leastTimes) {
			t.Errorf("%v", got)
		}
	}
	status, out, errs = commandtest.Run(AllReduce(&benchtest.Ranks{}), line)
	if status != 0 {
		t.Fatalf("status %d, stderr %s", status, errs)
	}
	for _, got := range commandtest.JSON(t, out, slices.Repeat([]string{"bench np transport algorithm floats median_us min_us bytes_sent_per_rank busbw_gb_s iterations" + more}, 2)...) {
		if got["gap_us"] != 20. || got["mean_us"].(float64) < got["min_us"].(float64) || got["loop_us"].(float64) < 20 {
			t.Errorf("%v", got)
		}
	}
}

func TestBenchArrivalsRefuses(t *testing.T) {
	for _, c := range [][]string{
		{"--gap -1us", "--gap -1µs: want 0 to 1s"},
		{"--skew 2s", "--skew 2s: want 0 to 1s"},
		{"--np 2 --limit --gap 0s", "no effect with --limit"},
	} {
		commandtest.Refused(t, Command(&benchtest.Ranks{}), cli.UsageError, c[0], c[1:]...)
	}
	commandtest.Refused(t, AllReduce(&benchtest.Ranks{}), cli.UsageError, "--explain --skew 1us", "have no effect with --explain")
}

// A call costs the time from the last arrival to the last end: however late a rank comes, only what comes after counts.
func TestArrivalsCostWhatComesAfter(t *testing.T) {
	const late, slow = 30 * time.Millisecond, 20 * time.Millisecond
	err := ringo.Local(t.Context(), 2, ringo.Config{}, func(job *ringo.Job) error {
		watch := &stopwatch{job: job, budget: time.Microsecond, arrivals: arrivals{on: true}}
		trial := newTrial(spec{g: job.Group(), op: "allreduce", typ: "float32", count: 4, dst: make([]byte, 16)}, float32s)
		inner, rewrite := trial.call, trial.rewrite
		trial.rewrite = func(salt int) {
			rewrite(salt)
			if job.Rank() == 1 {
				time.Sleep(late)
			}
		}
		trial.call = func() error {
			err := inner()
			if job.Rank() == 0 {
				time.Sleep(slow)
			}
			return err
		}
		found, err := watch.measure(trial)
		if err != nil {
			return err
		}
		if least := found.us[0]; least < micros(slow) || least >= micros(late+slow) || found.wrong != 0 {
			return fmt.Errorf("a call took %v us after the last arrival, want %v and little more", least, slow)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Ranks compute for different times, the same in every run, which the computation is as long as.
func TestComputation(t *testing.T) {
	draw := func(rank uint64) *runner {
		return &runner{arrivals: arrivals{gap: time.Millisecond, skew: time.Millisecond}, draws: rand.New(rand.NewPCG(rank, 0)), perUS: 0.1}
	}
	a, b, c := draw(0), draw(0), draw(1)
	a.compute()
	b.compute()
	c.compute()
	if a.spun != b.spun || a.spun == c.spun || a.spun == 0 {
		t.Errorf("ranks 0, 0 and 1 computed %d, %d and %d", a.spun, b.spun, c.spun)
	}
	steps := func(n int) uint64 { r := new(runner); r.spin(n); return r.spun }
	within := false
	for n := 100; n < 200 && !within; n++ {
		within = steps(n) == a.spun
	}
	if !within {
		t.Error("rank 0 did not compute for 1 to 2 ms, at a step in 10 us")
	}
}

// A clock that is set back by any time still agrees with the others: what it showed when they agreed counts.
func TestAhead(t *testing.T) {
	base := time.Now()
	zero := base.UnixNano()
	r := &runner{base: base, ahead: clockOffset(base, zero-5000)}
	if d := clockOffset(base, zero); d < -time.Millisecond || d > time.Millisecond {
		t.Errorf("a clock is %v ahead of itself", d)
	}
	if got := r.now() - micros(time.Since(base)); got < 5-1000 || got > 5+1000 {
		t.Errorf("%v us ahead, want 5", got)
	}
	if bench.Mean([]float64{1, 2, 6}) != 3 {
		t.Error("the mean is not")
	}
}

package steptrace

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// RankTimes are mean times of a rank's last steps, in ms per step unless noted, without overlap.
type RankTimes struct {
	Number                                                                int
	StepMS, ComputeMS, DataMS, ServersMS, CompressMS, UpdateMS, ExposedMS float64
	// QueuedMS is the time of threads ready to run without a processor, summed over threads.
	QueuedMS float64
	// StorageBytes is the number of bytes per second read from storage for the rank.
	StorageBytes float64
}

// ExchangeTime is the exchange of a bucket, from the time when all ranks had begun it and earlier
// exchanges had ended, until its end.
type ExchangeTime struct {
	Bytes float64 // bytes sent by a rank
	MS    float64
}

// Job is the known data of a job.
type Job struct {
	Ranks []RankTimes
	// Exchanges are from sampled steps of all ranks; PerStep is their number per rank and step.
	Exchanges []ExchangeTime
	PerStep   int
	// Together is the share, from 0 to 1, of the ranks' waiting time for exchanges that no single
	// rank caused: all ranks had begun, or ranks waited for each other alternately. In the rest of
	// the time ranks waited for a later rank.
	Together float64
	// Foreign is the mean number of processors used outside the job; 0 means unknown.
	Foreign float64
}

// CauseKind is the kind of a cause.
type CauseKind string

// Values of CauseKind.
const (
	SlowRank     CauseKind = "slow_rank"     // one rank computes longer than the rest
	SlowDisk     CauseKind = "slow_disk"     // ranks wait for data, and storage is reading
	SlowData     CauseKind = "slow_data"     // ranks wait for data without reads from storage: preparing the data is slow
	SlowLink     CauseKind = "slow_link"     // exchanges are limited by bytes on a slow link
	SmallBuckets CauseKind = "small_buckets" // exchanges are limited by their number
	CoreTaken    CauseKind = "core_taken"    // other processes use processors that ranks need
)

// Cause is a reason for slow steps of a job.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Rank is the affected rank, -1: all.
	Rank int `json:"rank"`
	// MS is the cost per step, and Share the share of the step.
	MS    float64 `json:"cost_ms"`
	Share float64 `json:"cost_share"`
	// Text is the description for the user, with the remedy.
	Text string `json:"text"`
}

const (
	// conspicuous is the minimum share of a step for a cause to be reported.
	conspicuous = 0.2
	// slowLink is the rate, in bytes per second, below which a link is slow: 1 Gbit/s.
	slowLink = 125e6
	// reading is the bytes per second from storage above which storage causes waits for data.
	reading = 64 << 10
	// small is the size in bytes of small equal exchanges, and few a number too low for merging.
	small = 32 << 10
	few   = 4
)

// FindCause returns the cause with the highest cost; ok is false if no known cause costs more than
// a fifth of a step: smaller differences are normal on shared machines.
func FindCause(j Job) (c Cause, ok bool) {
	if len(j.Ranks) == 0 {
		return c, false
	}
	step := median(j.Ranks, func(r RankTimes) float64 { return r.StepMS })
	for _, one := range []func(Job, float64) Cause{coreTaken, dataWait, slowRank, exchanges} {
		if d := one(j, step); d.MS > c.MS {
			c = d
		}
	}
	c.Share = c.MS / step
	return c, c.Share > conspicuous // false for NaN
}

// Each function below gets the job and the median rank's step in ms, and returns the cost per step
// with its text, or no cost. The functions are independent: if two causes overlap, such as other
// processes and a rank slowed by them, the later function subtracts the other cost.

// coreTaken returns other processes' cost to the most affected rank, at most their time.
func coreTaken(j Job, step float64) Cause {
	c := Cause{Kind: CoreTaken, Rank: -1}
	for _, r := range j.Ranks {
		if ms := j.preemptedMS(r); ms > c.MS {
			c.MS, c.Rank = ms, r.Number
		}
	}
	c.Text = fmt.Sprintf("other processes run on %s processors of this host, and rank %d, whose step takes %s ms, waits %s ms for one: end them, or bind the job elsewhere (job.bind)", quantity.Float(j.Foreign), c.Rank, millis(step), millis(c.MS))
	return c
}

// preemptedMS returns the time per step that other processes used a rank's processor.
func (j Job) preemptedMS(r RankTimes) float64 {
	return min(r.QueuedMS, j.Foreign*r.StepMS, r.StepMS)
}

// dataWait returns the longest wait of a rank for data: the other ranks wait for that rank.
func dataWait(j Job, step float64) Cause {
	c := Cause{Kind: SlowData, Rank: -1}
	var longest RankTimes
	waiting := 0
	for _, r := range j.Ranks {
		if r.DataMS > longest.DataMS {
			longest = r
		}
		if r.DataMS > conspicuous*step {
			waiting++
		}
	}
	c.MS = longest.DataMS
	who := "ranks wait"
	if waiting < len(j.Ranks) || len(j.Ranks) == 1 {
		c.Rank = longest.Number
		who = fmt.Sprintf("rank %d waits", c.Rank)
	}
	c.Text = fmt.Sprintf("%s %s ms of a step of %s ms for data, which is in memory: preparing it takes so long; give loaders more threads", who, millis(c.MS), millis(step))
	if longest.StorageBytes >= reading {
		c.Kind = SlowDisk
		c.Text = fmt.Sprintf("%s %s ms of a step of %s ms for data, which storage reads at %s: a faster disk, or what fits into memory, would end that", who, millis(c.MS), millis(step), rate(longest.StorageBytes))
	}
	return c
}

// slowRank returns the extra time of a rank over the median of the rest, without the effects of
// other processes and waits for data.
func slowRank(j Job, step float64) Cause {
	c := Cause{Kind: SlowRank, Rank: -1}
	data := columnOf(j.Ranks, func(r RankTimes) float64 { return r.DataMS })
	for _, s := range Stragglers(j.Ranks) {
		r := j.Ranks[s.at]
		without := s.MS - max(0, r.DataMS-data.without(s.at)) - j.preemptedMS(r)
		if without > c.MS {
			c.MS, c.Rank, c.Text = without, s.Rank, s.Text
		}
	}
	return c
}

// exchanges returns the waits for exchanges that all ranks have begun: limited by bytes on a slow
// link, or by the number of exchanges. Time without a processor does not count.
func exchanges(j Job, step float64) Cause {
	n := len(j.Exchanges)
	if n == 0 || len(j.Ranks) < 2 {
		return Cause{}
	}
	// Ranks wait for the exchange that ends first, so the total wait is known only for all
	// together. Single exchanges give the reason, as hidden ones last as long.
	wait := j.Together*median(j.Ranks, func(r RankTimes) float64 { return r.ExposedMS }) - median(j.Ranks, func(r RankTimes) float64 { return r.QueuedMS })
	each, perByte := line(j.Exchanges)
	var bytes, ms float64
	for _, x := range j.Exchanges {
		bytes, ms = bytes+x.Bytes, ms+x.MS
	}
	if bytes == 0 || ms == 0 { // shared memory
		return Cause{}
	}
	// The intercept of the fitted line at zero bytes is the fixed cost of an exchange: the round
	// trip and waking the threads. A merged plan would have the fixed cost once.
	number := min(1, each*float64(n)/ms)
	if number > 0.5 {
		if j.PerStep <= few {
			return Cause{}
		}
		return Cause{Kind: SmallBuckets, Rank: -1, MS: wait * number, Text: fmt.Sprintf(
			"ranks wait %s ms of a step of %s ms for %d exchanges of %s in the mean, whose number takes that time, and not their bytes: merge layers into fewer buckets (--plan one, or --tune)",
			millis(wait), millis(step), j.PerStep, quantity.Traffic(bytes/float64(n)))}
	}
	speed := 1e3 / perByte
	if !(speed < slowLink) {
		return Cause{}
	}
	return Cause{Kind: SlowLink, Rank: -1, MS: wait * (1 - number), Text: fmt.Sprintf(
		"ranks wait %s ms of a step of %s ms for exchanges over a link that takes %s: send less (--strategy dlgs, or auto) or take a faster link", millis(wait), millis(step), rate(speed))}
}

// line returns the fixed cost of an exchange, in ms, and the cost per byte, by least squares if the
// sizes differ enough. The time of equal exchanges counts as per-byte cost, unless they are small.
func line(all []ExchangeTime) (each, perByte float64) {
	n := float64(len(all))
	var x, y float64
	for _, e := range all {
		x, y = x+e.Bytes/n, y+e.MS/n
	}
	var xx, xy float64
	for _, e := range all {
		xx, xy = xx+(e.Bytes-x)*(e.Bytes-x)/n, xy+(e.Bytes-x)*(e.MS-y)/n
	}
	if math.Sqrt(xx) < 0.1*x {
		if x < small {
			return y, 0
		}
		return 0, y / x
	}
	perByte = max(0, min(xy/xx, y/x))
	return y - perByte*x, perByte
}

// column is a value of all ranks, by rank and sorted.
type column struct{ of, sorted []float64 }

func columnOf(ranks []RankTimes, of func(RankTimes) float64) (c column) {
	for _, r := range ranks {
		c.of = append(c.of, of(r))
	}
	c.sorted = slices.Sorted(slices.Values(c.of))
	return c
}

// without returns the median of all other ranks.
func (c column) without(rank int) float64 {
	own, _ := slices.BinarySearch(c.sorted, c.of[rank])
	at := func(i int) float64 {
		if i >= own {
			i++
		}
		return c.sorted[i]
	}
	n := len(c.sorted) - 1
	return (at((n-1)/2) + at(n/2)) / 2
}

func median(ranks []RankTimes, of func(RankTimes) float64) float64 {
	all, n := columnOf(ranks, of).sorted, len(ranks)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func rate(bytes float64) string { return quantity.Traffic(bytes) + "/s" }

func millis(v float64) string { return quantity.Milliseconds(v) }

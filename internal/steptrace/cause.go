package steptrace

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/quantity"
)

// RankTimes is what one rank's last steps were like: means in ms of a step, if nothing else is
// said. Its parts do not overlap.
type RankTimes struct {
	Number                                                                int
	StepMS, ComputeMS, DataMS, ServersMS, CompressMS, UpdateMS, ExposedMS float64
	// QueuedMS is for how long its threads were ready to run and had no processor, all together.
	QueuedMS float64
	// StorageBytes is how many bytes a second storage has read for it.
	StorageBytes float64
}

// ExchangeTime is the exchange of a bucket from when all ranks had begun it, and those that ended
// before it had ended, until it had.
type ExchangeTime struct {
	Bytes float64 // that a rank has sent
	MS    float64
}

// Job is what is known of one.
type Job struct {
	Ranks []RankTimes
	// Exchanges are those of some steps that were looked at, of all ranks, and PerStep how many a rank has in a step.
	Exchanges []ExchangeTime
	PerStep   int
	// Together is which share of the time in which ranks waited for exchanges is nobody's, from 0 to 1: all had begun them, or ranks waited for
	// each other by turns. The rest they waited for one that comes later than they.
	Together float64
	// Foreign is how many of the machine's processors others than the job had, in the mean; 0 where that is not known.
	Foreign float64
}

// CauseKind is a cause.
type CauseKind string

// The causes.
const (
	SlowRank     CauseKind = "slow_rank"     // one rank computes longer than the others
	SlowDisk     CauseKind = "slow_disk"     // ranks wait for data, and storage reads it
	SlowData     CauseKind = "slow_data"     // ranks wait for data, which does not come from storage: to prepare it takes so long
	SlowLink     CauseKind = "slow_link"     // exchanges take as long as their bytes do on a slow link
	SmallBuckets CauseKind = "small_buckets" // exchanges take as long as their number does
	CoreTaken    CauseKind = "core_taken"    // other processes have processors that ranks want
)

// Cause is what slows a job.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Rank is which one it concerns, -1: all.
	Rank int `json:"rank"`
	// MS is what it costs of a step, and Share which part of the step.
	MS    float64 `json:"cost_ms"`
	Share float64 `json:"cost_share"`
	// Text says it to a person, with what to do.
	Text string `json:"text"`
}

const (
	// conspicuous is by which share of a step something must cost before it is named.
	conspicuous = 0.2
	// slowLink is below how many bytes a second a link is slow: 1 Gbit/s.
	slowLink = 125e6
	// reading is from how many bytes a second on storage is what data waits for.
	reading = 64 << 10
	// small is below how many bytes exchanges are small that are all alike, and few how many of a step are no many.
	small = 32 << 10
	few   = 4
)

// FindCause names what slows a job most; ok is false where nothing that it knows costs more than a
// fifth of a step: below that, steps of ranks on shared machines differ all the time.
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
	return c, c.Share > conspicuous // not where it is NaN
}

// The causes. Each is given what is known of the job and the median rank's step in ms, and returns what of the step it costs and the words for
// it, or no cost. They do not look at each other: where two cost something, such as a slow rank whose step is long because another process
// has its processor, the part of the one is taken off the other where it is computed.

// coreTaken is what other processes cost the rank that they cost most: no more than they ran.
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

// preemptedMS is for how long of a step others had a rank's processor.
func (j Job) preemptedMS(r RankTimes) float64 {
	return min(r.QueuedMS, j.Foreign*r.StepMS, r.StepMS)
}

// dataWait is what the rank waits for data that waits longest: the others wait for it.
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

// slowRank is what one rank takes longer of its own than the median of the others, beyond what others have taken from it and what it waits for data.
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

// exchanges is what ranks wait for exchanges that all have begun: for their bytes on a slow link, or for their number. What a rank lacks
// a processor meanwhile is no link's fault.
func exchanges(j Job, step float64) Cause {
	n := len(j.Exchanges)
	if n == 0 || len(j.Ranks) < 2 {
		return Cause{}
	}
	// Ranks wait for whichever exchange ends first, so that what they wait is of them all, and how much is known. What it is for,
	// is told by the exchanges one by one: those that go on while backward does are as long as those that are waited for.
	wait := j.Together*median(j.Ranks, func(r RankTimes) float64 { return r.ExposedMS }) - median(j.Ranks, func(r RankTimes) float64 { return r.QueuedMS })
	each, perByte := line(j.Exchanges)
	var bytes, ms float64
	for _, x := range j.Exchanges {
		bytes, ms = bytes+x.Bytes, ms+x.MS
	}
	if bytes == 0 || ms == 0 { // they share memory
		return Cause{}
	}
	// Of a line through exchanges the height at no bytes is what one costs that has none: the way there and back, and the threads that
	// wake up for it. A merged plan would have it once.
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

// line is what an exchange takes, in ms, and what a byte of it does besides: the line with the least squares, as far as sizes differ
// enough to tell. Exchanges that are all alike take their time for their bytes, unless these are few.
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

// column is a figure of all ranks, by rank and by size.
type column struct{ of, sorted []float64 }

func columnOf(ranks []RankTimes, of func(RankTimes) float64) (c column) {
	for _, r := range ranks {
		c.of = append(c.of, of(r))
	}
	c.sorted = slices.Sorted(slices.Values(c.of))
	return c
}

// without is the median of the others than a rank: the place of its own figure is passed over.
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

// median is that of a figure over the ranks.
func median(ranks []RankTimes, of func(RankTimes) float64) float64 {
	all, n := columnOf(ranks, of).sorted, len(ranks)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func rate(bytes float64) string { return quantity.Traffic(bytes) + "/s" }

func millis(v float64) string { return quantity.Milliseconds(v) }

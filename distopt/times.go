package distopt

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/watch/record"
)

// StepTimes has the parts of a step's time on this rank, and counts sent data. Compress, Exposed
// and Update do not overlap: the rest of the step is forward, backward and the caller's work.
type StepTimes struct {
	// Compress is the time in GradReady for selecting, rounding and casting values and for
	// residuals.
	Compress time.Duration
	// Exposed is the value of Optimizer.Exposed.
	Exposed time.Duration
	// Exchange is the time with at least one bucket exchange in flight. Backward hides the part
	// that is not in Exposed.
	Exchange time.Duration
	// Dense is the part of Exposed until this rank had the last sum of dense gradients. Rows is the
	// time from the dense update until it had all table rows. Under PartialUpdate Dense is 0.
	Dense, Rows time.Duration
	// Update is the rest of Step: updates that overlap no exchange.
	Update time.Duration
	// BytesSent is the number of payload bytes that this rank sent for dense gradients, or for the
	// part of the parameters that PartialUpdate averages. Table rows are not included.
	BytesSent int64
	// Density is the share of the parameters' values that this rank sent, 1 for all; with virtual
	// workers, the mean over this rank's workers. Padding between parameters does not count, except
	// under PartialUpdate.
	Density float64
	// Reuses reports whether the strategy selects by thresholds of earlier steps. ExactShare is the
	// share of values in selections of this step that were exact.
	Reuses     bool
	ExactShare float64
	// Skipped is the reason why no rank applied the step, see Config.NonFinite; nil if it was
	// applied. The other fields are then 0.
	Skipped error
}

// Times returns the times of the last step.
func (o *Optimizer) Times() StepTimes { return o.watch.last }

// Exposed is the communication time that backward did not hide: from the call of the last Step
// until this rank had the last sum. Under PartialUpdate, which exchanges after the update, it is
// the duration of the exchange.
func (o *Optimizer) Exposed() time.Duration { return o.watch.last.Exposed }

// LayerTimes describes a layer in the last step.
type LayerTimes struct {
	Name string
	// Density is the share of the layer's values that this rank contributed. If the sum excluded
	// entries, it is the share of the bucket's values.
	Density float64
	// Threshold is the least magnitude that is certainly sent; 0 if all values are sent.
	Threshold float32
	// ResidualNorm is the Euclidean norm of the layer's residual.
	ResidualNorm float64
}

// Layers appends a description of each layer in the last step to dst. Call it between steps. Cost:
// a pass over the residuals.
func (o *Optimizer) Layers(dst []LayerTimes) []LayerTimes {
	lo, hi := 0, len(o.params)
	if o.cfg.Strategy == PartialUpdate {
		lo, hi = o.partial.Lo, o.partial.Lo+len(o.partial.X)
	}
	for b, k := range o.plan {
		for i := k.First; i <= k.Last; i++ {
			l := o.layers[i]
			t := LayerTimes{Name: l.Name}
			values := l.Len - l.Pad
			sent := max(0, min(hi, l.Offset+values)-max(lo, l.Offset))
			if s := o.codec.entries(b); s != nil {
				sent = within(s.Index, l.Offset-k.Lo, l.Offset+l.Len-k.Lo)
				t.Threshold = o.codec.threshold(b, i-k.First)
			}
			t.Density = float64(sent) / float64(max(1, values))
			if at := o.requests[b].Sent; at.Excluded > 0 {
				t.Density = float64(at.Entries) / float64(max(1, valuesOf(o.layers[k.First:k.Last+1])))
			}
			if c := o.codec.local; c != nil {
				t.ResidualNorm = math.Sqrt(o.kernels.SumSquares(c.Residual(l.Offset, l.Offset+l.Len)))
			}
			dst = append(dst, t)
		}
	}
	return dst
}

// ResidualNorm is the Euclidean norm of all residuals; ok is false without residuals. Call it
// between steps. Cost: a pass over the residuals.
func (o *Optimizer) ResidualNorm() (norm float64, ok bool) {
	c := o.codec.local
	if c == nil || !c.Chain().Feedback() {
		return 0, false
	}
	return math.Sqrt(o.kernels.SumSquares(c.Residual(0, len(o.params)))), true
}

func valuesOf(layers []bucket.Param) (n int) {
	for _, l := range layers {
		n += l.Len - l.Pad
	}
	return n
}

// within counts the ascending indices from lo to below hi.
func within(index []int32, lo, hi int) int {
	below := func(end int) int {
		return sort.Search(len(index), func(i int) bool { return int(index[i]) >= end })
	}
	return below(hi) - below(lo)
}

// BucketTimes describes a bucket in the last step, for models of the costs of codecs and links.
type BucketTimes struct {
	Values   int
	Compress time.Duration
	// Exact reports whether each part of the bucket was selected exactly.
	Exact bool
	// Started and Ended are the beginning and the end of the bucket's exchange.
	Started, Ended time.Time
	Sent           exchange.Result
}

type stepTimer struct {
	now, last StepTimes
	start     time.Time // beginning of Step
	entries   int

	profiler *bucket.Profiler // nil: not profiling
	begun    time.Time        // beginning of the step
	buckets  []BucketTimes

	rec       *record.Recorder // the group's
	names     []record.Name    // bucket names
	exchanges []int64          // beginning of each bucket's exchange
	until     int64            // latest end of an exchange
	words     struct{ whole, tables, partition record.Name }
}

func newWatch(rec *record.Recorder) stepTimer {
	w := stepTimer{rec: rec}
	w.words.whole, w.words.tables, w.words.partition = rec.Name("all gradients"), rec.Name("tables"), rec.Name("partition")
	return w
}

// plan sets the names of a plan's buckets.
func (w *stepTimer) plan(names []string) {
	w.buckets, w.names, w.exchanges = nil, nil, make([]int64, len(names))
	for _, name := range names {
		w.names = append(w.names, w.rec.Name(name))
	}
}

func names(plan bucket.Plan, layers []bucket.Param) []string {
	out := make([]string, len(plan))
	for b, k := range plan {
		out[b] = fmt.Sprintf("bucket %d: %s", b, layers[k.First].Name)
		if k.Last > k.First {
			out[b] += " to " + layers[k.Last].Name
		}
	}
	return out
}

// Profile records, in a new profiler for the given number of steps, the time of each final gradient
// without the time in GradReady. It also enables Buckets. EndProfile ends both. Call it between
// steps. Without BeginForward, a step begins at the end of the step before.
func (o *Optimizer) Profile(steps int) (*bucket.Profiler, error) {
	if err := o.between("call Profile"); err != nil {
		return nil, err
	}
	p, err := bucket.NewProfiler(len(o.layers), steps)
	if err != nil {
		return nil, fmt.Errorf("distopt: %w", err)
	}
	o.watch.profiler, o.watch.begun = p, time.Now()
	return p, nil
}

// EndProfile ends profiling. Call it between steps.
func (o *Optimizer) EndProfile() { o.watch.profiler, o.watch.buckets = nil, nil }

// BeginForward marks the beginning of a step's computation, for Profile.
func (o *Optimizer) BeginForward() {
	if o.watch.profiler != nil {
		o.watch.begun = time.Now()
	}
}

// BeginBackward marks the beginning of the backward with GradReady, for Profile.
func (o *Optimizer) BeginBackward() {
	if p := o.watch.profiler; p != nil {
		p.Backward(time.Since(o.watch.begun))
	}
}

// Buckets appends a description of each bucket in the last step to dst; none without Profile.
func (o *Optimizer) Buckets(dst []BucketTimes) []BucketTimes {
	if o.watch.profiler == nil || len(o.watch.buckets) != len(o.plan) {
		return dst
	}
	for b, t := range o.watch.buckets {
		t.Values, t.Exact = o.plan[b].Len(), o.codec.exact(b)
		dst = append(dst, t)
	}
	return dst
}

// ready records a final gradient and, with a profiler, returns the time.
func (w *stepTimer) ready(param int) (now time.Time) {
	if w.profiler != nil {
		now = time.Now()
		_ = w.profiler.Ready(param, now.Sub(w.begun)) // the queue has checked param
	}
	return now
}

// compressDone excludes the time from since until now from the profile.
func (w *stepTimer) compressDone(since time.Time) {
	if w.profiler != nil {
		w.profiler.Exclude(time.Since(since))
	}
}

// compressed counts the codec's time for a bucket.
func (w *stepTimer) compressed(b int, start, end time.Time) {
	d := end.Sub(start)
	w.now.Compress += d
	if w.profiler != nil {
		w.at(b).Compress = d
	}
	w.rec.Span(record.Compress, w.names[b], w.rec.At(start), w.rec.At(end))
}

func (w *stepTimer) started(b int) {
	w.exchanges[b] = w.rec.Now()
}

func (w *stepTimer) at(b int) *BucketTimes {
	for len(w.buckets) <= b {
		w.buckets = append(w.buckets, BucketTimes{})
	}
	return &w.buckets[b]
}

func (w *stepTimer) begin() {
	w.start, w.last, w.entries = time.Now(), StepTimes{}, 0
}

// agreed records the end of a bucket's exchange.
func (w *stepTimer) agreed(end time.Time) {
	w.now.Exposed = max(w.now.Exposed, end.Sub(w.start))
	w.now.Dense = w.now.Exposed
}

// gathered records the end of the tables' exchange, and the wait from since; zero: no exchange.
func (w *stepTimer) gathered(since, end time.Time) {
	if end.IsZero() {
		return
	}
	w.now.Exposed = max(w.now.Exposed, end.Sub(w.start))
	w.now.Rows = max(0, end.Sub(since))
}

// sent counts a bucket's exchange.
func (w *stepTimer) sent(b int, end time.Time, s exchange.Result) {
	w.count(s)
	if w.profiler != nil {
		t := w.at(b)
		t.Started, t.Ended, t.Sent = w.rec.Time(w.exchanges[b]), end, s
	}
	w.exchanged(b, w.names[b], s, w.exchanges[b], end)
}

// exchanged records the exchange of a bucket; b is -1 for other data.
func (w *stepTimer) exchanged(b int, name record.Name, s exchange.Result, begun int64, end time.Time) {
	done := max(begun, w.rec.At(end))
	w.now.Exchange += time.Duration(max(0, done-max(begun, w.until)))
	w.until = max(w.until, done)
	w.rec.Add(&record.Event{
		Kind: record.PhaseKind, Phase: record.Exchange, Name: name, Algorithm: w.rec.Name(s.Algorithm), Bucket: int32(b), Other: -1, Peer: -1,
		Sent: s.Bytes, Begun: begun, Done: done,
	})
}

func (w *stepTimer) updated(name record.Name, begun int64) {
	w.rec.Span(record.Update, name, begun, w.rec.Now())
}

func (w *stepTimer) count(s exchange.Result) {
	w.now.BytesSent += s.Bytes
	w.entries += s.Entries
}

// end ends a step with n parameter values, without padding.
func (w *stepTimer) end(n int) error {
	now := time.Now()
	w.now.Update = max(0, now.Sub(w.start)-w.now.Exposed)
	w.now.Density = min(1, float64(w.entries)/float64(max(1, n)))
	if w.last, w.now = w.now, (StepTimes{}); w.last.Exposed > 0 {
		begun := w.rec.At(w.start)
		w.rec.Span(record.Exposed, 0, begun, begun+int64(w.last.Exposed))
	}
	if w.profiler == nil {
		return nil
	}
	w.begun = now
	return w.profiler.End()
}

// drop discards a failed step.
func (w *stepTimer) drop() {
	w.now = StepTimes{}
	if w.profiler != nil {
		w.profiler.Drop()
	}
}

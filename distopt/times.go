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

// StepTimes is where the time of a step went on this rank, besides the
// computation, and what it sent. Compress, Exposed and Update do not overlap:
// what is left of the step is forward, backward, and what the caller does.
type StepTimes struct {
	// Compress is spent in GradReady: selecting, rounding, casting, keeping the rest.
	Compress time.Duration
	// Exposed is as Optimizer.Exposed returns it.
	Exposed time.Duration
	// Exchange is for how long exchanges of buckets were under way, those at once counted once:
	// what of it is not Exposed backward hid.
	Exchange time.Duration
	// Dense is the part of Exposed until the last dense gradient was agreed, and Rows
	// that from when these were updated until the tables' rows were agreed. Under
	// PartialUpdate Dense is 0.
	Dense, Rows time.Duration
	// Update is the rest of Step: updates that did not happen while the exchange
	// went on.
	Update time.Duration
	// BytesSent is the payload of the dense gradients, or of PartialUpdate's
	// partition, that this rank sent; tables' rows are not counted.
	BytesSent int64
	// Density is the share of the parameters' values that this rank contributed, 1
	// where all are sent. Padding does not count, but in a partition of the parameters.
	Density float64
	// Reuses: the strategy selects by thresholds of earlier steps. Anew is the share
	// of the arena's values that lie where this step selected anew all the same.
	Reuses     bool
	ExactShare float64
	// Skipped is the reason why no rank applied the step, see Config.NonFinite; nil if it was
	// applied. The other fields are then 0.
	Skipped error
}

// Times are those of the last step.
func (o *Optimizer) Times() StepTimes { return o.watch.last }

// Exposed is the time from the end of the last step's backward, when Step was
// called, to when the last of its values were agreed: the communication that
// backward did not hide. For PartialUpdate, whose exchange begins after the
// update, it is the time of that exchange.
func (o *Optimizer) Exposed() time.Duration { return o.watch.last.Exposed }

// LayerTimes is what the last step did to a layer.
type LayerTimes struct {
	Name string
	// Density is the share of its values that this rank contributed; of its bucket's
	// where the sum left some out.
	Density float64
	// Threshold is the least magnitude that was certain to be sent; 0 where all are.
	Threshold float32
	// ResidualNorm is the Euclidean norm of what is kept of it.
	ResidualNorm float64
}

// Layers appends what the last step did to each layer to dst. It is called
// between steps and costs a pass over what is kept.
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

// ResidualNorm is the Euclidean norm of all that compression keeps for later steps; ok is false
// where it keeps nothing. It is called between steps and costs a pass over what is kept.
func (o *Optimizer) ResidualNorm() (norm float64, ok bool) {
	c := o.codec.local
	if c == nil || !c.Chain().Feedback() {
		return 0, false
	}
	return math.Sqrt(o.kernels.SumSquares(c.Residual(0, len(o.params)))), true
}

// valuesOf is how many values layers have, padding left out.
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

// BucketTimes is what the last step did to a bucket, for those who fit the costs
// of codecs and links.
type BucketTimes struct {
	Values   int
	Compress time.Duration
	// Exact: it was selected exactly, in each of its parts.
	Exact bool
	// Started is when its exchange started, Ended when it had ended.
	Started, Ended time.Time
	Sent           exchange.Result
}

// stepTimer measures steps.
type stepTimer struct {
	now, last StepTimes
	start     time.Time // of Step
	entries   int

	profiler *bucket.Profiler // nil: nobody wants to know
	begun    time.Time        // of the step
	buckets  []BucketTimes

	rec       *record.Recorder // the group's
	names     []record.Name    // of the buckets
	exchanges []int64          // when that of each bucket began
	until     int64            // when the last of those that have ended did
	words     struct{ whole, tables, partition record.Name }
}

// newWatch records in rec.
func newWatch(rec *record.Recorder) stepTimer {
	w := stepTimer{rec: rec}
	w.words.whole, w.words.tables, w.words.partition = rec.Name("all gradients"), rec.Name("tables"), rec.Name("partition")
	return w
}

// plan is told the names of a plan's buckets.
func (w *stepTimer) plan(names []string) {
	w.buckets, w.names, w.exchanges = nil, nil, make([]int64, len(names))
	for _, name := range names {
		w.names = append(w.names, w.rec.Name(name))
	}
}

// names are those of a plan's buckets.
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

// Profile makes steps report when each layer's gradient is final, less the time
// spent in GradReady, to a new profiler, which keeps so many steps, and Buckets
// measure, until EndProfile. It is called between steps. Where BeginForward is
// not called a step begins when the last one has ended.
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

// EndProfile ends what Profile began. It is called between steps.
func (o *Optimizer) EndProfile() { o.watch.profiler, o.watch.buckets = nil, nil }

// BeginForward says that a step's computation begins, for Profile.
func (o *Optimizer) BeginForward() {
	if o.watch.profiler != nil {
		o.watch.begun = time.Now()
	}
}

// BeginBackward says that the backward of GradReady begins, for Profile.
func (o *Optimizer) BeginBackward() {
	if p := o.watch.profiler; p != nil {
		p.Backward(time.Since(o.watch.begun))
	}
}

// Buckets appends what the last step did to each bucket of the plan to dst;
// nothing unless it was profiled.
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

// ready notes that a gradient is final and returns when that was, if anyone wants
// to know.
func (w *stepTimer) ready(param int) (now time.Time) {
	if w.profiler != nil {
		now = time.Now()
		_ = w.profiler.Ready(param, now.Sub(w.begun)) // the queue has checked it
	}
	return now
}

// compressDone ends what ready began.
func (w *stepTimer) compressDone(since time.Time) {
	if w.profiler != nil {
		w.profiler.Exclude(time.Since(since))
	}
}

// compressed counts what a codec took for a bucket.
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

// at is a bucket's entry.
func (w *stepTimer) at(b int) *BucketTimes {
	for len(w.buckets) <= b {
		w.buckets = append(w.buckets, BucketTimes{})
	}
	return &w.buckets[b]
}

// begin notes the end of backward.
func (w *stepTimer) begin() {
	w.start, w.last, w.entries = time.Now(), StepTimes{}, 0
}

// agreed notes when a bucket was.
func (w *stepTimer) agreed(end time.Time) {
	w.now.Exposed = max(w.now.Exposed, end.Sub(w.start))
	w.now.Dense = w.now.Exposed
}

// gathered notes when the tables' rows were, which were waited for since then; end
// is zero where there was nothing to wait for.
func (w *stepTimer) gathered(since, end time.Time) {
	if end.IsZero() {
		return
	}
	w.now.Exposed = max(w.now.Exposed, end.Sub(w.start))
	w.now.Rows = max(0, end.Sub(since))
}

// sent counts what a bucket's exchange was.
func (w *stepTimer) sent(b int, end time.Time, s exchange.Result) {
	w.count(s)
	if w.profiler != nil {
		t := w.at(b)
		t.Started, t.Ended, t.Sent = w.rec.Time(w.exchanges[b]), end, s
	}
	w.exchanged(b, w.names[b], s, w.exchanges[b], end)
}

// exchanged records the exchange of a bucket, or of what is none: -1.
func (w *stepTimer) exchanged(b int, name record.Name, s exchange.Result, begun int64, end time.Time) {
	done := max(begun, w.rec.At(end))
	w.now.Exchange += time.Duration(max(0, done-max(begun, w.until)))
	w.until = max(w.until, done)
	w.rec.Add(&record.Event{
		Kind: record.PhaseKind, Phase: record.Exchange, Name: name, Algorithm: w.rec.Name(s.Algorithm), Bucket: int32(b), Other: -1, Peer: -1,
		Sent: s.Bytes, Begun: begun, Done: done,
	})
}

// updated records an update that began then.
func (w *stepTimer) updated(name record.Name, begun int64) {
	w.rec.Span(record.Update, name, begun, w.rec.Now())
}

func (w *stepTimer) count(s exchange.Result) {
	w.now.BytesSent += s.Bytes
	w.entries += s.Entries
}

// end ends a step of n values without padding, which travels where all values do.
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

// drop forgets a step that failed.
func (w *stepTimer) drop() {
	w.now = StepTimes{}
	if w.profiler != nil {
		w.profiler.Drop()
	}
}

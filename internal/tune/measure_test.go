package tune

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/transport/mem"
)

func onRanks(t *testing.T, n int, f func(g *collective.Group) error) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for r, m := range mem.New(n) {
		all.Go(func() {
			g, err := collective.New(m, collective.Config{})
			if err == nil {
				err = f(g)
				err = errors.Join(err, g.Close())
			}
			if err != nil {
				errs[r] = fmt.Errorf("rank %d: %w", r, err)
			}
			_ = m.Close()
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// channel is a reducer with known exchange times, by bytes, one exchange at a time, and without
// sums.
type channel struct {
	short, long         time.Duration // per message, up to bound bytes and beyond
	bound               int64
	perByte             time.Duration
	perEntry            int64
	slower              time.Duration // this rank's extra time
	cast                time.Duration // per value to 16 bits, and the same back
	servers             int
	mu                  sync.Mutex
	busy                time.Time
	ends                map[*exchange.Request]time.Time
	most                int // values of the longest
	withoutNames, fails bool
}

func (c *channel) casts(op *exchange.Request) time.Duration {
	if op.Code == nil || op.Code.Code() != compress.CodeFP16 || op.Sparse != nil {
		return 0
	}
	return c.cast * time.Duration(len(op.X))
}

func (c *channel) Servers() int { return c.servers }

func (c *channel) Start(op *exchange.Request) {
	time.Sleep(c.casts(op))
	c.mu.Lock()
	defer c.mu.Unlock()
	op.Sent = exchange.Result{Algorithm: "short", Bytes: 4 * int64(len(op.X))}
	if op.Code != nil {
		op.Sent.Bytes = int64(op.Code.Size(len(op.X)))
	}
	op.Sent.Entries = len(op.X)
	if op.Sparse != nil {
		op.Sent.Entries = op.Sparse.Count()
		op.Sent.Bytes = c.perEntry * int64(op.Sparse.Count())
	}
	took := c.short
	if op.Sent.Bytes > c.bound {
		op.Sent.Algorithm, took = "long", c.long
	}
	if c.withoutNames {
		op.Sent.Algorithm = ""
	}
	if now := time.Now(); c.busy.Before(now) {
		c.busy = now
	}
	c.busy = c.busy.Add(took + c.slower + c.perByte*time.Duration(op.Sent.Bytes))
	if c.ends == nil {
		c.ends = map[*exchange.Request]time.Time{}
	}
	c.ends[op] = c.busy
	c.most = max(c.most, len(op.X))
}

func (c *channel) Wait(op *exchange.Request) (time.Time, error) {
	c.mu.Lock()
	end := c.ends[op]
	c.mu.Unlock()
	time.Sleep(time.Until(end))
	time.Sleep(c.casts(op))
	if c.fails {
		return end, errors.New("a broken link")
	}
	return end, nil
}

func (c *channel) Close() error { return nil }

func chainOf(t testing.TB, stages ...compress.Stage) *compress.Chain {
	t.Helper()
	c, err := compress.NewChain(stages...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func close1(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*want }

// The lines match the channel, per algorithm, on the slowest rank; all ranks agree; and the arena
// is left zero.
func TestExchange(t *testing.T) {
	for name, c := range map[string]struct {
		candidate Candidate
		unit      float64
		bound     int64
		bytes     func(values float64) float64
	}{
		"fp32": {Candidate{Name: "fp32"}, 4, 20000, func(n float64) float64 { return 4 * n }},
		"fp16": {Candidate{Name: "fp16", Chain: chainOf(t, compress.FP16{})}, 2, 20000, func(n float64) float64 { return 2 * n }},
		"topk": {Candidate{Name: "topk", Density: 0.01, Chain: chainOf(t, compress.TopK{Ratio: 0.01})}, 6, 2000, func(n float64) float64 { return 0.06 * n }},
	} {
		synctest.Test(t, func(t *testing.T) {
			links := make([][]bucket.LinkProfile, 3)
			onRanks(t, 3, func(g *collective.Group) error {
				arena := make([]float32, 1<<20)
				arena[len(arena)-1] = 7
				// 10 ns per byte; rank 1 takes 1 ms more
				r := &channel{short: time.Millisecond, long: 5 * time.Millisecond, bound: c.bound, perByte: 10, perEntry: 6}
				if g.Rank() == 1 {
					r.slower = time.Millisecond
				}
				var err error
				links[g.Rank()], _, err = Exchange(g, r, c.candidate, c.unit, arena)
				for i, v := range arena {
					if v != 0 {
						return fmt.Errorf("value %d of the arena is left %v", i, v)
					}
				}
				return err
			})
			if !reflect.DeepEqual(links[0], links[1]) || !reflect.DeepEqual(links[0], links[2]) {
				t.Errorf("%s: ranks differ: %+v", name, links)
			}
			if len(links[0]) != 2 {
				t.Fatalf("%s: %+v, want two algorithms", name, links[0])
			}
			short, long := links[0][0], links[0][1]
			if short.Algorithm != "short" || long.Algorithm != "long" || short.UpTo != long.Above || long.UpTo != 0 || short.Above != 0 || int64(short.UpTo) < c.bound/4 || int64(short.UpTo) > 4*c.bound {
				t.Errorf("%s: %+v", name, links[0])
			}
			if !close1(short.Fixed, 2e-3, 0.02) || !close1(long.Fixed, 6e-3, 0.02) || !close1(long.PerByte, 1e-8, 0.02) {
				t.Errorf("%s: %+v", name, links[0])
			}
			if short.Ranks != 3 || short.Hosts != 1 || (name == "topk") != (short.Payload == bucket.SparsePayload) || (name == "topk") != (short.Density == 0.01 && short.Unit == 6) {
				t.Errorf("%s: %+v", name, short)
			}
			f := bucket.Profile{Links: links[0]}
			costs := bucket.Costs{Sends: f.Sends(c.candidate.code(), c.candidate.payload(c.unit), 3, 1, 0)}
			for _, values := range []int{1 << 10, 1 << 16, 1 << 20} {
				_, took := costs.Send(values)
				want := 2e-3 + 1e-8*c.bytes(float64(values))
				if c.bytes(float64(values)) > float64(c.bound) {
					want += 4e-3
				}
				if !close1(took, want, 0.02) {
					t.Errorf("%s: %d values take %v s, want %v", name, values, took, want)
				}
			}
		})
	}
}

// A slow link is not measured for minutes, a reducer without algorithms gives one line, and a
// single size a constant.
func TestExchangeOfSlowLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onRanks(t, 2, func(g *collective.Group) error {
			r := &channel{short: time.Millisecond, long: time.Millisecond, perByte: time.Microsecond, withoutNames: true}
			start := time.Now()
			links, calls, err := Exchange(g, r, Candidate{Name: "fp32"}, 4, make([]float32, 1<<24)) // a minute and more for all
			if err != nil {
				return err
			}
			if took := time.Since(start); took > 20*time.Second || r.most > 1<<20 {
				return fmt.Errorf("measured for %v, up to %d values", took, r.most)
			}
			if len(links) != 1 || calls != (Calls{}) || links[0].Algorithm != "exchange" || !close1(links[0].PerByte, 1e-6, 0.01) || !close1(links[0].Fixed, 1e-3, 0.01) {
				return fmt.Errorf("%+v", links)
			}
			if links, _, err = Exchange(g, r, Candidate{Name: "fp32"}, 4, make([]float32, 250)); err != nil || len(links) != 1 || !close1(links[0].Fixed, 2e-3, 0.01) {
				return fmt.Errorf("one size: %+v, %v", links, err)
			}
			r.fails = true
			if _, _, err := Exchange(g, r, Candidate{Name: "fp32"}, 4, make([]float32, 250)); err == nil {
				return errors.New("a broken link was measured")
			}
			return nil
		})
		onRanks(t, 1, func(g *collective.Group) error {
			if links, _, err := Exchange(g, nil, Candidate{Name: "fp32"}, 4, make([]float32, 9)); links != nil || err != nil {
				return fmt.Errorf("one rank: %+v, %v", links, err)
			}
			return nil
		})
	})
}

// shared is a machine with a known Contention between exchanges and a computation, by a fake clock:
// the reducer and the load of one rank.
type shared struct {
	channel
	contention bucket.Contention
	credit     time.Duration // lateness recovered by links, at most an exchange's time
	turn       time.Duration
	queue      []queued // exchanges not yet seen beside the load
	late       float64  // ns of pure waiting left of the current exchange
}

// queued is an exchange's start and its wait beside a load.
type queued struct {
	begin time.Time
	late  float64 // ns
}

func (s *shared) Start(op *exchange.Request) {
	begin := time.Now()
	if s.busy.After(begin) {
		begin = s.busy
	}
	s.channel.Start(op)
	late := 1e9*s.contention.Late - float64(min(s.credit, s.busy.Sub(begin)))
	s.queue = append(s.queue, queued{begin, max(0, late)})
}

func (s *shared) Wait(op *exchange.Request) (time.Time, error) {
	s.queue = nil // the computation is over
	return s.channel.Wait(op)
}

// compute is a turn of the load.
func (s *shared) compute() {
	start := time.Now()
	if !s.busy.After(start) {
		time.Sleep(s.turn)
		return
	}
	work, more := float64(s.turn), 0.0
	if len(s.queue) > 0 && !s.queue[0].begin.After(start) {
		s.late, more = s.queue[0].late, s.queue[0].late
		s.queue = s.queue[1:]
		work += 1e9 * s.contention.Cut
	}
	time.Sleep(time.Duration(work / (1 - s.contention.Share)))
	spent := float64(time.Since(start))
	waits := min(spent, s.late)
	s.late -= waits
	more += (spent - waits) * (1 - 1/s.contention.Stretch)
	s.delay(start, time.Duration(more))
}

// delay delays all exchanges in progress.
func (s *shared) delay(start time.Time, more time.Duration) {
	for i := range s.queue {
		s.queue[i].begin = s.queue[i].begin.Add(more)
	}
	for op, end := range s.ends {
		if end.After(start) {
			s.ends[op] = end.Add(more)
		}
	}
	s.busy = s.busy.Add(more)
}

// The measured contention is the machine's, for short and long exchanges.
func TestContention(t *testing.T) {
	for _, want := range []bucket.Contention{
		{Stretch: 1},
		{Share: 0.4, Stretch: 1.25},
		{Share: 0.9, Stretch: 1.6, Late: 4e-3},
		{Share: 0.2, Stretch: 1, Late: 2e-3},
		{Share: 0.6, Stretch: 3},
		{Share: 0.2, Stretch: 1, Late: 1e-3, Cut: 1e-3},
		{Stretch: 1.5, Cut: 2e-4},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := make([]bucket.Contention, 2)
			onRanks(t, 2, func(g *collective.Group) (err error) {
				m := &shared{channel: channel{short: time.Millisecond, long: time.Millisecond, perByte: 100 * time.Nanosecond}, contention: want, turn: 100 * time.Microsecond}
				b := exchangeBench{g: g, r: m, c: Candidate{Name: "fp32"}, arena: make([]float32, 1<<18), payload: bucket.Payload{Unit: 4}}
				for _, size := range linkSizes(len(b.arena)) {
					if _, err := b.time(size); err != nil {
						return err
					}
				}
				b.load.compute = m.compute
				got[g.Rank()], err = b.contention()
				return err
			})
			if got[0] != got[1] {
				t.Errorf("ranks differ: %+v", got)
			}
			if math.Abs(got[0].Share-want.Share) > 0.03 || !close1(got[0].Stretch, want.Stretch, 0.05) || math.Abs(got[0].Late-want.Late) > 1e-3 || math.Abs(got[0].Cut-want.Cut) > 1e-4 {
				t.Errorf("%+v, want %+v", got[0], want)
			}
		})
	}
}

// Measured messages are as long as a plan's messages: lateness recovered by idle links does not
// count.
func TestContentionMakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &shared{channel: channel{short: time.Millisecond, long: time.Millisecond, perByte: 100 * time.Nanosecond}, contention: bucket.Contention{Late: 6e-3, Stretch: 1}, credit: 5 * time.Millisecond, turn: 100 * time.Microsecond}
		onRanks(t, 1, func(g *collective.Group) error {
			b := exchangeBench{g: g, r: m, c: Candidate{Name: "fp32"}, arena: make([]float32, 1<<18), payload: bucket.Payload{Unit: 4}}
			for _, size := range linkSizes(len(b.arena)) {
				if _, err := b.time(size); err != nil {
					return err
				}
			}
			b.load.compute = m.compute
			got, err := b.contention()
			if math.Abs(got.Late-1e-3) > 3e-4 || !close1(got.Stretch, 1, 0.02) {
				t.Errorf("%+v, want messages of 7 ms late by 1 ms; those of 1 ms are by 5", got)
			}
			return err
		})
	})
}

// A slow shortest message has no minutes of contention measurements.
func TestContentionOfSlowLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &shared{channel: channel{short: time.Second, long: time.Second}, contention: bucket.Contention{Late: 6e-3, Stretch: 1}, turn: 100 * time.Microsecond}
		onRanks(t, 1, func(g *collective.Group) error {
			b := exchangeBench{g: g, r: m, c: Candidate{Name: "fp32"}, arena: make([]float32, 1<<18), payload: bucket.Payload{Unit: 4}}
			if _, err := b.time(linkLeast); err != nil {
				return err
			}
			b.load.compute = m.compute
			start := time.Now()
			if got, err := b.contention(); err != nil || got != (bucket.Contention{}) || time.Since(start) > 0 {
				return fmt.Errorf("%+v, %w, after %v", got, err, time.Since(start))
			}
			return nil
		})
	})
}

// bounding drops half of the entries of a bounded sum, with a Group's result: some later entries in
// front.
type bounding struct {
	channel
	t     *testing.T
	whole []int32
}

func (b *bounding) Start(op *exchange.Request) {
	s := op.Sparse
	if op.MaxEntries != s.Count() || !slices.IsSorted(s.Index) {
		b.t.Errorf("%d of %d entries are exchanged again, sorted: %v", s.Count(), op.MaxEntries, slices.IsSorted(s.Index))
	}
	if len(b.whole) == s.Count() && !slices.Equal(b.whole, s.Index) {
		b.t.Error("other entries are exchanged again")
	}
	b.whole = slices.Clone(s.Index)
	b.channel.Start(op)
}

func (b *bounding) Wait(op *exchange.Request) (time.Time, error) {
	end, err := b.channel.Wait(op)
	slices.Reverse(op.Sparse.Index)
	n := op.Sparse.Count() / 2
	op.Sparse.Index, op.Sparse.Value = op.Sparse.Index[:n], op.Sparse.Value[:n]
	return end, err
}

// A bounded sum is measured with all entries each time.
func TestExchangeBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onRanks(t, 1, func(g *collective.Group) error {
			chain := chainOf(t, compress.TopK{Ratio: 0.1})
			r := &bounding{channel: channel{short: time.Millisecond, long: time.Millisecond, servers: 1}, t: t}
			links, _, err := Exchange(g, r, Candidate{Name: "topk", Chain: chain, Density: 0.1, Bounded: true}, 8, make([]float32, 1<<12))
			if err == nil && (len(links) == 0 || len(r.whole) == 0) {
				err = fmt.Errorf("%+v", links)
			}
			return err
		})
	})
}

// The computation's loss is by time, and the rest by messages; short exchanges cannot tell.
func TestLost(t *testing.T) {
	short := overlapped{load: 0.02, both: contended{load: 0.024, end: 0.01}}
	for _, c := range []struct {
		long       overlapped
		share, cut float64
	}{
		{overlapped{load: 0.15, both: contended{load: 0.17, end: 0.1}}, 0.2, 0.00025},
		{overlapped{load: 0.15, both: contended{load: 0.2, end: 0.1}}, 0.5, 0},
		{overlapped{load: 0.15, both: contended{load: 0.14, end: 0.1}}, 0, 0.0005},
		{overlapped{load: 0.02, both: contended{load: 0.021, end: 0.005}}, 1. / 3, 0}, // 5 ms of 15
		{overlapped{load: 0.02, both: contended{load: 0.01, end: 0.005}}, 0, 0},
	} {
		share, cut := lost(short, c.long, 8)
		if !close1(share, c.share, 1e-9) || !close1(cut, c.cut, 1e-9) {
			t.Errorf("%+v: share %v, cut %v, want %v and %v", c.long, share, cut, c.share, c.cut)
		}
	}
}

// Measurements of real links are valid, and equal on all ranks.
func TestContentionOverLinks(t *testing.T) {
	links := make([][]bucket.LinkProfile, 2)
	onRanks(t, 2, func(g *collective.Group) error {
		r, err := exchange.NewGroupReducer(g, exchange.Config{})
		if err != nil {
			return err
		}
		links[g.Rank()], _, err = Exchange(g, r, Candidate{Name: "fp32"}, 4, make([]float32, 1<<16))
		return errors.Join(err, r.Close())
	})
	if !reflect.DeepEqual(links[0], links[1]) {
		t.Errorf("ranks differ: %+v", links)
	}
	f := bucket.Profile{Ranks: 2, Layers: []bucket.LayerProfile{{Name: "a", Values: 1 << 16}}, Links: links[0]}
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
	if b := f.Contention("fp32", bucket.Payload{Unit: 4}, 2, 1, 0); b.Stretch < 1 || b != links[0][0].Contention {
		t.Errorf("%+v of %+v", b, links[0])
	}
}

// A bend is followed, noise is not, and every line has a slope.
func TestPieces(t *testing.T) {
	for name, c := range map[string]struct {
		seconds map[float64]float64
		want    string
	}{
		"line":  {map[float64]float64{1: 2, 4: 5, 16: 17, 64: 65}, "1-64"},
		"noise": {map[float64]float64{1: 2.05, 4: 4.9, 16: 17.3, 64: 64}, "1-64"},
		"burst": {map[float64]float64{1: 1, 4: 1.5, 16: 3.5, 64: 32, 256: 128, 257: 129}, "1-16 64-257"}, // slow beyond the burst
		"close": {map[float64]float64{16: 17, 20: 40}, "16-20"},
		"alone": {map[float64]float64{16: 17}, "16-16"},
		"rough": {map[float64]float64{1: 1, 4: 8, 16: 11, 64: 64, 256: 256, 300: 300}, "1-64 64-300"}, // the second is noise
		"bend":  {map[float64]float64{1: 10, 4: 11, 16: 12, 64: 48, 256: 192}, "1-16 16-256"},
	} {
		var points []point
		for _, size := range slices.Sorted(maps.Keys(c.seconds)) {
			points = append(points, point{Sample: bucket.Sample{Size: size, Seconds: c.seconds[size]}})
		}
		got := ""
		for _, run := range pieces(points) {
			got += fmt.Sprintf(" %v-%v", run[0].Size, run[len(run)-1].Size)
		}
		if got = got[1:]; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRuns(t *testing.T) {
	for sequence, want := range map[string]string{
		"a": "a", "aa": "aa", "aab": "aab", "abb": "abb", "aabb": "aa bb", "aabcc": "aa bcc", "abc": "abc", "aabbc": "aa bbc", "aba": "aba", "abab": "ab ab",
	} {
		var points []point
		for _, a := range sequence {
			points = append(points, point{algorithm: string(a)})
		}
		got := ""
		for i, run := range runs(points) {
			if i > 0 {
				got += " "
			}
			for _, p := range run {
				got += p.algorithm
			}
		}
		if got != want {
			t.Errorf("%s is cut into %s, want %s", sequence, got, want)
		}
	}
}

// Codec costs are positive, grow with the values, and agree on all ranks, and the sent bytes match
// the payload.
func TestCodec(t *testing.T) {
	for _, c := range []struct {
		candidate   Candidate
		least, most float64 // bytes per entry
	}{
		{Candidate{Name: "fp32"}, 4, 4},
		{Candidate{Name: "fp16", Chain: chainOf(t, compress.FP16{})}, 2, 2}, // cast by the exchange
		{Candidate{Name: "clip", Chain: chainOf(t, compress.Clip{Max: 1}, compress.BF16{})}, 2, 2},
		{Candidate{Name: "int8", Chain: chainOf(t, compress.Int8{})}, 1, 1.1},
		{Candidate{Name: "topk", Density: 0.01, Chain: chainOf(t, compress.TopK{Ratio: 0.01})}, 4.5, 8},
		{Candidate{Name: "dlgs", Density: 0.01, Every: 16, Chain: chainOf(t, compress.DLGS{Ratio: 0.01})}, 4.5, 8},
		{Candidate{Name: "clipped", Density: 0.01, Chain: chainOf(t, compress.Clip{Max: 4}, compress.TopK{Ratio: 0.01}, compress.FP16{})}, 2.5, 6},
	} {
		costs, units := make([]bucket.CodecProfile, 2), make([]float64, 2)
		onRanks(t, 2, func(g *collective.Group) (err error) {
			costs[g.Rank()], units[g.Rank()], err = Codec(g, c.candidate, nil, 1<<16)
			return err
		})
		if costs[0] != costs[1] || units[0] != units[1] || costs[0].Name != c.candidate.Name || costs[0].Density != c.candidate.Density {
			t.Errorf("%+v and %+v, %v bytes", costs[0], costs[1], units)
		}
		if units[0] < c.least || units[0] > c.most {
			t.Errorf("%s: %v bytes an entry, want %v to %v", c.candidate.Name, units[0], c.least, c.most)
		}
		if cost := costs[0].Exact; cost.Zero() != (c.candidate.local() == nil) || cost.At(1<<16) < cost.At(1<<10) {
			t.Errorf("%s: %+v", c.candidate.Name, costs[0])
		}
		if !c.candidate.reuses() && costs[0].Exact != costs[0].Reuse {
			t.Errorf("%s selects in one way, which costs %+v", c.candidate.Name, costs[0])
		}
	}
}

// Times are of the rank with the last final gradient.
func TestComputation(t *testing.T) {
	onRanks(t, 2, func(g *collective.Group) error {
		backward := [][]float64{{1, 5, 1}, {3, 1, 1}}[g.Rank()]
		forward, update, got, err := computation(g, float64(2-g.Rank()), float64(3+g.Rank()), backward)
		// final on rank 0 after 2, 3, 8, 9; on rank 1 after 1, 4, 5, 6
		if want := []float64{2, 4, 1}; err != nil || forward != 2 || update != 4 || !reflect.DeepEqual(got, want) {
			return fmt.Errorf("forward %v, update %v, backward %v, %v; want %v", forward, update, got, err, want)
		}
		return nil
	})
}

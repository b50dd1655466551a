package costmodel

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// queue is who does one thing after the other, in the order in which they come.
type queue struct {
	free, cores float64
	period      float64 // of its quota; 0: it has none
	now         float64 // the period that it is in
	left        float64 // of its quota there
}

// do is when something is done that came at a time and takes so long of a processor.
func (q *queue) do(at, takes float64) float64 {
	q.free = max(q.free, at)
	if q.period == 0 {
		q.free += takes / q.cores
		return q.free
	}
	if now := math.Floor(q.free / q.period); now > q.now {
		q.now, q.left = now, q.cores*q.period
	}
	for {
		next := max(q.free, (q.now+1)*q.period)
		runs := min(takes, q.left, next-q.free)
		takes, q.left = takes-runs, q.left-runs
		if takes <= 0 {
			q.free += runs
			return q.free
		}
		q.free, q.now, q.left = next, q.now+1, q.cores*q.period // the quota is used up, or the next one is there
	}
}

// beside is how much of a processor there is in so much time in which nothing is done.
func (q *queue) beside(idle float64) float64 {
	if q.period > 0 {
		return min(idle, max(0, q.left))
	}
	return idle * q.cores
}

// twin plays steps of a job one event after the other, with queues in place of formulas.
type twin struct {
	c                         Costs
	x                         Mix
	size                      float64
	n                         int
	trainers, servers, heters []queue
	ready, idle               []float64 // by trainer: rows are there; time in which it did nothing
	open                      float64   // heter-trainers take the next step's
	each, free                []float64 // by heter-trainer: what a micro-batch took lately, and when it is expected to be done with all
}

func newTwin(c Costs, x Mix, batch int) *twin {
	t := &twin{c: c, x: x, size: float64(batch), n: min(c.Micros, batch), ready: make([]float64, len(x.Trainers)), idle: make([]float64, len(x.Trainers))}
	for _, of := range []struct {
		cores []float64
		to    *[]queue
	}{{x.Trainers, &t.trainers}, {x.Servers, &t.servers}, {x.Heters, &t.heters}} {
		for _, cores := range of.cores {
			q := queue{cores: cores, now: -1}
			if cores < 1 {
				q.period = x.Period
			}
			*of.to = append(*of.to, q)
		}
	}
	t.each, t.free = make([]float64, len(x.Heters)), make([]float64, len(x.Heters))
	return t
}

// micro is a micro-batch under way.
type micro struct {
	trainer, i int
	comes      float64
}

// step plays a step of a model that is split.
func (t *twin) step() {
	n, link := float64(t.n), t.x.Link
	var all []micro
	for i := range t.trainers {
		sent := queue{cores: 1}
		at := t.ready[i]
		for j := range t.n {
			at = t.trainers[i].do(at, t.c.Pool.Of(t.size)/n)
			all = append(all, micro{i, j, sent.do(at, t.c.RequestBytes*t.size/n/link.Rate) + link.Latency})
		}
	}
	slices.SortStableFunc(all, func(a, b micro) int { return cmp.Compare(a.comes, b.comes) })
	back := make([][]float64, len(t.trainers))
	for i := range back {
		back[i] = make([]float64, t.n)
	}
	takes := t.c.Part.Sample * t.size / n
	for _, m := range all {
		m.comes = max(m.comes, t.open)
		best := t.choose(m.comes)
		begins := max(m.comes, t.heters[best].free)
		ends := t.heters[best].do(m.comes, takes)
		t.took(best, ends-begins)
		back[m.trainer][m.i] = ends + t.c.BackBytes*t.size/n/link.Rate + link.Latency
	}
	ended := make([]float64, len(t.trainers))
	for i := range t.trainers {
		for _, at := range back[i] {
			t.idle[i] += max(0, at-t.trainers[i].free)
			ended[i] = t.trainers[i].do(at, t.c.Back.Of(t.size)/n)
		}
	}
	t.open = t.agree(slices.Max(ended) + link.Latency)
	t.rows(t.c.OfSplit, ended)
}

// choose is who is expected to be done first with a micro-batch that comes at a time, by what each took lately, as package client expects it.
func (t *twin) choose(at float64) (best int) {
	ends := math.Inf(1)
	for h, each := range t.each {
		if end := max(at, t.free[h]) + each; end < ends {
			best, ends = h, end
		}
	}
	t.free[best] = ends
	return best
}

// took notes for how long a heter-trainer was at a micro-batch.
func (t *twin) took(h int, seconds float64) {
	if t.each[h] == 0 {
		t.each[h] = seconds
	}
	t.each[h] += (seconds - t.each[h]) / 4
}

// agree is when heter-trainers have moved their parameters that begin to agree at a time.
func (t *twin) agree(at float64) float64 {
	m, ends := float64(len(t.heters)), 0.0
	for i := range t.heters {
		ends = max(ends, t.heters[i].do(at, t.c.Part.Step+t.c.Agree*2*(m-1)/m))
	}
	return ends + 2*(m-1)*(t.c.PartBytes/m/t.x.Link.Rate+t.x.Link.Latency)
}

// rows pushes, and pulls when all have pushed, side by side.
func (t *twin) rows(s Side, ended []float64) {
	n, link, pushed := float64(len(t.servers)), t.x.Link, 0.0
	half := func(c Cost) float64 { return c.Of(t.size) / 2 }
	wires := make([]queue, len(t.servers))
	for i := range t.trainers {
		own := queue{cores: link.Rate}
		at := t.trainers[i].do(ended[i], half(s.Rows))
		for j := range t.servers {
			wires[j].cores = link.Rate
			comes := max(own.do(at, half(s.Bytes)/n), wires[j].do(at, half(s.Bytes)/n)) + link.Latency
			pushed = max(pushed, t.servers[j].do(comes, half(s.Serve)/n))
		}
	}
	pulled, k := 0.0, float64(len(t.trainers))
	for j := range t.servers {
		pulled = max(pulled, t.servers[j].do(pushed+2*link.Latency, k*half(s.Serve)/n))
	}
	pulled = max(pulled, pushed+2*link.Latency+max(k/n, 1)*half(s.Bytes)/link.Rate) + link.Latency
	for i := range t.trainers {
		// what was not read in idle time is read before the next step
		t.idle[i] += max(0, pulled-t.trainers[i].free)
		read := t.c.Read.Of(t.size)
		ahead := min(read, t.trainers[i].beside(t.idle[i]))
		t.trainers[i].left -= ahead
		at := t.trainers[i].do(pulled, half(s.Rows)+read-ahead)
		t.ready[i], t.idle[i] = at+s.Wait, s.Wait
	}
}

// whole plays a step of a model in one piece.
func (t *twin) whole() {
	ended := make([]float64, len(t.trainers))
	for i := range t.trainers {
		ended[i] = t.trainers[i].do(t.ready[i], t.c.Pass.Of(t.size))
	}
	t.rows(t.c.OfWhole, ended)
}

// rate is what is trained in the mean of many steps, the first ones left out.
func (t *twin) rate(step func()) float64 {
	const warm, steps = 5, 100 // whole periods
	for range warm {
		step()
	}
	begun := slices.Max(t.ready)
	for range steps {
		step()
	}
	return steps * float64(len(t.trainers)) * t.size / (slices.Max(t.ready) - begun)
}

func draw(r *rand.Rand) (Costs, Mix, int) {
	cost := func(step, sample float64) Cost { return Cost{step * r.Float64(), sample * math.Exp(r.NormFloat64())} }
	side := func() Side {
		return Side{Serve: cost(1e-3, 3e-6), Rows: cost(1e-3, 3e-6), Bytes: cost(1e3, 300), Wait: 1e-3 * r.Float64()}
	}
	c := Costs{
		Batch: 512, Micros: 1 + r.IntN(8), Pool: cost(1e-4, 2e-6), Back: cost(1e-4, 2e-6), Part: cost(2e-3, 2e-5), Pass: cost(2e-3, 3e-5),
		OfSplit: side(), OfWhole: side(), RequestBytes: 1000, BackBytes: 1000, PartBytes: 1e6, Agree: 1e-3 * r.Float64(), Read: cost(0, 1e-6),
	}
	cores := func(most int) (out []float64) {
		each := 0.25 + r.Float64()
		for range 1 + r.IntN(most) {
			out = append(out, each)
		}
		return out
	}
	x := Mix{Trainers: cores(4), Servers: cores(2), Heters: cores(3), Link: Link{Rate: 1e9, Latency: 2e-5}}
	if r.IntN(2) == 0 {
		x.Heters[0] /= 2
	}
	return c, x, 64 << r.IntN(4)
}

// The formulas say what playing a job event by event says, the less so where quotas have processes stop now and then.
func TestAgainstTwin(t *testing.T) {
	for _, of := range []struct{ period, mean, most, worst float64 }{{0, 0.03, 0.1, 0.3}, {0.1, 0.04, 0.18, 0.6}} {
		r := rand.New(rand.NewPCG(1, 2))
		var far []float64
		for range 500 {
			c, x, batch := draw(r)
			x.Period = of.period
			if err := errors.Join(c.Validate(), x.Validate()); err != nil {
				t.Fatal(err)
			}
			split, whole := newTwin(c, x, batch), newTwin(c, x, batch)
			far = append(far, c.Split(x, batch).Rate/split.rate(split.step)-1, c.Whole(x, batch).Rate/whole.rate(whole.whole)-1)
		}
		mean := 0.0
		for i := range far {
			far[i] = math.Abs(far[i])
			mean += far[i] / float64(len(far))
		}
		slices.Sort(far)
		most, worst := far[len(far)*95/100], far[len(far)-1]
		t.Logf("periods of %v s: mean error %.1f %%, 95 %% within %.1f %%, worst %.1f %%", of.period, 100*mean, 100*most, 100*worst)
		if mean > of.mean || most > of.most || worst > of.worst {
			t.Errorf("periods of %v s: a mean error of %.1f %%, 95 %% within %.1f %%, worst %.1f %%", of.period, 100*mean, 100*most, 100*worst)
		}
	}
}

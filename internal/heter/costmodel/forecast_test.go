package costmodel

import (
	"math"
	"strings"
	"testing"
)

// A part takes 40 us a sample of a processor, a trainer 10 us besides, and 5 us more in one piece than 40.
func plain() Costs {
	return Costs{
		Model: "m", Batch: 100, Micros: 1, Pool: Cost{Sample: 4e-6}, Back: Cost{Sample: 4e-6}, Part: Cost{Sample: 40e-6}, Pass: Cost{Sample: 48e-6},
		OfSplit: Side{Rows: Cost{Sample: 2e-6}}, OfWhole: Side{Rows: Cost{Sample: 2e-6}},
	}
}

func fast() Link { return Link{Rate: math.Inf(1)} }

// By hand: a batch of 100 takes 0.4 ms there, 4 ms at the part, 0.4 ms back and 0.2 ms for its rows.
func TestByHand(t *testing.T) {
	c := plain()
	x := Mix{Trainers: []float64{1}, Servers: []float64{1}, Heters: []float64{1}, Link: fast()}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f := c.Split(x, 100)
	near("step", f.Step, 5e-3)
	near("rate", f.Rate, 20_000)
	near("fill", f.Fill, 1e-3)
	near("heter-trainers", f.Bounds[HeterTrainer], 4e-3)
	near("in one piece", c.Whole(x, 100).Rate, 20_000)
	if f.By != HeterTrainer {
		t.Errorf("bound by %s", f.By)
	}
	x.Heters[0] = 10 // 0.4 ms at the part
	near("a fast one", c.Split(x, 100).Rate, 100/1.4e-3)
	x.Link = Link{Rate: 1e8, Latency: 1e-4} // 10 kB there take 0.1 ms
	c.RequestBytes = 100
	near("a link", c.Split(x, 100).Step, 1.4e-3+0.1e-3+2*0.1e-3+4*0.1e-3)
}

// A process with a quota is as fast as a whole processor while it lasts, and has no more than that in all.
func TestQuota(t *testing.T) {
	x := Mix{Period: 0.1}
	for _, c := range []struct{ cores, work, want float64 }{
		{2, 1, 2}, {0.5, 0, 0.5}, {0.5, 0.05, 1}, {0.5, 0.001, 1}, {0.5, 0.1, 1}, {0.5, 0.2, 0.2 / 0.3}, {0.1, 0.02, 0.02 / 0.1},
	} {
		if got := x.speed(c.cores, c.work); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v processors, %v s of work: speed %v, want %v", c.cores, c.work, got, c.want)
		}
	}
	c, y := plain(), Mix{Trainers: []float64{1}, Servers: []float64{1}, Heters: []float64{0.5}, Link: fast(), Period: 0.1}
	if f := c.Split(y, 100); math.Abs(f.Step-8e-3) > 1e-9 || f.By != HeterTrainer || f.Fill != 0 {
		t.Errorf("4 ms in 8 ms each: %+v", f) // the 5 ms of TestByHand fit in
	}
	y.Period = 0
	if f := c.Split(y, 100); math.Abs(f.Step-9e-3) > 1e-9 {
		t.Errorf("a processor half as fast: %+v", f)
	}
}

// Of 12 machines as fast as each other a part that takes four times what is left wants four of five.
func TestBest(t *testing.T) {
	c := plain()
	c.Micros = 64 // hardly anything to fill
	x := Mix{Trainers: []float64{1}, Servers: []float64{1}, Heters: []float64{1}, Link: fast()}
	best := c.Best(x, 6400, 15)
	if best.Trainers != 3 || best.Heters != 12 {
		t.Errorf("%d:%d, want 3:12: %+v", best.Trainers, best.Heters, best.Forecast)
	}
	x.Trainers, x.Heters = make([]float64, best.Trainers), make([]float64, best.Heters)
	for i := range x.Trainers {
		x.Trainers[i] = 1
	}
	for i := range x.Heters {
		x.Heters[i] = 1
	}
	whole := c.Unsplit(x, 6400)
	if whole.Trainers != 15 || whole.Dear || !(whole.Rate > best.Rate) {
		t.Errorf("in one piece %+v: machines of one kind need no split, which reaches %v", whole, best.Rate)
	}
	for i := range x.Heters {
		x.Heters[i] = 10
	}
	if whole, split := c.Unsplit(x, 6400), c.Best(x, 6400, 15); !whole.Dear || split.Trainers <= 3 {
		t.Errorf("in one piece %+v, split %+v", whole, split)
	}
}

// Pieces go to who is done with them first.
func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		cores []float64
		n     int
		want  float64
	}{{[]float64{1}, 4, 4}, {[]float64{1, 1}, 4, 2}, {[]float64{1, 1}, 5, 3}, {[]float64{1, 0.5}, 4, 3}, {[]float64{4, 1}, 5, 1}} {
		if got := last(deal(c.cores, c.n, 1), c.cores, 1); got != c.want {
			t.Errorf("%d to %v: done after %v, want %v", c.n, c.cores, got, c.want)
		}
	}
}

func TestFaults(t *testing.T) {
	c := plain()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	bad := Costs{Micros: -1, Pool: Cost{Sample: math.NaN()}, RequestBytes: math.Inf(1)}
	err := bad.Validate()
	for _, want := range []string{"batch 0", "-1 micro-batches", "pool: sample NaN", "there +Inf", "takes no time"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	err = Mix{Servers: []float64{0}}.Validate()
	for _, want := range []string{"no trainer", "server 0 has 0 processors", "links of 0 bytes/s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

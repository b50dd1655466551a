package distopt

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/watch/record"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/transport"
)

// toy has layers of awkward sizes; offsets follow each other.
func toy() []bucket.Param {
	var layers []bucket.Param
	at := 0
	for i, n := range []int{16, 4096, 32, 48, 16384, 64, 1} {
		layers = append(layers, bucket.Param{Name: fmt.Sprintf("layer%d", i), Offset: at, Len: n})
		at += n
	}
	return layers
}

func total(layers []bucket.Param) int {
	last := layers[len(layers)-1]
	return last.Offset + last.Len
}

// onRanks runs fn on n ranks over memory and fails the test on their errors.
func onRanks(t *testing.T, n int, fn func(g *collective.Group) error) {
	t.Helper()
	if err := errors.Join(ranks(t, n, fn)...); err != nil {
		t.Fatal(err)
	}
}

func ranks(t *testing.T, n int, fn func(g *collective.Group) error) []error {
	t.Helper()
	errs, done := make([]error, n), make(chan struct{})
	for _, m := range mem.New(n) {
		go func() {
			defer func() { done <- struct{}{} }()
			errs[m.Rank()] = onMesh(m, fn)
		}()
	}
	for range n {
		<-done
	}
	return errs
}

func onMesh(m transport.Mesh, fn func(g *collective.Group) error) error {
	g, err := collective.New(m, collective.Config{Timeout: 5 * time.Second, Record: record.New(record.Config{})})
	if err != nil {
		return err
	}
	if err := fn(g); err != nil {
		m.Abort(err)
		return err
	}
	if err := collective.Barrier(g); err != nil {
		return err
	}
	return errors.Join(g.Close(), m.Close())
}

// gradient is rank's gradient of one backward.
func gradient(dst []float32, step, micro, rank int) {
	rnd := rand.New(rand.NewPCG(uint64(step*100+micro), uint64(rank)))
	for i := range dst {
		dst[i] = float32(rnd.NormFloat64())
	}
}

// oracle trains one replica in float64 on the mean of all ranks' gradients.
type oracle struct{ p, v []float64 }

func newOracle(params []float32) *oracle {
	o := &oracle{p: make([]float64, len(params)), v: make([]float64, len(params))}
	for i, x := range params {
		o.p[i] = float64(x)
	}
	return o
}

func (o *oracle) step(mean []float64, sgd optim.SGD, clip float64) {
	norm := 0.0
	for _, g := range mean {
		norm += g * g
	}
	scale := 1.0
	if norm = math.Sqrt(norm); clip > 0 && norm > clip {
		scale = clip / norm
	}
	for i, g := range mean {
		g = g*scale + sgd.WeightDecay*o.p[i]
		o.v[i] = sgd.Momentum*o.v[i] + g
		o.p[i] -= sgd.LR * o.v[i]
	}
}

func meanGradient(n, size, step, accumulation int) []float64 {
	mean, one := make([]float64, n), make([]float32, n)
	for rank := range size {
		for micro := range accumulation {
			gradient(one, step, micro, rank)
			for i, g := range one {
				mean[i] += float64(g) / float64(size*accumulation)
			}
		}
	}
	return mean
}

func (o *oracle) compare(t *testing.T, what string, params []float32) {
	t.Helper()
	for i, want := range o.p {
		if math.Abs(float64(params[i])-want) > 1e-4 {
			t.Fatalf("%s: parameter %d is %v, want %v", what, i, params[i], want)
		}
	}
}

// backward fills the arena as accumulation backwards would and reports the
// layers in the given order.
func backward(o *Optimizer, grads []float32, step, rank, accumulation int, order []int) {
	one := make([]float32, len(grads))
	clear(grads)
	for micro := range accumulation {
		gradient(one, step, micro, rank)
		for i, g := range one {
			grads[i] += g
		}
	}
	for _, l := range order {
		o.GradReady(l)
	}
}

var testSGD = optim.SGD{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01}

// Every plan, world size, clipping and accumulation gives what one replica gets
// from the mean gradient, with the same bits on all ranks.
func TestAverageEqualsOneReplica(t *testing.T) {
	for _, cfg := range []Config{
		{}, {Plan: PlanOne}, {Plan: PlanPerLayer}, {Plan: PlanFixed, BucketBytes: 20000},
		{ClipNorm: 1.5}, {Accumulation: 3}, {Plan: PlanPerLayer, ClipNorm: 0.5, Accumulation: 2},
	} {
		for _, size := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%+v/%d", cfg, size), func(t *testing.T) { averageEqualsOne(t, cfg, size) })
		}
	}
}

func averageEqualsOne(t *testing.T, cfg Config, size int) {
	layers := toy()
	n := total(layers)
	results := make([][]float32, size)
	start := make([]float32, n)
	gradient(start, 1000, 0, 0)
	onRanks(t, size, func(g *collective.Group) error {
		params, grads := make([]float32, n), make([]float32, n)
		gradient(params, 1000, 0, g.Rank()) // only rank 0's must survive
		results[g.Rank()] = params
		sgd := testSGD
		o, err := New(g, &sgd, layers, params, grads, nil, cfg)
		if err != nil {
			return err
		}
		if err := o.Broadcast(); err != nil {
			return err
		}
		order := rand.New(rand.NewPCG(7, uint64(g.Rank()))) // any order of readiness
		for step := range 4 {
			backward(o, grads, step, g.Rank(), max(1, cfg.Accumulation), order.Perm(len(layers)))
			if err := o.Step(); err != nil {
				return err
			}
		}
		if o.Steps() != 4 {
			return fmt.Errorf("%d steps counted, want 4", o.Steps())
		}
		return nil
	})
	want := newOracle(start)
	for step := range 4 {
		want.step(meanGradient(n, size, step, max(1, cfg.Accumulation)), testSGD, cfg.ClipNorm)
	}
	for rank, got := range results {
		want.compare(t, fmt.Sprintf("rank %d", rank), got)
		requireSameBits(t, results[0], got, rank)
	}
}

func requireSameBits(t *testing.T, a, b []float32, rank int) {
	t.Helper()
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			t.Fatalf("parameter %d: rank 0 has %v, rank %d has %v", i, a[i], rank, b[i])
		}
	}
}

// Under PartialUpdate each rank updates with its own gradient and one partition
// is averaged per step; Sync makes the replicas equal; leaving it keeps them
// equal for good.
func TestPartialUpdate(t *testing.T) {
	layers, size := toy(), 3
	n := total(layers)
	var after, later [3][]float32
	onRanks(t, size, func(g *collective.Group) error {
		params, grads := make([]float32, n), make([]float32, n)
		sgd := testSGD
		o, err := New(g, &sgd, layers, params, grads, nil, Config{Strategy: PartialUpdate, Partitions: 3})
		if err != nil {
			return err
		}
		order := make([]int, len(layers))
		for i := range order {
			order[i] = i
		}
		train := func(from, to int) error {
			for step := from; step < to; step++ {
				backward(o, grads, step, g.Rank(), 1, order)
				if err := o.Step(); err != nil {
					return err
				}
			}
			return nil
		}
		if err := train(0, 5); err != nil {
			return err
		}
		if err := o.Sync(); err != nil {
			return err
		}
		after[g.Rank()] = append([]float32(nil), params...)
		if err := o.SetStrategy(FP32); err != nil {
			return err
		}
		if err := train(5, 8); err != nil {
			return err
		}
		later[g.Rank()] = params
		return nil
	})
	want := partialOracle(layers, size, 3, 5)
	want.compare(t, "after Sync", after[0])
	for rank := range size {
		requireSameBits(t, after[0], after[rank], rank)
		requireSameBits(t, later[0], later[rank], rank)
	}
}

// partialOracle trains size replicas apart, averages partition step%k of them
// after each step, and at the end everything.
func partialOracle(layers []bucket.Param, size, k, steps int) *oracle {
	n := total(layers)
	replicas := make([]*oracle, size)
	for r := range replicas {
		replicas[r] = newOracle(make([]float32, n))
	}
	average := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			sum := 0.0
			for _, r := range replicas {
				sum += r.p[i]
			}
			for _, r := range replicas {
				r.p[i] = sum / float64(size)
			}
		}
	}
	one, own := make([]float32, n), make([]float64, n)
	for step := range steps {
		for rank, r := range replicas {
			gradient(one, step, 0, rank)
			for i, g := range one {
				own[i] = float64(g)
			}
			r.step(own, testSGD, 0)
		}
		average(partition(n, k, step%k))
	}
	average(0, n)
	return replicas[0]
}

func TestPartitionsCoverTheArena(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 100, 431080} {
		for k := 1; k < 9; k++ {
			at := 0
			for i := range k {
				lo, hi := partition(n, k, i)
				if lo != at || hi < lo || hi > n || hi%16 != 0 && hi != n {
					t.Fatalf("n %d, part %d of %d: [%d,%d) after %d", n, i, k, lo, hi, at)
				}
				at = hi
			}
			if at != n {
				t.Fatalf("n %d in %d parts ends at %d", n, k, at)
			}
		}
	}
}

// Faults name the step and the layer or the bucket, and stay.
func TestFaults(t *testing.T) {
	layers := toy()
	n := total(layers)
	setup := func(g *collective.Group, cfg Config) (*Optimizer, []float32) {
		grads := make([]float32, n)
		sgd := testSGD
		o, err := New(g, &sgd, layers, make([]float32, n), grads, nil, cfg)
		if err != nil {
			t.Error(err)
		}
		return o, grads
	}
	contains := func(err error, words ...string) {
		t.Helper()
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v does not contain %q", err, w)
			}
		}
	}
	ranks(t, 1, func(g *collective.Group) error {
		o, _ := setup(g, Config{})
		o.GradReady(0)
		err := o.Step()
		contains(err, "step 0", "layer 1 (layer1)")
		if again := o.Step(); again == nil || again.Error() != err.Error() {
			t.Errorf("the second Step says %v, want the first fault %v", again, err)
		}
		o, grads := setup(g, Config{ClipNorm: 1})
		backward(o, grads, 0, 0, 1, []int{0, 1, 2, 3, 4, 5, 6})
		grads[layers[4].Offset+5] = float32(math.NaN())
		contains(o.Step(), "step 0", "NaN", "layer4")
		o, _ = setup(g, Config{})
		o.GradReady(2)
		o.GradReady(2)
		contains(o.Step(), "layer2")
		return nil
	})
}

// What would change the exchanges under way is refused in the middle of a step,
// and harmless.
func TestBetweenSteps(t *testing.T) {
	layers := toy()
	n := total(layers)
	for _, from := range Strategies() {
		for _, err := range ranks(t, 2, func(g *collective.Group) error {
			sgd := testSGD
			o, err := New(g, &sgd, layers, make([]float32, n), make([]float32, n), nil, Config{Strategy: from, Reducer: newNaive(g)})
			if err != nil {
				return err
			}
			o.GradReady(0)
			for _, to := range Strategies() {
				if err := o.SetStrategy(to); err == nil || !strings.Contains(err.Error(), "step 0 has begun") {
					return fmt.Errorf("from %s to %s in a step: %v", from, to, err)
				}
			}
			if err := o.Broadcast(); err == nil {
				return fmt.Errorf("%s: Broadcast in a step", from)
			}
			if err := o.Sync(); (err == nil) == (from == PartialUpdate) {
				return fmt.Errorf("%s: Sync in a step: %v", from, err)
			}
			for l := 1; l < len(layers); l++ {
				o.GradReady(l)
			}
			if err := o.Step(); err != nil {
				return err
			}
			return o.SetStrategy(FP32)
		}) {
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// Ranks with different models are refused by New, on all ranks.
func TestDifferentModels(t *testing.T) {
	errs := ranks(t, 2, func(g *collective.Group) error {
		layers := toy()
		if g.Rank() == 1 {
			layers = layers[:3]
		}
		n := total(layers)
		sgd := testSGD
		_, err := New(g, &sgd, layers, make([]float32, n), make([]float32, n), nil, Config{Plan: PlanPerLayer})
		return err
	})
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "model") {
		t.Errorf("rank 1: %v", errs[1])
	}
}

func TestArenasMustFit(t *testing.T) {
	layers := toy()
	n := total(layers)
	ranks(t, 1, func(g *collective.Group) error {
		sgd := testSGD
		if _, err := New(g, &sgd, layers, make([]float32, n-1), make([]float32, n), nil, Config{}); err == nil {
			t.Error("a short arena was accepted")
		}
		if _, err := New(g, &sgd, layers[1:], make([]float32, n), make([]float32, n), nil, Config{ClipNorm: -1}); err == nil || strings.Count(err.Error(), "\n") == 0 {
			t.Errorf("%v: want both faults", err)
		}
		if _, err := New(g, &optim.SGD{}, layers, make([]float32, n), make([]float32, n), nil, Config{}); err == nil {
			t.Error("a learning rate of 0 was accepted")
		}
		return nil
	})
}

// A steady step allocates nothing on rank 0 while its peer trains along.
func TestStepAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	layers := toy()
	n := total(layers)
	const steps = 50
	onRanks(t, 2, func(g *collective.Group) error {
		grads := make([]float32, n)
		sgd := testSGD
		o, err := New(g, &sgd, layers, make([]float32, n), grads, nil, Config{Plan: PlanPerLayer})
		if err != nil {
			return err
		}
		step := func() {
			for l := range layers {
				o.GradReady(l)
			}
			if err := o.Step(); err != nil {
				t.Error(err)
			}
		}
		for range 10 {
			step()
		}
		if g.Rank() == 1 {
			for range steps + 1 {
				step()
			}
			return nil
		}
		if per := testing.AllocsPerRun(steps, step); per >= 1 {
			t.Errorf("%v allocations per step", per)
		}
		return nil
	})
}

package operations

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/median"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// The ways in which a step is made.
const (
	alone  = iota // on one thread
	beside        // the same, with a copy on every other core
	shared        // on all threads
	ways
)

// measure is the measurement of a model's step.
type measure struct {
	eval   bool
	copies []*copied // of the model, one a thread
	helped *nn.Tape  // of all threads, for the first copy
	passes []*pass
	index  map[key]*pass
	whole  samples

	handovers []float64 // in microseconds, a round each
}

// copied is a model with its parameters and inputs.
type copied struct {
	m     model.Model
	batch model.Batch
	tape  *nn.Tape // of one thread
	found []timed
}

// timed is one pass of an operation in one step.
type timed struct {
	key
	took, serial time.Duration
	node         nn.Node
}

// key names a pass of an operation.
type key struct {
	index int
	pass  string
}

// pass is what was measured of a pass of an operation.
type pass struct {
	op, layer, pass string
	output          []int
	samples
}

// samples are times by way, in microseconds.
type samples struct {
	us     [ways][]float64
	serial []float64 // of shared
}

// median sums samples up.
func (s *samples) median(threads int) times {
	t := times{AloneUS: median.Of(s.us[alone]), BesideUS: median.Of(s.us[beside]), SharedUS: median.Of(s.us[shared])}
	if len(s.serial) > 0 {
		t.SerialUS = median.Of(s.serial)
	}
	t.rate(threads)
	return t
}

func newMeasure(spec model.Spec, batch, threads int, eval bool) (*measure, error) {
	m := &measure{eval: eval, index: map[key]*pass{}}
	for range threads {
		ps := nn.NewParams(1)
		c := &copied{m: spec.Build(ps, model.Options{Batch: batch})}
		if err := c.m.Arrange(ps, spec.Sample(1)); err != nil {
			m.close()
			return nil, fmt.Errorf("model %s: %w", spec.Name, err)
		}
		b := randbatch.Batch(spec, ps, batch, 0)
		c.batch = model.Batch{N: b.N, IDs: b.IDs, Bags: nn.Bags{Keys: b.Bags.Keys, Offsets: b.Bags.Offsets, N: b.N}, Labels: b.Labels, Targets: b.Targets}
		if len(spec.Input) > 0 {
			c.batch.Values = &nn.Tensor{Shape: append([]int{b.N}, spec.Input...), Data: b.Values}
		}
		c.tape = nn.NewTape(nn.TapeConfig{Constant: eval})
		m.copies = append(m.copies, c)
	}
	m.helped = nn.NewTape(nn.TapeConfig{Threads: threads, Constant: eval})
	return m, nil
}

func (m *measure) close() {
	for _, c := range m.copies {
		c.tape.Close()
	}
	if m.helped != nil {
		m.helped.Close()
	}
}

// round makes steps in every way, the order turning from round to round.
func (m *measure) round(n int) {
	for i := range ways {
		way := (n + i) % ways
		m.turn(way) // caches, and threads that look for parts, are as in steps that follow each other
		took := m.turn(way)
		m.whole.us[way] = append(m.whole.us[way], us(took))
		of := m.copies[:1]
		if way == beside {
			of = m.copies
		}
		m.note(way, of)
	}
	if len(m.copies) > 1 {
		m.handovers = append(m.handovers, handover(1000))
	}
}

// handover is how long a word takes from one core to another and back, in microseconds: the mean of n times.
func handover(n int64) float64 {
	var there, back struct {
		atomic.Int64
		_ [120]byte // a line and its neighbour for each
	}
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(begun)
		for i := range n {
			for there.Load() <= i {
			}
			back.Store(i + 1)
		}
	}()
	<-begun
	start := time.Now()
	for i := range n {
		there.Store(i + 1)
		for back.Load() <= i {
		}
	}
	took := time.Since(start)
	<-done
	return us(took) / float64(n)
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

// turn makes one step and returns how long that took.
func (m *measure) turn(way int) time.Duration {
	begun := time.Now()
	switch way {
	case alone:
		m.copies[0].step(m.copies[0].tape, m.eval)
	case shared:
		m.copies[0].step(m.helped, m.eval)
	default:
		var wg sync.WaitGroup
		for _, c := range m.copies {
			wg.Go(func() { c.step(c.tape, m.eval) })
		}
		wg.Wait()
	}
	return time.Since(begun)
}

// step runs the model on t and notes the time of each pass.
func (c *copied) step(t *nn.Tape, eval bool) {
	c.found = c.found[:0]
	t.Observe(func(p nn.Timing) {
		c.found = append(c.found, timed{key{p.Index, p.Pass}, p.Took, p.Took - p.Shared, p.Node})
	})
	if eval {
		t.ResetEval()
		c.m.Forward(t, c.batch)
	} else {
		t.Reset()
		t.Backward(c.m.Pass(t, c.batch).Loss.Mean, func(int) {})
	}
	t.Observe(nil)
}

// note adds a step's times, means over copies, to the samples.
func (m *measure) note(way int, of []*copied) {
	for i, f := range of[0].found {
		p := m.index[f.key]
		if p == nil {
			p = &pass{op: f.node.Op, pass: f.pass, output: slices.Clone(f.node.Output.Shape), layer: layer(f.node)}
			m.passes, m.index[f.key] = append(m.passes, p), p
		}
		sum := 0.0
		for _, c := range of {
			sum += us(c.found[i].took)
		}
		p.us[way] = append(p.us[way], sum/float64(len(of)))
		if way == shared {
			p.serial = append(p.serial, us(f.serial))
		}
	}
}

// layer is the name of an operation's first parameter, or its table.
func layer(n nn.Node) string {
	if len(n.Params) > 0 && n.Params[0] != nil {
		return n.Params[0].Name
	}
	if n.Table != nil {
		return n.Table.Name
	}
	return n.Name
}

package plan

import (
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/randbatch"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// flopsPerByte is the number of operations of a matrix product in the time of a byte of memory
// traffic: typical of GPUs (V100 17, A100 13, H100 20 in single precision) and of vector CPU cores
// with their share of memory bandwidth. Without flopsPerByte, element-wise layers, and recurrent
// layers with few sequences, would appear to cost no time.
const flopsPerByte = 16

// shaped adapts a click model to the layout of --layout.
func (c *command) shaped(spec model.Spec) (model.Spec, error) {
	if c.schema == "" {
		return spec, nil
	}
	if !spec.AnySlots {
		return spec, fmt.Errorf("--layout %s has no effect on model %s, which takes no slots of keys", c.schema, spec.Name)
	}
	l, err := layout.Open(c.schema)
	if err != nil {
		return spec, fmt.Errorf("--layout: %w", err)
	}
	spec.Input, spec.Slots, spec.IDs = nil, nil, 0
	if n := len(l.Of(func(c layout.Column) bool { return c.Kind == layout.Number })); n > 0 {
		spec.Input = []int{n}
	}
	for _, column := range l.Of(layout.Column.Slotted) {
		spec.Slots = append(spec.Slots, model.Slot{Name: column.Name, Sequence: column.Kind == layout.Sequence})
	}
	return spec, nil
}

// outlineProfile describes a model by a dry run, with compute split in proportion to work.
func outlineProfile(spec model.Spec, batch int, compute float64) (bucket.Profile, error) {
	ps := nn.NewOutline()
	forward, backward, err := arrangeOne(ps, spec, spec.Build(ps, model.Options{Batch: 1, Input: spec.Input, Slots: spec.Slots}))
	if err != nil {
		return bucket.Profile{}, err
	}
	n := float64(batch)
	weight := func(w nn.Work) float64 {
		return n*(w.FLOPs+flopsPerByte*w.Activations) + flopsPerByte*w.Weights
	}
	all := weight(forward)
	for _, w := range backward {
		all += weight(w)
	}
	times := make([]float64, len(backward))
	for i, w := range backward {
		times[i] = compute * weight(w) / all
	}
	return profileOf(spec, ps, batch, compute*weight(forward)/all, times), nil
}

// arrangeOne arranges the parameters by a dry run of one sample.
func arrangeOne(ps *nn.Params, spec model.Spec, m model.Model) (forward nn.Work, backward []nn.Work, err error) {
	err = m.Arrange(ps, spec.Sample(1))
	forward, backward = ps.Work()
	return forward, backward, err
}

func batchOf(spec model.Spec, b *data.Batch) model.Batch {
	out := model.Batch{N: b.N, IDs: b.IDs, Bags: nn.Bags{Keys: b.Bags.Keys, Offsets: b.Bags.Offsets, N: b.N}, Labels: b.Labels, Targets: b.Targets}
	if len(spec.Input) > 0 {
		out.Values = &nn.Tensor{Shape: append([]int{b.N}, spec.Input...), Data: b.Values}
	}
	return out
}

func profileOf(spec model.Spec, ps *nn.Params, batch int, forward float64, backward []float64) bucket.Profile {
	f := bucket.Profile{Model: spec.Name, Ranks: 1, Batch: batch, Forward: forward}
	for i, s := range ps.Slots() {
		f.Layers = append(f.Layers, bucket.LayerProfile{Name: s.Name, Values: s.Padded, Backward: backward[i]})
	}
	return f
}

// Steps of a measurement.
const (
	measureWarm  = 3
	measureSteps = 9
)

// measuredProfile measures the model's forward and backward on this machine.
func measuredProfile(spec model.Spec, batch, threads int, stop func() error) (bucket.Profile, error) {
	ps := nn.NewParams(1)
	m := spec.Build(ps, model.Options{Batch: batch, Input: spec.Input, Slots: spec.Slots})
	if _, _, err := arrangeOne(ps, spec, m); err != nil {
		return bucket.Profile{}, err
	}
	in := batchOf(spec, randbatch.Batch(spec, ps, batch, 0))
	profiler, err := bucket.NewProfiler(len(ps.Slots()), measureSteps)
	if err != nil {
		return bucket.Profile{}, err
	}
	tape := nn.NewTape(nn.TapeConfig{Threads: threads})
	defer tape.Close()
	for range measureWarm + measureSteps { // the last measureSteps count
		if err := stop(); err != nil {
			return bucket.Profile{}, err
		}
		begun := time.Now()
		tape.Reset()
		loss := m.Pass(tape, in).Loss.Mean
		profiler.Backward(time.Since(begun))
		tape.Backward(loss, func(slot int) { err = profiler.Ready(slot, time.Since(begun)) })
		if err == nil {
			err = profiler.End()
		}
		if err != nil {
			return bucket.Profile{}, fmt.Errorf("model %s: %w", spec.Name, err)
		}
	}
	forward, backward, err := profiler.Medians()
	if err != nil {
		return bucket.Profile{}, err
	}
	return profileOf(spec, ps, batch, forward, backward), nil
}

// measureCodec adds the cost of the strategy's codec, on one thread as in a job.
func (c *command) measureCodec(f *bucket.Profile) error {
	cfg := distopt.Config{Strategy: distopt.Strategy(c.chosen.name)}
	if c.chosen.sparse {
		cfg.Spars = c.spars
	}
	if c.chosen.reuse > 0 {
		cfg.Every, cfg.Rule = c.every, compress.Rule(c.rule)
	}
	if c.chosen.exact == 0 {
		return nil
	}
	chain, err := cfg.NewChain()
	if err != nil {
		return err
	}
	mesh := mem.New(1)[0]
	defer mesh.Close()
	alone, err := collective.New(mesh, collective.Config{})
	if err != nil {
		return err
	}
	defer alone.Close()
	values := 0
	for _, l := range f.Layers {
		values += l.Values
	}
	codec, _, err := tune.Codec(alone, tune.Candidate{Name: c.chosen.name, Chain: chain, Density: cfg.Density(), Every: cfg.Every}, nil, values)
	if err == nil {
		f.Codecs = append(f.Codecs, codec)
	}
	return err
}

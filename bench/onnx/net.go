package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/models"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/onnx"
	"github.com/ringo-ml/ringo/optim"
)

// net is a model of the zoo, trained a little and laid out as an evaluation has it, and its graph in a folder for the other side.
type net struct {
	spec   model.Spec
	model  model.Model
	folder string
	path   string
	tape   *nn.Tape // for inference
	graph  *onnx.Graph
	tables []*nn.Table
	// sequences are those that its state is for.
	sequences int
}

// trainingSamples are those of a step of training.
const trainingSamples = 4

// newNet makes a model, trains it for some steps on random samples, and writes its graph.
func newNet(name, folder string, steps, batch int) (*net, error) {
	spec, err := models.Lookup(name)
	if err != nil {
		return nil, err
	}
	n := &net{spec: spec, folder: folder, path: filepath.Join(folder, spec.Name+".onnx"), tape: nn.NewTape(nn.TapeConfig{Threads: 1, Constant: true})}
	ps := nn.NewParams(1)
	n.sequences = max(batch, trainingSamples)
	n.model = spec.Build(ps, model.Options{Batch: n.sequences})
	if steps > 0 {
		if err := n.train(ps, steps); err != nil {
			return nil, err
		}
	}
	names := func(s string) string { return models.PyTorchName(spec.Name, s) }
	n.tables = ps.Tables()
	if n.graph, err = onnx.New(spec, n.model, ps, onnx.Config{Names: names, Single: single}); err != nil {
		return nil, err
	}
	return n, n.graph.WriteFile(n.path)
}

// single has samples with at most one key in every other slot, so that graphs look rows up and take
// sums of them.
func single(slot int) bool { return slot%2 == 0 }

// train takes plain steps, so that no weight, bias or running statistic is what it was made: zeros and ones hide faults.
func (n *net) train(ps *nn.Params, steps int) error {
	if err := n.model.Arrange(ps, n.spec.Sample(1)); err != nil {
		return err
	}
	sgd := &optim.SGD{LR: 0.01}
	if err := sgd.Bind(len(ps.Values())); err != nil {
		return err
	}
	var dims [][2]int
	for _, t := range ps.Tables() {
		dims = append(dims, [2]int{t.Rows, t.Dim})
	}
	if err := sgd.BindTables(dims); err != nil {
		return err
	}
	tape := nn.NewTape(nn.TapeConfig{})
	defer tape.Close()
	for step := range steps {
		tape.Reset()
		tape.SetSeed(uint64(step))
		tape.Backward(n.model.Pass(tape, n.batch(trainingSamples, step)).Loss.Mean, func(int) {})
		sgd.BeginStep()
		sgd.Update(0, ps.Values(), ps.Grads(), 1)
		for i, t := range ps.Tables() {
			ids, grads := t.Grad()
			sgd.UpdateRows(i, t.Data, ids, grads, 1)
		}
	}
	return nil
}

// batch is random samples.
func (n *net) batch(samples, seed int) model.Batch {
	r := rand.New(rand.NewPCG(uint64(samples), uint64(seed)))
	b := n.spec.Sample(samples)
	if b.Values != nil {
		for i := range b.Values.Data {
			b.Values.Data[i] = float32(r.NormFloat64())
		}
	}
	ids := n.spec.Classes
	if n.spec.Task == model.Click {
		ids = n.spec.Rows
	}
	for i := range b.IDs {
		b.IDs[i] = int32(r.IntN(ids))
	}
	for i := range len(n.spec.Slots) * samples {
		most := 2
		if !single(i / samples) {
			most = 60
		}
		for range r.IntN(most) {
			b.Bags.Keys = append(b.Bags.Keys, r.Uint64())
		}
		b.Bags.Offsets[i+1] = int32(len(b.Bags.Keys))
	}
	for i := range b.Labels {
		b.Labels[i] = int32(r.IntN(n.spec.Classes))
	}
	return b
}

// forward computes the logits, good until the next call.
func (n *net) forward(b model.Batch) []float32 {
	n.tape.ResetEval()
	return n.model.Forward(n.tape, b)[0].Data
}

// logits are those of samples one after the other, from a state of zeros.
func (n *net) logits(b model.Batch) []float32 {
	n.model.Reset()
	y := n.forward(b)
	out := append([]float32(nil), y...)
	if n.spec.StepsFirst {
		width := len(y) / len(b.IDs)
		for i := range b.IDs {
			sample, step := i/n.spec.IDs, i%n.spec.IDs
			copy(out[i*width:(i+1)*width], y[(step*b.N+sample)*width:])
		}
	}
	return out
}

// time is how long a pass takes, the mean over at least a burst: as the other side measures, which makes its results anew each time
// where here they lie in the tape's memory.
func (n *net) time(b model.Batch, burst time.Duration) time.Duration {
	begin := time.Now()
	for calls := 1; ; calls++ {
		n.forward(b)
		if spent := time.Since(begin); spent >= burst {
			return spent / time.Duration(calls)
		}
	}
}

// feed writes a batch as the graph takes it: images channels first, ids as int64, states of zeros.
func (n *net) feed(b model.Batch) (r request, err error) {
	r = request{Ask: "feed", Outputs: []string{"logits"}}
	add := func(name, kind string, data any, dims ...int) {
		file := filepath.Join(n.folder, fmt.Sprintf("%s-%s-%d", n.spec.Name, name, b.N))
		raw, bad := binary.Append(nil, binary.LittleEndian, data)
		if bad == nil {
			bad = os.WriteFile(file, raw, 0o666)
		}
		if err == nil {
			err = bad
		}
		r.Inputs = append(r.Inputs, input{Name: name, Type: kind, Dims: dims, File: file})
	}
	if v := b.Values; v != nil {
		data, dims := channelsFirst(v)
		add("values", "float32", data, dims...)
	}
	if n.spec.IDs > 0 {
		ids := make([]int64, len(b.IDs))
		for i, id := range b.IDs {
			ids[i] = int64(id)
		}
		add("ids", "int64", ids, b.N, n.spec.IDs)
	}
	if len(n.spec.Slots) > 0 {
		for _, bag := range n.graph.Bags {
			if data, width := n.fill(bag, b); bag.Rows {
				add(bag.Input, "int64", data, b.N, width)
			} else {
				add(bag.Input, "float32", data, b.N, width)
			}
		}
	}
	if n.model.State != nil {
		for i, s := range n.model.State.Slices() {
			width := len(s) / n.sequences
			add(fmt.Sprintf("state%d.%s", i/2, [...]string{"h", "c"}[i%2]), "float32", make([]float32, b.N*width), b.N, width)
		}
	}
	return r, err
}

// fill returns an input that depends on rows of a table, and its width.
func (n *net) fill(bag onnx.Bag, b model.Batch) (data any, width int) {
	t := n.tables[slices.IndexFunc(n.tables, func(t *nn.Table) bool { return t.Name == bag.Table })]
	var numbers []int64
	var sums []float32
	for sample := range b.N {
		for _, slot := range bag.Slots {
			keys := b.Bags.Keys[b.Bags.Offsets[slot*b.N+sample]:b.Bags.Offsets[slot*b.N+sample+1]]
			number := int64(t.Rows)
			if bag.Steps > 0 {
				keys = keys[max(0, len(keys)-bag.Steps):]
			}
			out := make([]float32, max(1, bag.Steps)*t.Dim)
			for k, key := range keys {
				row := nn.RowOf(key, t.Rows)
				number = int64(row)
				for i, v := range t.Data[int(row)*t.Dim:][:t.Dim] {
					out[min(k, bag.Steps)*t.Dim+i] += v
				}
			}
			numbers, sums = append(numbers, number), append(sums, out...)
		}
	}
	if bag.Rows {
		return numbers, len(bag.Slots)
	}
	return sums, len(sums) / b.N
}

// channelsFirst is images as ONNX has them; others as they are.
func channelsFirst(x *nn.Tensor) (data []float32, dims []int) {
	if len(x.Shape) != 4 {
		return x.Data, x.Shape
	}
	n, h, w, c := x.Shape[0], x.Shape[1], x.Shape[2], x.Shape[3]
	data = make([]float32, len(x.Data))
	for i := range n {
		for p := range h * w {
			for k := range c {
				data[(i*c+k)*h*w+p] = x.Data[(i*h*w+p)*c+k]
			}
		}
	}
	return data, []int{n, c, h, w}
}

// maxDifference is the largest difference, as a share of the largest value or of 1.
func maxDifference(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	most, d := 1.0, 0.0
	for i, v := range want {
		most, d = max(most, math.Abs(float64(v))), max(d, math.Abs(float64(v)-float64(got[i])))
		if v != v || got[i] != got[i] {
			return math.Inf(1)
		}
	}
	return d / most
}

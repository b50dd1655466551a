// Package onnx exports a model as a graph of the Open Neural Network Exchange format, opset 17, for
// other runtimes: the operations of its forward pass in an evaluation, with the weights. The number
// of samples is the open dimension "batch".
//
// The graph comes from nn.Trace, with batches of several sizes and ids that reveal their origin, so
// that a model needs no code for the export. Its inputs and outputs, in this order and if the model
// has them:
//
//	values      model.Batch.Values: images as [batch, channels, height, width], others unchanged
//	ids         model.Batch.IDs, [batch, ids], int64
//	the table   rows of a table outside the model, and of bags of keys, which no operation of ONNX
//	            sums: the rows of each sample, or their sums, concatenated; see Bag
//	table.rows  for slots with at most one key (Config.Single): rows of the table, int64,
//	            [batch, slots]
//	state0.h    and so on: the initial state of a recurrent layer
//
//	logits      of a classifier; prediction of a regression; else output, or output0, output1, …
//	state0.h.next  and so on: the initial state of a run that continues
//
// With Config.Raw the inputs are the columns of a table, [batch], float64 or strings, or "pixels",
// [batch, height, width, channels], uint8. The outputs are "prediction", a number in the units of
// the target, or a class with "probability", "probabilities" and "classes".
//
// Outputs with several rows per sample, such as of a language model, are [batch, rows, …].
package onnx

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/weights"
)

// Config configures the export. The zero value is usable.
type Config struct {
	// Names translates a parameter's name into its name in the graph; nil keeps all names.
	Names weights.Names
	// About is metadata of the graph, such as the constants of an image normalisation.
	About map[string]string
	// External is the size of the weights, in bytes, from which a separate file holds them: a graph
	// file is limited to 2 GiB. 0 means 1 GiB.
	External int64
	// Raw, if not nil, describes the model's data, which HasRaw accepts. The graph then takes the
	// data as they are and returns predictions: see the package comment. nil means encoded inputs.
	Raw *data.Description
	// Single reports whether samples have at most one key in a slot. The graph then looks up the
	// row, unless the table's rows are elsewhere. nil means no slot.
	Single func(slot int) bool
}

// Validate reports an impossible size.
func (c Config) Validate() error {
	if c.External < 0 || c.External > maxInline {
		return fmt.Errorf("onnx: weights of %d bytes in one file: want 1 to %d, or 0 for %d", c.External, maxInline, int64(defaultExternal))
	}
	return nil
}

const (
	idsName         = "ids"
	defaultExternal = 1 << 30
	maxInline       = 2000 << 20 // the limit of protobuf is 2 GiB
)

// Graph is an exported model, ready to write. It refers to the model's parameters without copies.
type Graph struct {
	cfg       Config
	name      string
	operators []operator
	constants []constant
	inputs    []port
	outputs   []port

	// Bags are the inputs that depend on rows of tables, in the order of the graph's inputs.
	Bags []Bag
}

// New exports a model with parameters ps: later changes of their values change the written graph.
// The model's state is reset, and grows to at least three sequences. An operation that ONNX cannot
// express is an error with its name.
func New(spec model.Spec, m model.Model, ps *nn.Params, cfg Config) (*Graph, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if m.Forward == nil {
		return nil, errors.New("onnx: the model has no Forward")
	}
	elsewhere := map[*nn.Table]bool{}
	for _, t := range ps.Tables() {
		if rows := t.Data; len(rows) != t.Rows*t.Dim {
			elsewhere[t] = true
			t.Hold(make([]float32, 2*t.Dim), nil) // dummy rows for the trace
			defer t.Hold(rows, nil)
		}
	}
	t, err := study(spec, m)
	if err != nil {
		return nil, err
	}
	b := &builder{traced: t, elsewhere: elsewhere, weightName: cfg.Names, single: cfg.Single, names: map[string]bool{"": true}, made: map[any]string{}, of: map[*nn.Tensor]*value{}, stepsLast: map[*nn.Tensor]bool{}, rows: map[int]string{}, sums: map[int]string{}}
	if b.single == nil {
		b.single = func(int) bool { return false }
	}
	if cfg.Raw != nil {
		b.raw = &rawInputs{data: *cfg.Raw}
	}
	if b.weightName == nil {
		b.weightName = func(name string) string { return name }
	}
	if err := b.build(); err != nil {
		return nil, err
	}
	return &Graph{cfg: cfg, name: spec.Name, operators: b.operators, constants: b.constants, inputs: b.inputs, outputs: append(b.outputs, b.carried...), Bags: b.bags}, nil
}

// String lists the graph's inputs and outputs with their shapes, such as "values [batch 784] ->
// logits [batch 10]".
func (g *Graph) String() string {
	list := func(ports []port) string {
		var out []string
		for _, p := range ports {
			out = append(out, fmt.Sprint(p.name, " ", p.shape)+map[int64]string{uint8Type: " uint8", stringType: " string", float64Type: " float64"}[p.kind])
		}
		return strings.Join(out, ", ")
	}
	return list(g.inputs) + " -> " + list(g.outputs)
}

// convert returns the conversion of an operation by its name in nn.Node.
func (b *builder) convert(op string) (func() error, bool) {
	f, ok := map[string]func() error{
		"dense": b.dense, "conv2d": b.conv2d, "maxpool": b.pool, "avgpool": b.pool, "globalavgpool": b.globalAvgPool, "subsamplepad": b.subsamplePad,
		"batchnorm": b.batchNorm, "layernorm": b.layerNorm, "groupnorm": b.groupNorm, "attention": b.attention, "lstm": b.lstm, "gru": b.gru,
		"activate": b.activation, "scale": b.scale, "dropout": b.same, "detach": b.same,
		"add": b.arithmetic, "subtract": b.arithmetic, "multiply": b.arithmetic,
		"concat": b.concat, "slice": b.slice, "reshape": b.reshapes, "broadcast": b.broadcast, "parameter": b.parameter, "transpose": b.transpose,
		"sum": b.reduce, "mean": b.reduce, "softmax": b.softmax, "log-softmax": b.softmax, "normalise": b.normalize, "dot product by rows": b.rowDot,
		"matmul": b.matMul, "gather": b.gather, "embedding": b.embedding, "embeddingtable": b.embeddingTable, "embeddingbag": b.embeddingBag,
	}[op]
	return f, ok
}

// refuse returns an error of the operation in progress.
func (b *builder) refuse(format string, args ...any) error {
	return fmt.Errorf("onnx: operation %d, %s, %s", b.i, b.node().Op, fmt.Sprintf(format, args...))
}

// build converts the live operations, between the inputs and the outputs.
func (b *builder) build() error {
	live, done := b.live(), b.ordered()
	if b.raw != nil {
		if err := errors.Join(b.takeRaw(), b.reserveRaw()); err != nil {
			return err
		}
	}
	b.takeInputs(live)
	var names []string
	for k := range b.passes[0].outs { // before a weight takes the name
		names = append(names, b.unique(b.outputName(k)))
	}
	for i, n := range b.passes[0].nodes {
		if !live[i] {
			continue
		}
		b.i = i
		f, ok := b.convert(n.Op)
		var err error
		switch {
		case !exports(n.Activation):
			err = b.refuse("has activation %d, which has no form in ONNX here: export the weights alone (safetensors)", n.Activation)
		case n.Op == "apply":
			err = b.refuse("is the program's own, %q: ONNX knows nothing of it; compute it by operations of the tape, or export the weights alone (safetensors)", n.Name)
		case !ok:
			err = b.refuse("has no form in ONNX here: if it is a loss, it belongs in the model's Loss and not in its Forward; else export the weights alone (safetensors)")
		default:
			err = f()
		}
		if err != nil {
			return err
		}
	}
	if b.raw != nil {
		b.giveRaw()
		return nil
	}
	for k, x := range b.passes[0].outs {
		b.giveOutput(names[k], x, done[x])
	}
	return nil
}

// takeInputs declares the inputs that live operations read.
func (b *builder) takeInputs(live []bool) {
	p := b.passes[0]
	usesIDs := false
	var tables []port
	for i, n := range p.nodes {
		l := b.ids[i]
		switch {
		case n.Op == "embeddingbag" && live[i]:
			tables = append(tables, b.takeBags(i)...)
		case l == nil || !live[i]:
		case n.Table != nil && b.elsewhere[n.Table]:
			about := fmt.Sprintf("rows of table %s, %d values each, side by side", n.Table.Name, n.Table.Dim)
			tables = append(tables, port{name: b.unique(n.Table.Name), kind: float32Type, shape: b.rowsShape(n), about: about})
			b.rows[i] = tables[len(tables)-1].name
			b.bags = append(b.bags, Bag{Input: b.rows[i], Table: n.Table.Name, Slots: idsOf(l)})
		case len(l.columns) > 0 && l.columns[0].of >= 0:
			if usesIDs = true; n.Table != nil && b.raw == nil {
				b.bags = append(b.bags, Bag{Input: idsName, Table: n.Table.Name, Slots: idsOf(l), Rows: true})
			}
		}
	}
	if x := p.batch.Values; x != nil && b.raw != nil {
		b.of[x] = &value{shape: b.shapes[x], names: map[layout]string{asHere: b.raw.values}}
	} else if x != nil {
		v := &value{shape: b.shapes[x], names: map[layout]string{}}
		in := port{name: b.unique("values"), kind: float32Type, shape: v.shape}
		if len(v.shape) == 4 {
			v.lies = channelsFirst
			in.shape = []dim{v.shape[0], v.shape[3], v.shape[1], v.shape[2]}
			in.about = "images: channels, height, width"
		}
		v.names[v.lies] = in.name
		b.of[x] = v
		b.inputs = append(b.inputs, in)
	}
	b.idsFrom = idsName
	if b.raw != nil {
		b.idsFrom = b.raw.ids
	} else if usesIDs {
		b.inputs = append(b.inputs, port{name: b.unique(idsName), kind: int64Type, shape: []dim{batch, fixed(b.spec.IDs)}})
	}
	b.inputs = append(b.inputs, tables...)
}

// giveOutput makes a tensor an output that is ordered by sample: several rows per sample become a
// separate axis. ordered reports whether the rows of x are already ordered by sample, although the
// model's order is by step.
func (b *builder) giveOutput(to string, x *nn.Tensor, ordered bool) {
	v := b.value(x)
	name, shape := b.asHere(v), v.shape
	if each := shape[0].each; each > 1 && shape[0].plus == 0 {
		steps, rest := fixed(each), shape[1:]
		shape = append([]dim{batch, steps}, rest...)
		if b.spec.StepsFirst && !ordered {
			perm := []int{1, 0}
			for i := range rest {
				perm = append(perm, i+2)
			}
			name = b.add("Transpose", []string{b.reshape(name, append([]dim{steps, batch}, rest...))}, intsOf("perm", perm...))
		} else {
			name = b.reshape(name, shape)
		}
	}
	b.give(port{name: to, kind: float32Type, shape: shape}, name)
}

// give makes a result an output.
func (b *builder) give(out port, name string) {
	b.operators = append(b.operators, operator{op: "Identity", name: "Identity_" + out.name, in: []string{name}, out: []string{out.name}})
	b.outputs = append(b.outputs, out)
}

// outputName is the name of output k.
func (b *builder) outputName(k int) string {
	switch {
	case len(b.passes[0].outs) > 1:
		return fmt.Sprint("output", k)
	case b.spec.Task == model.Regress || b.spec.Targets > 0:
		return "prediction"
	}
	return "logits"
}

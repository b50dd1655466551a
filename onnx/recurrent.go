package onnx

import (
	"fmt"

	"github.com/ringo-ml/ringo/nn"
)

// lstm has gates i, f, g, o in nn and i, o, f, c in ONNX.
func (b *builder) lstm() error {
	n := b.node()
	names := b.recurrentWeights(n, "iofc", 0, 3, 1, 2)
	in, out := b.sequence(n, names, n.State != nil)
	if n.State == nil {
		b.finish(b.addAll("LSTM", in, 1, intOf("hidden_size", b.hidden())), nil)
		return nil
	}
	b.finish(b.addAll("LSTM", in, 3, intOf("hidden_size", b.hidden())), out)
	return nil
}

// gru has gates r, z, n in nn and z, r, h in ONNX, with the reset gate before the candidate's bias.
func (b *builder) gru() error {
	n := b.node()
	names := b.recurrentWeights(n, "zrh", 1, 0, 2)
	in, out := b.sequence(n, names, n.State != nil)
	results := 1
	if n.State != nil {
		results = 2
	}
	b.finish(b.addAll("GRU", in, results, intOf("hidden_size", b.hidden()), intOf("linear_before_reset", 1)), out)
	return nil
}

// hidden is the width of a recurrent layer's result.
func (b *builder) hidden() int { return b.node().Output.Shape[1] }

// recurrentWeights are W, R and B with the gates in ONNX's order.
func (b *builder) recurrentWeights(n nn.Node, gates string, order ...int) []string {
	ih, hh, bias, more := n.Params[0], n.Params[1], n.Params[2], n.Params[3]
	rows := ih.Shape[0]
	named := func(p *nn.Param) string { return b.weightName(p.Name) + "." + gates }
	return []string{
		b.floats(named(ih), [2]any{ih, gates}, []int{1, rows, ih.Shape[1]}, blocks(ih.Data, order...)...),
		b.floats(named(hh), [2]any{hh, gates}, []int{1, rows, hh.Shape[1]}, blocks(hh.Data, order...)...),
		b.floats(named(bias), [2]any{bias, gates}, []int{1, 2 * rows}, append(blocks(bias.Data, order...), blocks(more.Data, order...)...)...),
	}
}

// sequence returns the inputs of a recurrent layer in ONNX's order: X [steps, n, in], W, R, B, the
// omitted lengths and, if the model carries a state, the state: [1, n, hidden] in ONNX, [n, hidden]
// for the user of the graph. next are the names of the final states.
func (b *builder) sequence(n nn.Node, weights []string, carries bool) (in, next []string) {
	steps, x := fixed(int(n.Attrs["steps"])), b.input(0)
	rows := dim{each: x.shape[0].each / steps.plus, plus: x.shape[0].plus / steps.plus}
	in = append([]string{b.reshape(b.asHere(x), []dim{steps, rows, x.shape[1]})}, weights...)
	if !carries {
		return in, nil
	}
	in = append(in, "") // all sequences have equal length
	kinds := []string{"h"}
	if n.Op == "lstm" {
		kinds = append(kinds, "c")
	}
	for _, kind := range kinds {
		state := port{name: b.unique(fmt.Sprintf("state%d.%s", b.states, kind)), kind: float32Type, shape: []dim{rows, fixed(b.hidden())}, about: "what the layer begins with: zeros, or the output of that name with .next of the run before"}
		b.inputs = append(b.inputs, state)
		in = append(in, b.add("Unsqueeze", []string{state.name, b.list(0)}))
		next = append(next, state.name)
		state.name, state.about = b.unique(state.name+".next"), "what a run that goes on begins with"
		b.carried = append(b.carried, state)
	}
	b.states++
	return in, next
}

// finish stores a recurrent layer's results: those of all steps, [steps, 1, n, hidden] in ONNX and
// [steps*n, hidden] in nn, and the initial state of the next run.
func (b *builder) finish(results, next []string) {
	y := b.node().Output
	shape, name := b.shapes[y], results[0]
	for i, state := range next {
		b.operators = append(b.operators, operator{op: "Squeeze", name: b.unique("Squeeze_" + state), in: []string{results[i+1], b.list(0)}, out: []string{state + ".next"}})
	}
	if b.stepsLast[y] { // [steps, 1, n, hidden]
		name = b.add("Transpose", []string{name}, intsOf("perm", 2, 0, 1, 3))
	}
	b.result(b.reshape(name, shape), asHere)
}

// ordered returns the results of recurrent layers that are reordered by sample: those from which an
// output follows row by row, with these outputs.
func (b *builder) ordered() map[*nn.Tensor]bool {
	done := map[*nn.Tensor]bool{}
	if !b.spec.StepsFirst {
		return done
	}
	p := b.passes[0]
	uses := map[*nn.Tensor]int{}
	for _, n := range p.nodes {
		for _, x := range n.Inputs {
			uses[x]++
		}
	}
	for _, out := range p.outs {
		x := out
		for uses[out] == 0 {
			i := p.placeOf(x)
			if i < 0 {
				break
			}
			n := p.nodes[i]
			if n.Op == "lstm" || n.Op == "gru" {
				b.stepsLast[x], done[out] = true, true
				break
			}
			if !byRows[n.Op] || uses[n.Inputs[0]] != 1 {
				break
			}
			x = n.Inputs[0]
		}
	}
	return done
}

// byRows are operations of one input with rows that each depend on a single row of the input.
var byRows = map[string]bool{"dense": true, "activate": true, "dropout": true, "detach": true, "scale": true, "layernorm": true, "softmax": true, "log-softmax": true}

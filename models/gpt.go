package models

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// gptSize is a preset of a language model of transformer blocks, after Radford
// et al., "Language Models are Unsupervised Multitask Learners" (2019).
type gptSize struct {
	vocabulary, context  int
	layers, width, heads int
	dropout              float64
}

// gpt is a small model of bytes.
func gpt() model.Spec {
	return gptSpec(model.Spec{
		Name:     "gpt",
		About:    "byte language model: 6 transformer blocks 384 wide with 6 heads, context 256",
		Params:   10844160,
		Defaults: model.Defaults{Optimizer: "adamw", Batch: 12, Epochs: 1, LR: 1e-3, GlobalBatch: 12, WeightDecay: 0.1, ClipNorm: 1},
	}, gptSize{vocabulary: 256, context: 256, layers: 6, width: 384, heads: 6, dropout: 0.1})
}

// gptMini trains in minutes.
func gptMini() model.Spec {
	return gptSpec(model.Spec{
		Name:     "gpt-mini",
		About:    "byte language model: 4 transformer blocks 128 wide with 4 heads, context 64",
		Params:   834304,
		Defaults: model.Defaults{Optimizer: "adamw", Batch: 12, Epochs: 1, LR: 1e-3, GlobalBatch: 12, WeightDecay: 0.1, ClipNorm: 1},
	}, gptSize{vocabulary: 256, context: 64, layers: 4, width: 128, heads: 4})
}

func gptSpec(s model.Spec, size gptSize) model.Spec {
	s.Task, s.Data = model.Language, "chars"
	s.IDs, s.Labels, s.Classes = size.context, size.context, size.vocabulary
	s.Drops = true
	s.Build = func(ps *nn.Params, o model.Options) model.Model { return buildGPT(ps, o, size) }
	return s
}

// gptBlock is x + attention(norm(x)), then x + mlp(norm(x)).
type gptBlock struct {
	norm1, norm2     nn.Norm
	qkv, mix         nn.Layer
	expand, contract nn.Layer
}

type gptModel struct {
	tokens, places *nn.Param
	blocks         []gptBlock
	norm           nn.Norm
	heads          int
	dropout        float64

	at []int32 // position of each token of the batch
}

func buildGPT(ps *nn.Params, o model.Options, size gptSize) model.Model {
	if o.Vocabulary > 0 {
		size.vocabulary = o.Vocabulary
	}
	// A deviation of 0.02. Layers that add to the residual stream divide it by the root of the
	// number of additions, so that the variance stays near 1.
	init := spread(0.02)
	residual := spread(0.02 / math.Sqrt(2*float64(size.layers)))
	w := size.width
	m := &gptModel{
		tokens:  ps.New("tokens", init, size.vocabulary, w),
		places:  ps.New("places", init, size.context, w),
		heads:   size.heads,
		dropout: dropoutOf(o, size.dropout),
	}
	for i := range size.layers {
		name := func(part string) string { return fmt.Sprintf("block%d.%s", i+1, part) }
		m.blocks = append(m.blocks, gptBlock{
			norm1:    ps.LayerNorm(name("norm1"), w),
			qkv:      denseFrom(ps, name("qkv"), init, w, 3*w),
			mix:      denseFrom(ps, name("mix"), residual, w, w),
			norm2:    ps.LayerNorm(name("norm2"), w),
			expand:   denseFrom(ps, name("expand"), init, w, 4*w),
			contract: denseFrom(ps, name("contract"), residual, 4*w, w),
		})
	}
	m.norm = ps.LayerNorm("norm", w)
	return language(model.Model{Forward: m.forward, Loss: model.CrossEntropy})
}

// spread draws uniformly with a standard deviation.
func spread(deviation float64) nn.Init { return nn.Uniform(deviation * math.Sqrt(3)) }

// denseFrom makes a dense layer with weights from init and a bias that is initially zero.
func denseFrom(ps *nn.Params, name string, init nn.Init, in, out int) nn.Layer {
	return nn.Layer{W: ps.New(name+".weight", init, out, in), B: ps.New(name+".bias", nn.Zeros, out)}
}

// forward returns the logits of all tokens, sample by sample.
func (m *gptModel) forward(t *nn.Tape, b model.Batch) model.Outputs {
	steps := len(b.IDs) / b.N
	m.at = m.at[:0]
	for i := range b.IDs {
		m.at = append(m.at, int32(i%steps))
	}
	x := t.Add(t.Embedding(b.IDs, m.tokens), t.Embedding(m.at, m.places))
	x = t.Dropout(x, m.dropout)
	for _, l := range m.blocks {
		y := t.Attention(t.Dense(t.LayerNorm(x, l.norm1), l.qkv, nn.Identity), m.heads, steps)
		x = t.Add(x, t.Dropout(t.Dense(y, l.mix, nn.Identity), m.dropout))
		y = t.Dense(t.LayerNorm(x, l.norm2), l.expand, nn.GELU)
		x = t.Add(x, t.Dropout(t.Dense(y, l.contract, nn.Identity), m.dropout))
	}
	return model.Outputs{t.Dense(t.LayerNorm(x, m.norm), nn.Layer{W: m.tokens}, nn.Identity)}
}

package predict

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/train"
)

// Text configures the text of a language model.
type Text struct {
	// Prompt is the start of the text: words of the model's vocabulary, or bytes.
	Prompt string
	// Tokens is the number of words or bytes to write, at most 1<<24.
	Tokens int
	// Temperature divides the logits before sampling: 1 keeps the model's distribution, smaller
	// values sharpen the distribution, and 0 takes the most probable token.
	Temperature float64
	// Seed is the seed of the sampling: equal seeds write equal text.
	Seed uint64
}

// Validate returns an error for the first value out of range.
func (c Text) Validate() error {
	switch {
	case c.Tokens < 1 || c.Tokens > 1<<24:
		return fmt.Errorf("%d tokens: want 1 to %d", c.Tokens, 1<<24)
	case !(c.Temperature >= 0 && c.Temperature <= 1e6):
		return fmt.Errorf("temperature %s: want 0 for the most probable tokens, or a number such as 0.8", quantity.Exact(c.Temperature))
	}
	return nil
}

// Write writes the prompt and the model's continuation to out, token by token. unknown, if not nil,
// is called once with the words of the prompt outside the vocabulary.
//
// Cost: a model with state (LSTM) processes each token once. A model with a window (GPT) processes
// the last tokens again for each new token: 64 or 256, the model's window. The order of sums does
// not depend on threads, and sampling depends only on Seed: a text repeats bit by bit on the same
// kind of machine. All words outside of the vocabulary are one token, and Write never writes that
// token.
func Write(p *train.Predictor, c Text, out io.Writer, unknown func(words []string)) error {
	if err := c.Validate(); err != nil {
		return err
	}
	spec := p.Spec()
	if spec.Task != model.Language {
		return fmt.Errorf("%s is no language model: a prompt has no effect on it", spec.Name)
	}
	v := newTokens(p.Description().Words)
	ids, unheard := v.parse(c.Prompt)
	if len(unheard) > 0 && unknown != nil {
		unknown(unheard)
	}
	n := p.Description().Vocabulary
	if n == 0 {
		n = spec.Classes
	}
	if most := slices.Max(ids); int(most) >= n {
		return fmt.Errorf("token %d of the prompt, and the model knows %d", most, n)
	}
	g := &generator{p: p, window: spec.IDs, carries: p.Replica().Model().State != nil, vocabulary: n}
	g.draw = newDraw(c.Seed)
	if _, err := out.Write(v.text(ids, true)); err != nil {
		return err
	}
	p.Replica().ResetState()
	for range c.Tokens {
		logits, err := g.after(ids)
		if err != nil {
			return err
		}
		if v.words != nil { // never write the unknown word
			logits[0] = float32(math.Inf(-1))
		}
		ids = append(ids, g.choose(logits, c.Temperature))
		if _, err := out.Write(v.text(ids[len(ids)-1:], false)); err != nil {
			return err
		}
		if !g.carries { // tokens before the window have no effect
			ids = ids[max(0, len(ids)-g.window):]
		} else {
			ids = ids[len(ids)-1:]
		}
	}
	_, err := io.WriteString(out, "\n")
	return err
}

type generator struct {
	p          *train.Predictor
	window     int  // tokens per forward pass
	carries    bool // state persists between batches: each token is processed once
	vocabulary int
	draw       *rand.Rand
	batch      data.Batch
	chances    []float64
}

// newDraw returns a generator of random numbers for a seed.
func newDraw(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) }

// after returns the logits of the token that follows ids. If the model has a state, it covers all
// tokens before ids.
func (g *generator) after(ids []int32) (logits []float32, err error) {
	if !g.carries {
		ids = ids[max(0, len(ids)-g.window):]
	}
	for part := range slices.Chunk(ids, g.window) {
		g.batch.N, g.batch.IDs = 1, append(g.batch.IDs[:0], part...)
		out, err := g.p.Forward(&g.batch)
		if err != nil {
			return nil, err
		}
		logits = out[0].Data
	}
	if len(logits) < g.vocabulary {
		return nil, fmt.Errorf("the model has %d outputs, and %d tokens", len(logits), g.vocabulary)
	}
	logits = logits[len(logits)-g.vocabulary:]
	if slices.ContainsFunc(logits, func(x float32) bool { return x-x != 0 }) {
		return nil, errDiverged
	}
	return logits, nil
}

// choose samples a token, or takes the most probable token at temperature 0.
func (g *generator) choose(logits []float32, temperature float64) int32 {
	if temperature == 0 {
		return int32(slices.Index(logits, slices.Max(logits)))
	}
	g.chances = Softmax(g.chances[:0], logits, temperature)
	x := g.draw.Float64()
	for k, p := range g.chances {
		if x -= p; x < 0 {
			return int32(k)
		}
	}
	return int32(slices.Index(logits, slices.Max(logits))) // x was 1 up to rounding
}

// tokens converts between text and token numbers: words of a vocabulary, or bytes without a
// vocabulary.
type tokens struct {
	words []string
	ids   map[string]int32
	begun bool // a space precedes the next word
}

// lineEndID is the end of a line in a vocabulary of words; 0 is the unknown word.
const lineEndID = 1

func newTokens(words []string) *tokens {
	v := &tokens{words: words, ids: map[string]int32{}}
	for i, w := range words {
		v.ids[w] = int32(i)
	}
	return v
}

// parse returns the prompt's tokens and unknown words. An empty prompt is the end of a line.
func (v *tokens) parse(prompt string) (ids []int32, unknown []string) {
	if v.words == nil {
		if prompt == "" {
			prompt = "\n"
		}
		for _, c := range []byte(prompt) {
			ids = append(ids, int32(c))
		}
		return ids, nil
	}
	for i, line := range strings.Split(prompt, "\n") {
		if i > 0 {
			ids = append(ids, lineEndID)
		}
		for w := range strings.FieldsSeq(line) {
			id, ok := v.ids[w]
			if !ok && !slices.Contains(unknown, w) {
				unknown = append(unknown, w)
			}
			ids = append(ids, id) // 0, the unknown word, if missing
		}
	}
	if len(ids) == 0 {
		ids = append(ids, lineEndID)
	}
	return ids, unknown
}

// text returns the text of ids, which follow the tokens of earlier calls.
func (v *tokens) text(ids []int32, first bool) []byte {
	var b bytes.Buffer
	for _, id := range ids {
		switch {
		case v.words == nil:
			b.WriteByte(byte(id))
		case id == lineEndID:
			b.WriteByte('\n')
			v.begun = false
		default:
			if v.begun {
				b.WriteByte(' ')
			}
			b.WriteString(v.words[id])
			v.begun = true
		}
	}
	if first && len(bytes.TrimSpace(b.Bytes())) == 0 {
		return nil // an empty prompt
	}
	return b.Bytes()
}

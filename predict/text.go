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

// Text says how a language model writes.
type Text struct {
	// Prompt is what it goes on from: words of its vocabulary, or bytes, as it was trained.
	Prompt string
	// Tokens is how many words or bytes it writes.
	Tokens int
	// Temperature divides the logits before a token is drawn: 1 is as the model has learnt, less is more certain, and 0 takes the most
	// probable token each time.
	Temperature float64
	// Seed decides what is drawn: the same one writes the same text.
	Seed uint64
}

// Validate reports all faults together.
func (c Text) Validate() error {
	switch {
	case c.Tokens < 1 || c.Tokens > 1<<24:
		return fmt.Errorf("%d tokens: want 1 to %d", c.Tokens, 1<<24)
	case !(c.Temperature >= 0 && c.Temperature <= 1e6):
		return fmt.Errorf("temperature %s: want 0 for the most probable tokens, or a number such as 0.8", quantity.Exact(c.Temperature))
	}
	return nil
}

// Write has a language model write to out: the prompt, and what follows it, as it comes. unknown, where it is not nil, is told once of
// the prompt's words that the model does not know.
//
// A model that carries state (LSTM) sees each token once, and what came before in its state; one with a window (GPT) sees the last
// tokens of its window anew for each token that it writes: 64 or 256, by the model. The order of sums does not depend on threads, and
// what is drawn comes of Seed alone, so that a text repeats bit by bit on the same kind of machine. A vocabulary of words has one for all
// that it does not know, which is never drawn; it may stand in the prompt.
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
		if v.words != nil { // what is written can be read
			logits[0] = float32(math.Inf(-1))
		}
		ids = append(ids, g.choose(logits, c.Temperature))
		if _, err := out.Write(v.text(ids[len(ids)-1:], false)); err != nil {
			return err
		}
		if !g.carries { // what is beyond the window is not seen again
			ids = ids[max(0, len(ids)-g.window):]
		} else {
			ids = ids[len(ids)-1:]
		}
	}
	_, err := io.WriteString(out, "\n")
	return err
}

// generator runs a model token by token.
type generator struct {
	p          *train.Predictor
	window     int  // tokens that the model sees at once
	carries    bool // it carries state from batch to batch: each token is seen once
	vocabulary int
	draw       *rand.Rand
	batch      data.Batch
	chances    []float64
}

// newDraw draws the same numbers for the same seed.
func newDraw(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) }

// after is the logits of what follows some tokens; of a model that carries state, behind all before.
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

// choose draws a token, or takes the most probable one.
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
	return int32(slices.Index(logits, slices.Max(logits))) // x was within rounding of 1
}

// tokens turns text into numbers and back: words by the vocabulary, or bytes, where there is none.
type tokens struct {
	words []string
	ids   map[string]int32
	begun bool // a word was written, and the next one is apart from it
}

// lineEndID is the end of a line in a vocabulary of words; 0 stands for words that it does not know.
const lineEndID = 1

func newTokens(words []string) *tokens {
	v := &tokens{words: words, ids: map[string]int32{}}
	for i, w := range words {
		v.ids[w] = int32(i)
	}
	return v
}

// parse reads a prompt; an empty one is the end of a line before.
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
			ids = append(ids, id) // 0, which stands for it, where there is none
		}
	}
	if len(ids) == 0 {
		ids = append(ids, lineEndID)
	}
	return ids, unknown
}

// text writes tokens behind those before.
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

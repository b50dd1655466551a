package predict

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/train"
)

// wrote is what a language model writes.
func wrote(p *train.Predictor, c Text) (text string, unknown []string, err error) {
	var out bytes.Buffer
	err = Write(p, c, &out, func(words []string) { unknown = words })
	return out.String(), unknown, err
}

// likeliest is the naive twin of temperature 0: the model sees all tokens again, from the beginning, for each that it writes.
func likeliest(p *train.Predictor, ids []int32, n int) ([]int32, error) {
	words := len(p.Description().Words) > 0
	for range n {
		p.Replica().ResetState()
		seen := ids
		if p.Replica().Model().State == nil {
			seen = ids[max(0, len(ids)-p.Spec().IDs):]
		}
		out, err := p.Forward(&data.Batch{N: 1, IDs: slices.Clone(seen)})
		if err != nil {
			return nil, err
		}
		logits := out[0].Data[len(out[0].Data)/len(seen)*(len(seen)-1):]
		if words {
			logits[0] = float32(math.Inf(-1))
		}
		ids = append(ids, int32(slices.Index(logits, slices.Max(logits))))
	}
	return ids, nil
}

// languages are a model of bytes that sees a window, and one of words that carries state.
func languages(t *testing.T) map[string]train.Config {
	t.Helper()
	text := writeFile(t, strings.Repeat("the cat sat on the mat and saw a dog run\n", 16))
	out := map[string]train.Config{}
	for _, name := range []string{"gpt-mini", "lstm"} {
		out[name] = saved(t, name, func(c *train.Config) { c.Data, c.TrainFile, c.EvalFile, c.Batch = "", text, text, 4 })
	}
	return out
}

// The most probable text is the naive twin's, beyond the window, too; a seed says what is drawn, whatever the threads and whatever was
// written before.
func TestText(t *testing.T) {
	const prompt = "the cat sat on the mat and"
	for name, cfg := range languages(t) {
		var drawn []string
		for _, threads := range []int{1, 3} {
			cfg.Threads = threads
			err := on(t, 1, cfg, func(p *train.Predictor, _ int) error {
				text, _, err := wrote(p, Text{Prompt: prompt, Tokens: 8, Temperature: 1.5, Seed: 7})
				drawn = append(drawn, text)
				if err != nil || threads > 1 {
					return err
				}
				return checkText(t, p, prompt, text, map[string]int{"gpt-mini": 50, "lstm": 6}[name])
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if drawn[0] != drawn[1] || strings.Contains(drawn[0], "<unk>") || !strings.HasPrefix(drawn[0], prompt) {
			t.Errorf("%s drew %q", name, drawn)
		}
	}
	for want, c := range map[string]Text{"0 tokens": {}, "temperature -1": {Tokens: 1, Temperature: -1}, "temperature NaN": {Tokens: 1, Temperature: math.NaN()}} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// checkText compares what is written behind a prompt with the naive twin, and with what was drawn with seed 7.
func checkText(t *testing.T, p *train.Predictor, prompt, drawn string, tokens int) error {
	t.Helper()
	v := newTokens(p.Description().Words)
	ids, _ := v.parse(prompt)
	ids, err := likeliest(p, ids, tokens)
	if err != nil {
		return err
	}
	greedy, unknown, err := wrote(p, Text{Prompt: prompt, Tokens: tokens})
	if want := string(v.text(ids, false)) + "\n"; err != nil || greedy != want || len(unknown) > 0 {
		t.Errorf("wrote %q, want %q; unknown %v, %v", greedy, want, unknown, err)
	}
	if other, _, err := wrote(p, Text{Prompt: prompt, Tokens: 8, Temperature: 1.5, Seed: 8}); err != nil || other == drawn {
		t.Errorf("another seed drew %q, %v", other, err)
	}
	if text, _, err := wrote(p, Text{Tokens: 3}); err != nil || text == "" {
		t.Errorf("without a prompt: %q, %v", text, err)
	}
	if len(v.words) > 0 {
		if text, unknown, err := wrote(p, Text{Prompt: "the zebra", Tokens: 1}); err != nil || !slices.Equal(unknown, []string{"zebra"}) || !strings.HasPrefix(text, "the <unk>") {
			t.Errorf("an unknown word: %q, %v, %v", text, unknown, err)
		}
	}
	return nil
}

// What is drawn has the probabilities of the logits.
func TestChoices(t *testing.T) {
	g := &generator{draw: newDraw(1)}
	logits, count := []float32{0, float32(math.Log(2)), float32(math.Inf(-1)), float32(math.Log(5))}, make([]float64, 4)
	for range 8000 {
		count[g.choose(logits, 1)]++
	}
	for k, want := range []float64{1000, 2000, 0, 5000} {
		if math.Abs(count[k]-want) > 5*math.Sqrt(want) {
			t.Errorf("token %d was drawn %v times, want about %v", k, count[k], want)
		}
	}
	if g.choose(logits, 1e-3) != 3 || g.choose(logits, 0) != 3 {
		t.Error("at low temperatures it is not the most probable one")
	}
}

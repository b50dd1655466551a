package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
)

// oddCase is one sound set of data, or one file of weights, of which one thing is changed.
type oddCase struct {
	oddity
	Ranks int
	At    uint64 // seed of its random values
}

// oddity is one change. A job on the changed input is right in one of two ways: it ends with one
// error that blames the change, or its model is as good as that of the sound input, or the job
// explains the change.
type oddity struct {
	name  string
	sound bool     // the change has no meaning: only an equally good model is right
	blame []string // an error must contain one of these
	say   []string // a job that ends well must print one of these; empty: no explanation is needed for an equally good model
	make  func(t *trap) oddJob
}

// oddJob is the job of one case, and the question that its model must answer.
type oddJob struct {
	Args     []string // of ringo train, without those of all cases
	Question string   // path of the data for ringo predict
	// Score rates predictions, in order of the question's rows: 1 is perfect.
	Score func(predictions []any) float64
}

var oddities = slices.Concat(oddTables, oddImages, oddArrays, oddWeights)

// oddCases is the number of cases in one campaign.
const oddCases = 200

// soundScore is the least score of a model that counts as good; of sound inputs all models reach
// it.
const soundScore = 0.85

// drawOdd draws a change: all of the list in turn, each with other random values and one or two
// ranks.
func drawOdd(rng *rand.Rand, number int) oddCase {
	return oddCase{oddities[number%len(oddities)], 1 + (number/len(oddities)+number)%2, rng.Uint64()}
}

func (c oddCase) String() string {
	return fmt.Sprintf("%s, %d rank(s) (%x)", c.name, c.Ranks, c.At)
}

func (c oddCase) run(s *setup, dir string) verdict {
	t := &trap{dir: dir, rng: rand.New(rand.NewPCG(c.At, 1))}
	o := c.make(t)
	if t.err != nil {
		return broken(t.err)
	}
	run := filepath.Join(dir, "run")
	args := slices.Concat([]string{"train"}, o.Args, []string{"--np", fmt.Sprint(c.Ranks), "--threads", "1", "--progress", "plain", "--checkpoint", run})
	e, err := s.run(dir, args, inputLimit)
	if err != nil {
		return broken(err)
	}
	v := verdict{Said: lastLine(e.Errs)}
	judgeClean(&v, e)
	if e.Status != 0 || e.Overran {
		c.judgeRefusal(&v, e)
		return v
	}
	c.judgeModel(&v, s, o, dir, run, e)
	return v
}

// judgeRefusal requires one error line that blames the change.
func (c oddCase) judgeRefusal(v *verdict, e ending) {
	var errs []string
	for _, text := range strings.Split(e.Errs, "\n") {
		if strings.HasPrefix(text, "ringo: ") {
			errs = append(errs, text)
		}
	}
	switch {
	case c.sound:
		v.wrong("the change has no meaning, and is refused: %s", lastLine(e.Errs))
	case len(errs) != 1:
		v.wrong("%d error lines, want one: %q", len(errs), e.Errs)
	case !holdsAny(errs[0], c.blame):
		v.wrong("the error contains none of %q: %s", c.blame, errs[0])
	}
}

// judgeModel asks the model for predictions, and compares the evaluation of its checkpoint with
// that of the training.
func (c oddCase) judgeModel(v *verdict, s *setup, o oddJob, dir, run string, e ending) {
	said := e.Out + "\n" + e.Errs
	explained := holdsAny(said, c.say)
	if len(c.say) > 0 && !explained {
		v.wrong("status 0, and no line contains one of %q", c.say)
	}
	if !evaluatedAlike(s, dir, run, e.Out, v) {
		return
	}
	p, err := s.run(dir, []string{"predict", run, "--data", o.Question}, inputLimit)
	if err != nil {
		v.wrong("predict: %v", err)
		return
	}
	if p.Status != 0 {
		if !explained {
			v.wrong("status 0, but the model takes no sound data: %s", lastLine(p.Errs))
		}
		return
	}
	score, err := scored(p.Out, o.Score)
	switch {
	case err != nil:
		v.wrong("%v", err)
	case score < soundScore && !explained:
		v.wrong("status 0 with a score of %.3f, and no explanation", score)
	}
}

// evaluatedAlike reports whether ringo eval repeats the last line of the training.
func evaluatedAlike(s *setup, dir, run, trained string, v *verdict) bool {
	e, err := s.run(dir, []string{"eval", run}, inputLimit)
	if err != nil {
		v.wrong("eval: %v", err)
		return false
	}
	want := resultOf(trained)
	if e.Status == 0 && want != "" && !strings.Contains(e.Out+e.Errs, want) {
		v.wrong("eval prints %q, training %q", lastLine(e.Out+e.Errs), want)
		return false
	}
	return true
}

// resultOf is what the last line of a training prints of its test, or "".
func resultOf(out string) string {
	for _, text := range slices.Backward(strings.Split(out, "\n")) {
		if before, _, found := strings.Cut(text, " after "); found && strings.HasPrefix(before, "test ") {
			return before
		}
	}
	return ""
}

// scored reads the lines that predict prints, in order of their rows.
func scored(out string, score func([]any) float64) (float64, error) {
	var all []struct {
		Row        int `json:"row"`
		Prediction any `json:"prediction"`
	}
	for _, text := range strings.Split(strings.TrimSpace(out), "\n") {
		if !strings.HasPrefix(text, "{") {
			continue
		}
		all = append(all, struct {
			Row        int `json:"row"`
			Prediction any `json:"prediction"`
		}{})
		if err := json.Unmarshal([]byte(text), &all[len(all)-1]); err != nil {
			return 0, fmt.Errorf("predict prints %q: %w", text, err)
		}
	}
	values := make([]any, len(all))
	for i, p := range all {
		if p.Row != i {
			return 0, fmt.Errorf("predict prints row %d in place %d", p.Row, i)
		}
		values[i] = p.Prediction
	}
	return score(values), nil
}

// accuracy is the share of predictions that are the right words.
func accuracy(want []string) func([]any) float64 {
	return func(got []any) float64 {
		right := 0
		for i, p := range got[:min(len(got), len(want))] {
			if fmt.Sprint(p) == want[i] {
				right++
			}
		}
		return float64(right) / float64(max(len(want), 1))
	}
}

// r2 is the coefficient of determination of predicted numbers.
func r2(want []float64) func([]any) float64 {
	return func(got []any) float64 {
		if len(got) != len(want) {
			return 0
		}
		mean, errs, all := 0.0, 0.0, 0.0
		for _, y := range want {
			mean += y / float64(len(want))
		}
		for i, y := range want {
			p, ok := got[i].(float64)
			if !ok {
				return 0
			}
			errs += (p - y) * (p - y)
			all += (y - mean) * (y - mean)
		}
		return 1 - errs/cmp.Or(all, 1)
	}
}

package train

import (
	"fmt"
	"math"
)

// tally is what a rank counts over an epoch, and what the ranks add up after
// it.
type tally struct {
	loss, correct, terms, samples    float64 // training; the loss is a mean over terms
	evalLoss, evalCorrect, evalTerms float64
	trainS, median                   float64 // in seconds
	payload, wire                    float64
	spent                            spent
	tuneS                            float64 // of measuring and choosing between steps; not in checkpoints
	first                            float64 // the loss of the first step of all; not in checkpoints
}

// passing are the fields that checkpoints leave out.
func (t *tally) passing() []*float64 { return []*float64{&t.spent.pull, &t.tuneS, &t.first} }

// values are the fields in a fixed order, to be added up or saved.
func (t *tally) values() []*float64 {
	return append([]*float64{
		&t.loss, &t.correct, &t.terms, &t.samples, &t.evalLoss, &t.evalCorrect, &t.evalTerms,
		&t.trainS, &t.median, &t.payload, &t.wire,
	}, t.spent.values()...)
}

// sum adds the tallies of all ranks and, of click models, returns all scores.
func (t *tally) sum(p peers, own []scored, click bool) ([]scored, error) {
	fields := append(t.values(), t.passing()...)
	x := make([]float64, len(fields))
	for i, f := range fields {
		x[i] = *f
	}
	scores, err := p.addUp(x, own, click)
	if err != nil {
		return nil, fmt.Errorf("adding up the epoch's figures: %w", err)
	}
	for i, f := range fields {
		*f = x[i]
	}
	return scores, nil
}

// add adds the tally of another thread.
func (t *tally) add(o *tally) {
	other := append(o.values(), o.passing()...)
	for i, f := range append(t.values(), t.passing()...) {
		*f += *other[i]
	}
}

// train counts a training batch of n samples.
func (t *tally) train(res Result, n int) {
	t.loss += res.Loss * float64(res.Count)
	t.correct += float64(res.Correct)
	t.terms += float64(res.Count)
	t.samples += float64(n)
}

// evaluate counts an evaluation batch.
func (t *tally) evaluate(res Result) {
	t.evalLoss += res.Loss * float64(res.Count)
	t.evalCorrect += float64(res.Correct)
	t.evalTerms += float64(res.Count)
}

// perplexity is e to the mean loss per token, where that is a number at all.
func perplexity(loss float64) Figure {
	p := math.Exp(loss)
	return Figure{Value: p, Known: !math.IsInf(p, 0)}
}

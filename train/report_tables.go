package train

import (
	"slices"

	"github.com/ringo-ml/ringo/internal/evalmetrics"
	"github.com/ringo-ml/ringo/model"
)

// Limits of the number of 8-byte words that each rank gathers for the tables of an evaluation.
// Tables, or their AUC, that need more are omitted.
const (
	epochTableWords = 1 << 21 // after an epoch
	savedTableWords = 1 << 26 // of a checkpoint
)

// The worst samples that a training run reports, for evaluations of at most shownWorstOf samples: a
// report sorts all losses after each epoch, and at the end reads a table for their rows.
const (
	shownWorst   = 6
	shownWorstOf = 1 << 16
)

// evaluation has the counters of a model on an evaluation set, or on a part of it.
type evaluation struct {
	counts model.Counts
	// words are the words of metrics with Metric.Samples.
	words  [][]uint64
	tables *evalmetrics.Counter
	report evalmetrics.Report // of all ranks
	others []evaluation       // of this rank's further virtual workers
}

func (r *Replica) newEvaluation(plan evalmetrics.Plan) evaluation {
	return evaluation{counts: r.model.NewCounts(), words: r.model.NewWords(), tables: plan.NewCounter()}
}

func (e *evaluation) add(o *evaluation) {
	other := o.counts.Fields()
	for i, f := range e.counts.Fields() {
		*f += *other[i]
	}
	for i, w := range o.words {
		e.words[i] = append(e.words[i], w...)
	}
	e.tables.Merge(o.tables)
}

// tablePlan selects the tables of the model's evaluations, equally on all ranks.
func (l *epochLoop) tablePlan() (p evalmetrics.Plan) {
	classes, each := l.data.options().Classes, 1
	switch {
	case l.spec.Task == model.Language:
	case l.spec.Targets > 0 && l.spec.Labels == 0:
		p.Kind, each = evalmetrics.Numbers, l.spec.Targets
		if e := l.data.set.Encoder; e != nil {
			if goal, ok := e.Goal(); ok && goal.Deviation > 0 {
				p.Unit, p.Value = goal.Name, goal.Value
			}
		}
	case l.spec.LabelsEach() != 1:
	case l.spec.Task == model.Click:
		p.Kind = evalmetrics.Clicks
	case l.spec.Task == model.Classify && classes > 1:
		p.Kind, p.Classes, p.Names = evalmetrics.Classes, classes, l.data.set.Words
	}
	if p.Losses = l.judges || l.showsWorst() && p.Kind != evalmetrics.None; p.Losses {
		each += 4 // loss and number, their order, and the sorted losses
	}
	if p.Worst = shownWorst; l.judges {
		p.Worst = 0
	}
	if l.judges && !l.permutes {
		if p.Worst, p.By = l.cfg.Worst, l.groups; l.cfg.By != "" {
			each += 2 // score and loss by group
		}
	}
	p.Samples = l.data.shares.eval <= l.tableWords/each
	p.Scores = !l.permutes && p.Kind == evalmetrics.Classes && l.data.shares.eval <= l.tableWords/(1+classes)
	return p
}

// showsWorst reports whether a training run's evaluations have the worst samples.
func (l *epochLoop) showsWorst() bool {
	shared := len(l.data.shares.ranks) == 0 || len(l.data.shares.ranks) == l.job.Size()
	return l.tableWords == epochTableWords && shared && l.spec.Targets <= 1 && l.data.shares.eval <= shownWorstOf
}

// tablePass returns a pass for a Counter.
func tablePass(p model.Pass, index []int32) (out evalmetrics.Pass) {
	if p.Outputs[0] != nil {
		out.Outputs = p.Outputs[0].Data
	}
	out.Index = index
	out.Labels, out.Targets, out.Correct = p.Batch.Labels, p.Batch.Targets, p.Loss.Correct
	return out
}

// addUp adds up an evaluation and counters over the ranks. All ranks call it.
func (l *epochLoop) addUp(whole *evaluation, t *epochCounters) error {
	recordOf := func(e *evaluation, t *epochCounters) addends {
		return addends{slices.Concat(t.all(), e.counts.Fields()), slices.Concat(e.words, e.tables.Words())}
	}
	var others []addends
	for i := range whole.others {
		others = append(others, recordOf(&whole.others[i], &t.others[i]))
	}
	n, own := len(whole.words), recordOf(whole, t)
	words, err := addUp(l.peers, own.sums, own.words, others...)
	if err != nil {
		return err
	}
	whole.words, whole.report = words[:n], l.tablePlan().Report(words[n:])
	return nil
}

package train

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
)

// ErrStop is what a callback returns to end the run in good order: all ranks end after the same step or epoch, evaluate, save
// and return their Summary, which says so.
var ErrStop = errors.New("train: stop")

// Callbacks are called on every rank, on the training goroutine; nil ones are not. An error ends the run, ErrStop in good order. It is
// enough that one rank returns it: each call then costs all ranks a meeting of some microseconds, which they make only where there is
// a callback, and all must have the same ones.
type Callbacks struct {
	// AfterStep is called after each step of a rank. Where ranks are not in step (ssp, async, geo, several threads), ErrStop ends the
	// run after the epoch, and threads call it in turn.
	AfterStep func(Step) error
	// AfterEpoch is called when the epoch was evaluated, before it is saved. The figures are the same on all ranks.
	AfterEpoch func(Epoch) error
	// AfterCheckpoint is called when the run was saved, with the number of its steps.
	AfterCheckpoint func(step int64) error
}

// names are those that are there.
func (c Callbacks) names() string {
	var names []string
	for name, is := range map[string]bool{"AfterStep": c.AfterStep != nil, "AfterEpoch": c.AfterEpoch != nil, "AfterCheckpoint": c.AfterCheckpoint != nil} {
		if is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Step is what a step was like on one rank. As JSON it is a line of the file named by --json, on rank 0, after every so many.
type Step struct {
	Event string `json:"event"` // "step"
	Seed  uint64 `json:"seed"`
	Epoch int    `json:"epoch"` // from 1
	// Step is that of the epoch, from 1, and Done how many of the run are done.
	Step int   `json:"step"`
	Done int64 `json:"done"`
	// LR is its learning rate, and Loss this rank's of its last batch, before the update. It is NaN
	// or infinite if the step was skipped for it, and Observer.Step is not told of such a step.
	LR   float64 `json:"lr"`
	Loss float64 `json:"loss"`
	// WallS is how many seconds ago the run began or was resumed, when the step had ended.
	WallS float64 `json:"wall_s"`
	// StepMS is how long it took, BreakDown of what, DataWaitMS the part of ComputeMS that waited for batches, and PullWaitMS for servers.
	StepMS float64 `json:"step_ms"`
	BreakDown
	DataWaitMS float64 `json:"data_wait_ms"`
	PullWaitMS float64 `json:"pull_wait_ms,omitempty"`
	// SamplesPerS is the rate of all ranks, if each took as long.
	SamplesPerS float64 `json:"samples_per_s"`
	// Layers are what the step did to each layer, with Config.Layers, of steps that Observer.Step is told of.
	Layers []Layer `json:"layers,omitempty"`
	// Progressive is what a click model's last samples had come to when ranks last put their windows together.
	*Progressive
}

// Best says by which figure of the evaluation epochs are compared. The checkpoint of the best one so far remains however many there
// are.
type Best struct {
	// Metric is the name of one of the model's, or "loss", or of a click model "progressive_auc" or "progressive_logloss"; empty: epochs are not compared.
	Metric string
	// Patience ends the run after so many epochs that were no better than the best before; 0: it goes on.
	Patience int
}

func (b *Best) settings() []setting.Row {
	metric := setting.Enabled("training.monitor")
	return []setting.Row{
		{Path: "training.monitor", Unit: "metric", Scope: setting.JobMutable, Value: setting.Text(&b.Metric),
			About: "the evaluation's figure by which epochs are compared, such as accuracy, auc or loss, or progressive_auc of click models' training: the best one's checkpoint is kept"},
		{Path: "training.patience", Unit: "epochs", Scope: setting.JobMutable, Needs: metric, Value: setting.Int(&b.Patience),
			About: "end the run after so many epochs that were no better by training.monitor; 0: go on"},
	}
}

// BestEpoch is the best epoch of a run so far.
type BestEpoch struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Epoch  int     `json:"epoch"` // from 1
	// Step is how many steps of the run were done then: its checkpoint is checkpoint.PathOf the folder and Step.
	Step int64 `json:"step"`
}

// lower says that less is better by the metric that epochs are compared by.
func (r *reports) lower() bool {
	metrics := r.replica.model.Metrics
	i := slices.IndexFunc(metrics, func(m model.Metric) bool { return m.Name == r.cfg.Best.Metric })
	return r.cfg.Best.Metric != progressiveBy[0] && (i < 0 || metrics[i].Lower)
}

// checkBest reports a metric that the model does not have.
func (r *reports) checkBest() error {
	m := r.cfg.Best.Metric
	known := []string{"loss"}
	for _, x := range r.replica.model.Metrics {
		known = append(known, x.Name)
	}
	if slices.ContainsFunc(r.replica.model.Metrics, func(x model.Metric) bool { return x.Score != nil }) {
		known = append(known, progressiveBy...)
	}
	if m == "" || slices.Contains(known, m) {
		return nil
	}
	return setting.Errorf("training.monitor", "%s: the evaluation of %s has %s", m, r.cfg.name(), strings.Join(known, ", "))
}

// compare notes an epoch that is the best so far, and whether it is. An epoch without the figure is not.
func (r *reports) compare(e Epoch, step int64) (better bool) {
	b := r.cfg.Best
	if b.Metric == "" {
		return false
	}
	v, known := e.Eval[b.Metric]
	if slices.Contains(progressiveBy, b.Metric) {
		v, known = e.Progressive.by(b.Metric)
	}
	if b.Metric == "loss" {
		v, known = e.EvalLoss, true
	}
	was := r.past.Best
	if was != nil && was.Metric != b.Metric {
		was = nil // the run was resumed with another one
	}
	switch {
	case !known || !finite(v):
	case was == nil:
		better = true
	case r.lower():
		better = v < was.Value
	default:
		better = v > was.Value
	}
	if better {
		r.past.Best = &BestEpoch{Metric: b.Metric, Value: v, Epoch: e.Epoch, Step: step}
	}
	return better
}

// exhausted is why the run ends after an epoch that was not the first one without progress; "": it goes on.
func (l *epochLoop) exhausted(epoch int) string {
	b, best := l.cfg.Best, l.reports.past.Best
	if b.Patience == 0 || best == nil || best.Metric != b.Metric || epoch-best.Epoch < b.Patience {
		return ""
	}
	return fmt.Sprintf("no better %s than %s of epoch %d for %s", b.Metric, quantity.FloatDigits(best.Value, 6), best.Epoch, quantity.Count(b.Patience, "epoch"))
}

// called finds out whether any rank's callback has returned ErrStop. It is a collective call.
func (l *epochLoop) called(err error) (stop bool, _ error) {
	own := []byte{0}
	switch {
	case errors.Is(err, ErrStop):
		own[0] = 1
	case err != nil:
		return false, err
	}
	all, err := l.peers.gather(own)
	if err != nil {
		return false, fmt.Errorf("learning whether a callback ends the run: %w", err)
	}
	return slices.ContainsFunc(all, func(b []byte) bool { return len(b) == 1 && b[0] == 1 }), nil
}

// calling calls a callback of a name. Its panic is an error, and every error of it but ErrStop
// names it.
func calling(name string, callback func() error) error {
	err := panics.Do(callback)
	if err == nil || errors.Is(err, ErrStop) {
		return err
	}
	return fmt.Errorf("callback %s: %w", name, err)
}

// afterStep tells of a step, and finds out whether the epoch ends with it.
func (c *threadPool) afterStep(w *trainerThread, t StepTimes, loss float64, lr float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.cfg.LogEvery > 0 && (w.at+1)%c.cfg.LogEvery == 0 && finite(loss)
	if !told && c.cfg.AfterStep == nil && c.cfg.EachStep == nil {
		return nil
	}
	s := Step{
		Event: "step", Seed: c.cfg.Seed, Epoch: c.epoch, Step: w.at + 1, Done: c.resumption.stepsDone(position{epoch: c.epoch, step: w.at + 1}), LR: lr, Loss: loss, WallS: c.wall(),
		StepMS: 1000 * t.Whole.Seconds(), BreakDown: t.breakDown(), DataWaitMS: 1000 * t.Data.Seconds(), PullWaitMS: 1000 * t.Pull.Seconds(), SamplesPerS: float64(c.data.stepSamples(w.at, c.there...)) / max(t.Whole.Seconds(), 1e-9), Progressive: c.reports.scores.latest(),
	}
	if c.cfg.EachStep != nil {
		c.cfg.EachStep(s)
	}
	if told {
		if c.cfg.Layers && c.job.Rank() == 0 && w == c.workers[0] {
			s.Layers = w.replica.Layers()
		}
		c.obs.Step(s)
	}
	if c.cfg.AfterStep == nil {
		return nil
	}
	err := calling("AfterStep", func() error { return c.cfg.AfterStep(s) })
	if !c.inStep() {
		if errors.Is(err, ErrStop) {
			c.wantsStop, err = true, nil
		}
		return err
	}
	stop, err := c.called(err)
	if stop {
		c.cut, c.ended = true, fmt.Sprintf("a callback ended it after step %d of epoch %d", w.at+1, c.epoch)
	}
	return err
}

// afterEpoch notes whether the run ends with an epoch, and whether that is the best so far.
func (l *epochLoop) afterEpoch(e Epoch, step int64) (better bool, err error) {
	better = l.reports.compare(e, step)
	if l.ended == "" {
		l.ended = l.exhausted(e.Epoch)
	}
	if l.cfg.AfterEpoch == nil && l.cfg.AfterStep == nil && l.cfg.AfterCheckpoint == nil {
		return better, nil
	}
	if l.cfg.AfterEpoch != nil {
		err = calling(fmt.Sprintf("AfterEpoch of epoch %d", e.Epoch), func() error { return l.cfg.AfterEpoch(e) })
	}
	if err == nil && l.wantsStop {
		err = ErrStop
	}
	stop, err := l.called(err)
	if stop {
		l.ended = cmp.Or(l.ended, fmt.Sprintf("a callback ended it after epoch %d", e.Epoch))
	}
	return better, err
}

// afterCheckpoint tells of one. What ends the run then does so after the epoch.
func (s *saver) afterCheckpoint(step int64) error {
	if s.cfg.AfterCheckpoint == nil {
		return nil
	}
	err := calling(fmt.Sprintf("AfterCheckpoint of step %d", step), func() error { return s.cfg.AfterCheckpoint(step) })
	if errors.Is(err, ErrStop) {
		s.wantsStop, err = true, nil
	}
	return err
}

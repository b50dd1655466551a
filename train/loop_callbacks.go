package train

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/panics"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
)

// ErrStop is the error by which a callback ends the run without failure: all ranks end after the
// same step or epoch, evaluate, save and return their Summary with the reason.
var ErrStop = errors.New("train: stop")

// Callbacks, unless nil, are called on every rank, on the training goroutine. ErrStop ends the run
// as described there, any other error makes it fail, even if only one rank returns it. All ranks
// must set the same callbacks, because after each call all ranks compare results, which takes a few
// microseconds.
type Callbacks struct {
	// AfterStep is called after each step of a rank. If ranks do not make the same steps together
	// (ssp, async, geo, several threads), ErrStop ends the run after the epoch; calls of several
	// threads do not overlap.
	AfterStep func(Step) error
	// AfterEpoch is called after the evaluation of an epoch, before it is saved. Metrics are equal
	// on all ranks.
	AfterEpoch func(Epoch) error
	// AfterCheckpoint is called after a save, with the number of steps.
	AfterCheckpoint func(step int64) error
}

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

// Step reports a step of one rank. As JSON it is a line of the file named by --json, on rank 0,
// every Config.LogEvery steps.
type Step struct {
	Event string `json:"event"`
	Seed  uint64 `json:"seed"`
	Epoch int    `json:"epoch"` // counted from 1
	// Step is the number of the step in the epoch, from 1. Done is the number of steps of the run.
	Step int   `json:"step"`
	Done int64 `json:"done"`
	// LR is the learning rate. Loss is the loss of the rank's last batch, before the update. A
	// skipped step may have a loss of NaN or infinity; Observer.Step does not receive such a step.
	LR   float64 `json:"lr"`
	Loss float64 `json:"loss"`
	// WallS is the time in seconds since the run began or resumed.
	WallS float64 `json:"wall_s"`
	// StepMS is the duration of the step, and BreakDown its parts. DataWaitMS is the part of
	// ComputeMS that waited for batches, PullWaitMS for servers.
	StepMS float64 `json:"step_ms"`
	BreakDown
	DataWaitMS float64 `json:"data_wait_ms"`
	PullWaitMS float64 `json:"pull_wait_ms,omitempty"`
	// SamplesPerS is the rate of all ranks at this step's duration.
	SamplesPerS float64 `json:"samples_per_s"`
	// Layers are the layers' statistics with Config.Layers, in steps for Observer.Step.
	Layers []Layer `json:"layers,omitempty"`
	// Progressive has a click model's metrics for the latest samples, when ranks last merged them.
	*Progressive
}

// Best selects the metric of the evaluation by which epochs are compared. The best epoch's
// checkpoint is kept in addition to Checkpoint.Keep.
type Best struct {
	// Metric is a metric of the model, "loss", or for click models "progressive_auc" or
	// "progressive_logloss". "" disables the comparison.
	Metric string
	// Patience ends the run after this number of epochs without progress. 0 means never.
	Patience int
}

func (b *Best) settings() []setting.Row {
	return []setting.Row{{Path: "training.monitor", Unit: "metric", Scope: setting.JobMutable, Value: setting.Parsed(b, parseBest, Best.text),
		About: "evaluation metric that compares epochs, such as accuracy, auc or loss, or progressive_auc of click models' training; the best epoch's checkpoint is kept; with loss:patience=5 the run ends after 5 epochs without a better one"}}
}

// parseBest reads METRIC or METRIC:patience=EPOCHS; an empty text disables the comparison.
func parseBest(text string) (b Best, err error) {
	metric, epochs, found := strings.Cut(text, ":patience=")
	b.Metric = metric
	if !found {
		return b, nil
	}
	if b.Patience, err = strconv.Atoi(epochs); err != nil || metric == "" {
		return b, fmt.Errorf("want METRIC or METRIC:patience=EPOCHS, such as loss:patience=5")
	}
	return b, nil
}

func (b Best) text() string {
	if b.Patience == 0 {
		return b.Metric
	}
	return fmt.Sprintf("%s:patience=%d", b.Metric, b.Patience)
}

// BestEpoch is the best epoch of a run until now.
type BestEpoch struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Epoch  int     `json:"epoch"` // counted from 1
	// Step is the number of steps of the run: checkpoint.PathOf returns the path of its checkpoint.
	Step int64 `json:"step"`
}

// lower reports whether less is better by the metric of Best.
func (r *reports) lower() bool {
	metrics := r.replica.model.Metrics
	i := slices.IndexFunc(metrics, func(m model.Metric) bool { return m.Name == r.cfg.Best.Metric })
	return r.cfg.Best.Metric != progressiveBy[0] && (i < 0 || metrics[i].Lower)
}

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

// compare reports whether an epoch is the best one until now, and stores it if so.
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
		was = nil // another metric since the resumption
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

// exhausted returns the reason to end the run after an epoch without progress; "" to continue.
func (l *epochLoop) exhausted(epoch int) string {
	b, best := l.cfg.Best, l.reports.past.Best
	if b.Patience == 0 || best == nil || best.Metric != b.Metric || epoch-best.Epoch < b.Patience {
		return ""
	}
	return fmt.Sprintf("no better %s than %s of epoch %d for %s", b.Metric, quantity.FloatDigits(best.Value, 6), best.Epoch, quantity.Count(b.Patience, "epoch"))
}

// called determines whether a callback of any rank returned ErrStop. All ranks call it.
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

// calling runs a callback. A panic becomes an error, and errors except for ErrStop name the
// callback.
func calling(name string, callback func() error) error {
	err := panics.Do(callback)
	if err == nil || errors.Is(err, ErrStop) {
		return err
	}
	return fmt.Errorf("callback %s: %w", name, err)
}

// afterStep reports a step, and determines whether the epoch ends with it.
func (c *threadPool) afterStep(w *trainerThread, t StepTimes, loss float64, lr float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.cfg.LogEvery > 0 && (w.at+1)%c.cfg.LogEvery == 0 && finite(loss)
	if !told && c.cfg.AfterStep == nil && c.cfg.EachStep == nil {
		return nil
	}
	s := Step{
		Event: "step", Seed: c.cfg.Seed, Epoch: c.epoch, Step: w.at + 1, Done: c.resumption.stepsDone(position{epoch: c.epoch, step: w.at + 1}), LR: lr, Loss: loss, WallS: c.wall(),
		StepMS: 1000 * t.Whole.Seconds(), BreakDown: t.breakDown(), DataWaitMS: 1000 * t.Data.Seconds(), PullWaitMS: 1000 * t.Pull.Seconds(), SamplesPerS: float64(c.data.stepSamples(w.at, c.training...)) / max(t.Whole.Seconds(), 1e-9), Progressive: c.reports.scores.latest(),
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

// afterEpoch determines whether the run ends with an epoch, and whether the epoch is the best one.
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

// afterCheckpoint calls the callback. ErrStop then ends the run after the epoch.
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

package train

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// reports is the part of a run that measures and reports: losses, scores, epochs, the best one.
type reports struct {
	*runEnv
	data *runData

	past               runHistory
	initial            []string // lines about initial values of parameters, on rank 0
	first, recent      float64  // losses of this rank's first and last step
	divergenceReported bool
	skipReported       bool
	scores             *lastScores // nil unless the model predicts clicks
	payload0, wire0    int64       // traffic already counted
	stepS              []float64   // seconds of each step of the epoch
	residual           time.Time   // time of the last metric of the residual norm
	layers             []Layer     // statistics of the epoch's last step, with Config.Layers
}

func (r *reports) countTraffic(t *epochCounters) {
	now := r.job.Traffic()
	t.payload += float64(now.PayloadSent - r.payload0)
	t.wire += float64(now.WireSent - r.wire0)
	r.payload0, r.wire0 = now.PayloadSent, now.WireSent
}

// medianStep returns the median seconds of the epoch's steps since the run began or resumed.
func (r *reports) medianStep() float64 {
	n := len(r.stepS)
	if n == 0 {
		return 0
	}
	slices.Sort(r.stepS)
	return (r.stepS[(n-1)/2] + r.stepS[n/2]) / 2
}

// report returns the epoch's metrics from the sums over ranks. done is the run's step count.
func (r *reports) report(p position, done int64, whole evaluation) (Epoch, error) {
	epoch, step, t := p.epoch, p.step, p.tally
	np := float64(len(r.peers.liveRanks()))
	steps := float64(step) * np
	r.past.TrainS += t.trainS / np
	if r.past.Start == 0 {
		r.past.Start = t.first / np
		if r.cfg.Workers > 0 {
			r.past.Start = t.first / float64(r.virtual())
		}
	}
	r.past.Samples += int64(t.samples)
	r.past.Terms += int64(t.train.Terms)
	m, eval := r.replica.model, r.replica.evaluated(whole)
	e := Epoch{
		Event: "epoch", Epoch: epoch, Seed: r.cfg.Seed, LR: r.data.lr(epoch, max(0, step-1)), Done: done, WallS: r.wall(),
		TrainLoss: t.train.Loss / t.train.Terms, EvalLoss: eval.Loss,
		Train: m.Figures(t.train, nil, true), Eval: eval.Figures, Report: eval.Report, Progressive: r.scores.latest(),
		SamplesPerS: t.samples / (t.trainS / np), StepMS: 1000 * t.trainS / steps,
		BytesSent: int64(t.payload), WireBytes: int64(t.wire),
		StepMedianMS: 1000 * t.median / np, BreakDown: t.spent.breakDown(),
		DataWaitMS: 1000 * t.spent.data / t.spent.steps, PullWaitMS: 1000 * t.spent.pull / t.spent.steps, TuneS: t.tuneS / np, StepBytesSent: t.spent.bytes / t.spent.steps, Skipped: r.past.skips.Epoch,
	}
	e.Layers, e.Stages = r.layers, r.replica.split.spent()
	if !finite(e.EvalLoss) {
		return Epoch{}, fmt.Errorf("the loss of the evaluation is %s: training has diverged, or a row of the evaluation samples has a value that is not finite; lower the learning rate (now %s)", quantity.Exact(e.EvalLoss), quantity.Exact(e.LR))
	}
	if r.spec.Task == model.Language {
		e.TokensPerS = OptionalFloat{Value: t.train.Terms / (t.trainS / np), Known: true}
	}
	return e, nil
}

// stepTime returns the approximate duration of a step in seconds; 0 if unknown.
func (r *reports) stepTime() float64 {
	sum := 0.0
	for _, s := range r.stepS {
		sum += s
	}
	if sum == 0 {
		return 0
	}
	return sum / float64(len(r.stepS)*len(r.workers))
}

// unit returns the unit of rates, and the number of units in a sample.
func (r *run) unit() (name string, perSample int) {
	if r.spec.Task == model.Language {
		return "tokens", max(1, r.spec.Labels)
	}
	return "samples", 1
}

// inDeviations marks the mean absolute error as in units of the standard deviation, if a table's
// target is standardised: the tables of an evaluation have it in the unit of the column.
func inDeviations(metrics []model.Metric, e *table.Encoder) []model.Metric {
	metrics = slices.Clone(metrics)
	for i := range metrics {
		if goal, ok := e.Goal(); ok && goal.Deviation > 0 && metrics[i].Name == model.MAE().Name {
			metrics[i].Title += " in deviations"
		}
	}
	return metrics
}

func (r *run) info() Info {
	o := r.replica.Opt
	var columns []table.Found
	var columnNotes []string
	metrics := r.replica.model.Metrics
	if e := r.data.set.Encoder; e != nil {
		columns, columnNotes = e.Found(), e.ColumnNotes()
		metrics = inDeviations(metrics, e)
	}
	best := BestEpoch{Metric: r.cfg.Best.Metric}
	if b := r.reports.past.Best; b != nil && b.Metric == best.Metric {
		best = *b
	}
	unit, per := r.unit()
	return Info{
		Model: r.cfg.name(), Params: r.params(), NP: r.job.Size(), Workers: r.cfg.Workers, Servers: r.job.Servers() + r.job.ParameterServers(), Threads: r.cfg.Threads, Batch: r.cfg.Batch,
		Unit: unit, PerSample: per, Metrics: metrics, TrainSamples: r.data.samples, EvalSamples: r.data.shares.eval, LeftOut: r.data.shares.excluded, Omitted: r.data.omitted(),
		Epochs: r.cfg.Epochs, StepsPerEpoch: r.data.steps, Optimizer: r.cfg.Optimizer, Schedule: r.cfg.schedule().String(), UsualRate: r.usualRate(), GlobalBatch: r.globalBatch(), Seed: r.cfg.Seed, Fold: r.cfg.foldNumber(),
		Strategy: string(o.Strategy()), Codec: o.Codec(), Exchange: o.Explain(), Plan: o.PlanName(), PlanSHA256: o.Plan().SHA256(), Buckets: len(o.Plan()),
		Kernels: r.replica.Kernels(), Transport: r.job.Transport(), Placement: r.job.Placement(), DataSet: r.cfg.source(), DataNotes: slices.Concat(r.data.set.Notes, r.data.shares.notes, r.data.notes), Columns: columns, ColumnNotes: columnNotes, Best: best,
		Parameters: slices.Concat(r.reports.initial, r.replica.chosen(), r.replica.precision(), r.keyed()), Initial: r.reports.initial, Resumed: r.resumption.found.File, Steps: o.Steps(), Changed: r.resumption.found.Changed,
	}
}

// paramsSHA256 returns the hash of the model's values, and an error if the ranks differ. The call
// is collective.
func (r *reports) paramsSHA256() (string, error) {
	sum, copies, err := r.replica.hash()
	if err != nil {
		return "", fmt.Errorf("comparing parameters: %w", err)
	}
	if err := r.sameOnAll(copies[:], "parameters", "the replicas differ; the cause is an error of the program or of a machine's memory"); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum[:]), nil
}

func (r *run) summary() (Summary, error) {
	sum, err := r.reports.paramsSHA256()
	if err != nil {
		return Summary{}, err
	}
	left, err := r.data.leftOut()
	if err != nil {
		return Summary{}, err
	}
	keys, err := r.reports.distinctKeys()
	if err != nil {
		return Summary{}, err
	}
	o, last := r.replica.Opt, r.reports.past.Last
	s := Summary{
		Event: "summary", Model: r.cfg.name(), Params: r.params(), NP: r.job.Size(), Servers: r.job.Servers() + r.job.ParameterServers(),
		Strategy: string(o.Strategy()), Codec: o.Codec(), Plan: o.PlanName(), PlanSHA256: o.Plan().SHA256(), Buckets: len(o.Plan()), Choices: r.replica.Tuner.State().Made, Optimizer: r.cfg.Optimizer, Seed: r.cfg.Seed, Fold: r.cfg.foldNumber(),
		TrainLoss: last.TrainLoss, EvalLoss: last.EvalLoss, Eval: last.Eval, Report: last.Report,
		SamplesPerS: float64(r.reports.past.Samples) / r.reports.past.TrainS, LeftOut: left,
		Ended: r.ended, Best: r.reports.past.Best, Lost: r.lost(), DiskFullCheckpoints: r.saver.room.failed, Skipped: o.Setup().Skipped, Diverged: r.reports.divergence(),
		DistinctKeys: keys, ParamsSHA256: sum, WallS: r.wall(),
	}
	s.BestCheckpoint, s.LastCheckpoint = r.saver.files()
	r.loop.placeWorst(&s.Report)
	if r.ended != "" {
		s.Epochs = last.Epoch
	}
	if r.cfg.ScaleLR {
		s.LR, s.Warmup = r.cfg.LR, r.cfg.Warmup
	}
	if r.spec.Task == model.Language {
		s.TokensPerS = OptionalFloat{Value: float64(r.reports.past.Terms) / r.reports.past.TrainS, Known: true}
	}
	return s, nil
}

// distinctKeys estimates the number of different keys that all ranks have trained on, with a
// standard error of 0.8 %; 0 if the model takes no keys. All ranks call it.
func (r *reports) distinctKeys() (int64, error) {
	if len(r.spec.Slots) == 0 {
		return 0, nil
	}
	own := &r.workers[0].keys
	for _, w := range r.workers[1:] {
		if err := own.Merge(w.keys.Bytes()); err != nil {
			return 0, err
		}
	}
	all, err := r.peers.gather(own.Bytes())
	for _, theirs := range all {
		if err == nil {
			err = own.Merge(theirs)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("counting different keys: %w", err)
	}
	return int64(math.Round(own.Estimate())), nil
}

// keyed returns a line about the rows of keys; none if the model takes no keys. In a table with a
// fixed number of rows several keys may share a row; servers have a row for each key.
func (r *run) keyed() []string {
	rows, served := "", r.cfg.Servers.Consistency != ""
	for _, t := range r.replica.Params.Tables() {
		switch {
		case t.Slots == nil:
			continue
		case served:
			return []string{"rows of tables: one for each key, made when it first comes"}
		case rows == "":
			rows = strconv.Itoa(t.Rows)
		case rows != strconv.Itoa(t.Rows):
			rows = "a fixed number"
		}
	}
	if rows == "" {
		return nil
	}
	return []string{fmt.Sprintf("rows of tables: %s, which keys share by a hash (data.table-rows); on servers (sync) each key has its own", rows)}
}

// params returns the number of parameters, without rows of keys on servers, whose number grows.
func (r *run) params() int {
	n := r.replica.Params.Count()
	if slices.ContainsFunc(r.replica.Params.List(), func(p *nn.Param) bool { return p.Name == standInName }) {
		n--
	}
	for _, t := range r.replica.Params.Tables() {
		if t.Slots != nil && r.cfg.Servers.Consistency != "" {
			n -= t.Rows * t.Dim
		}
	}
	return n
}

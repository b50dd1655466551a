package train

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/model"
)

// unit is what rates count, and how many of them a sample is.
func (e *runEnv) unit() (name string, perSample int) {
	if e.spec.Task == model.Language {
		return "tokens", max(1, e.spec.Labels)
	}
	return "samples", 1
}

func (r *run) info() Info {
	o := r.replica.Opt
	var columns []table.Found
	if r.data.set.Encoder != nil {
		columns = r.data.set.Encoder.Found()
	}
	unit, per := r.unit()
	return Info{
		Model: r.cfg.name(), Params: r.params(), NP: r.job.Size(), Servers: r.job.Servers() + r.job.ParameterServers(), Threads: r.cfg.Threads, Batch: r.cfg.Batch,
		Unit: unit, PerSample: per, Metrics: r.replica.model.Metrics, TrainSamples: r.data.samples, EvalSamples: r.data.shares.eval, LeftOut: r.data.shares.left, Omitted: r.data.omitted(),
		Epochs: r.cfg.Epochs, StepsPerEpoch: r.data.steps, Optimizer: r.cfg.Optimizer, Schedule: r.cfg.schedule().String(), UsualRate: r.usualRate(), GlobalBatch: r.globalBatch(), Seed: r.cfg.Seed,
		Strategy: string(o.Strategy()), Codec: o.Codec(), Exchange: o.Explain(), Plan: o.PlanName(), PlanSHA256: o.Plan().SHA256(), Buckets: len(o.Plan()),
		Kernels: r.replica.Kernels(), Transport: r.job.Transport(), Placement: r.job.Placement(), DataSet: r.cfg.source(), DataNotes: slices.Concat(r.data.set.Notes, r.data.shares.notes), Columns: columns,
		Parameters: slices.Concat(r.reports.initial, r.replica.chosen(), r.keyed()), Initial: r.reports.initial, Resumed: r.resumption.resumed, Steps: o.Steps(), Changed: r.resumption.found.Changed,
	}
}

// paramsSHA256 is the hash of what the model has learnt, which all ranks agree on. It is a collective call.
func (r *reports) paramsSHA256() (string, error) {
	sum, copies, err := r.replica.hash()
	if err != nil {
		return "", fmt.Errorf("comparing parameters: %w", err)
	}
	if err := r.sameOnAll(copies[:], "parameters", "the replicas have drifted apart; this is a fault of the program or of a machine's memory"); err != nil {
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
		Strategy: string(o.Strategy()), Codec: o.Codec(), Plan: o.PlanName(), PlanSHA256: o.Plan().SHA256(), Buckets: len(o.Plan()), Choices: r.replica.Tuner.State().Made, Optimizer: r.cfg.Optimizer, Seed: r.cfg.Seed,
		TrainLoss: last.TrainLoss, EvalLoss: last.EvalLoss, Eval: last.Eval,
		SamplesPerS: float64(r.reports.past.Samples) / r.reports.past.TrainS, LeftOut: left,
		Ended: r.ended, Best: r.reports.past.Best, Lost: r.lost(), DiskFullCheckpoints: r.saver.room.failed, Skipped: o.Setup().Skipped, Diverged: r.reports.divergence(),
		DistinctKeys: keys, ParamsSHA256: sum, WallS: r.wall(),
	}
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

package progress

import (
	"github.com/ringo-ml/ringo/internal/evalmetrics"
	"github.com/ringo-ml/ringo/internal/runlog"
	"github.com/ringo-ml/ringo/internal/steptrace"
	"github.com/ringo-ml/ringo/train"
)

// Begin sets the first record, written together with the second: a run that cannot start leaves the
// file unchanged. A resumed run writes the record again, because version or machine may differ.
func (r *Reporter) Begin(job runlog.Job) { r.job = &job }

// Also sets a function that is called with each record.
func (r *Reporter) Also(tell func(v any)) { r.also = tell }

// SetStepSource sets the source of rank 0's last complete step, reported after each epoch.
func (r *Reporter) SetStepSource(step func() (steptrace.Step, bool)) { r.seen = step }

func (r *Reporter) tellStep() {
	if r.seen == nil {
		return
	}
	if s, ok := r.seen(); ok {
		r.one(s)
	}
}

// maxShownTables limits the words in tables that a dashboard receives after an epoch.
const maxShownTables = 1 << 14

// tellEvaluation passes an epoch's tables only to the function of Also, not to the JSON file: the
// file has the tables of the last epoch, and more of them would make it large.
func (r *Reporter) tellEvaluation(e train.Epoch) {
	if r.also == nil {
		return
	}
	tables := e.Report
	if c := tables.Classes; c != nil && len(c.Confusion) > maxShownTables {
		tables = evalmetrics.Report{} // replaces the tables of an earlier epoch
	}
	r.also(struct {
		Event string `json:"event"`
		evalmetrics.Report
	}{"evaluation", tables})
}

// newInfo returns the record of the data known before the first step.
func newInfo(i train.Info) runlog.Info {
	out := runlog.Info{
		Event: "run", Seed: i.Seed, Fold: i.Fold, Model: i.Model, Params: i.Params, NP: i.NP, Threads: i.Threads, Servers: i.Servers, Batch: i.Batch, GlobalBatch: i.GlobalBatch,
		Unit: i.Unit, DataSet: i.DataSet, TrainSamples: i.TrainSamples, EvalSamples: i.EvalSamples, Omitted: i.Omitted, Epochs: i.Epochs, StepsPerEpoch: i.StepsPerEpoch,
		Optimizer: i.Optimizer, Schedule: i.Schedule, Strategy: i.Strategy, Codec: i.Codec, Plan: i.Plan, PlanSHA256: i.PlanSHA256, Buckets: i.Buckets,
		Transport: i.Transport, Placement: i.Placement, Kernels: i.Kernels, Metrics: []runlog.Metric{}, Initial: i.Initial, Resumed: i.Resumed, Done: i.Steps, Notes: i.DataNotes,
	}
	for _, m := range i.Metrics {
		out.Metrics = append(out.Metrics, runlog.Metric{Name: m.Name, Title: m.Label(), Percent: m.Percent, Lower: m.Lower, Detail: m.Detail})
	}
	for _, l := range i.LeftOut {
		out.LeftOut = append(out.LeftOut, runlog.LeftOut(l))
	}
	for _, c := range i.Columns {
		out.Columns = append(out.Columns, c)
	}
	return out
}

// write writes a record as a JSON line, to TensorBoard and to Also, and keeps the first error.
func (r *Reporter) write(v any) {
	if job := r.job; job != nil {
		r.job = nil
		r.one(*job)
	}
	r.one(v)
	r.board.add(v)
}

func (r *Reporter) one(v any) {
	if r.fault == nil {
		r.fault = r.out.Object(v)
	}
	if r.also != nil {
		r.also(v)
	}
}

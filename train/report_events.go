package train

import (
	"encoding/json"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/evalmetrics"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/optim/schedule"
)

// OptionalFloat is a number that only some tasks have. As JSON it is the number; omitzero omits an
// unknown number.
type OptionalFloat struct {
	Value float64
	Known bool
}

// IsZero reports that the number is unknown.
func (f OptionalFloat) IsZero() bool { return !f.Known }

// MarshalJSON writes the number, or null.
func (f OptionalFloat) MarshalJSON() ([]byte, error) {
	if !f.Known {
		return []byte("null"), nil
	}
	return json.Marshal(f.Value)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (f *OptionalFloat) UnmarshalJSON(text []byte) error {
	f.Known = string(text) != "null"
	if !f.Known {
		f.Value = 0
		return nil
	}
	return json.Unmarshal(text, &f.Value)
}

// Epoch reports an epoch, over all ranks. As JSON it is one line of the file named by --json.
type Epoch struct {
	Event string  `json:"event"`
	Epoch int     `json:"epoch"` // counted from 1
	Seed  uint64  `json:"seed"`
	LR    float64 `json:"lr"` // rate of the last step
	// Done is the number of steps of the run. WallS is the time in seconds from the run's begin, or
	// from its resumption, to the end of the evaluation.
	Done  int64   `json:"done"`
	WallS float64 `json:"wall_s"`
	// TrainLoss, the mean over the steps of the epoch, and EvalLoss are per sample or, in a
	// language model, per token.
	TrainLoss float64 `json:"train_loss"`
	EvalLoss  float64 `json:"eval_loss"`
	// Train, from the steps of the epoch, and Eval are the model's metrics: in JSON, fields such as
	// "train_accuracy" and "eval_auc".
	Train model.Metrics `json:"-"`
	Eval  model.Metrics `json:"-"`
	// Report has the tables of the evaluation, not in JSON.
	Report evalmetrics.Report `json:"-"`
	// Progressive is for click models, at the epoch's last step.
	*Progressive
	// SamplesPerS counts all ranks, over the training time. TokensPerS is for language models.
	SamplesPerS float64       `json:"samples_per_s"`
	TokensPerS  OptionalFloat `json:"tokens_per_s,omitzero"`
	// StepMS is the mean time of a step and StepMedianMS the median, over the steps since the run
	// began or resumed. Both are means over ranks.
	StepMS       float64 `json:"step_ms"`
	StepMedianMS float64 `json:"step_median_ms"`
	// BreakDown has the parts of StepMS. DataWaitMS is the part of ComputeMS that waits for
	// batches. StepBytesSent is the number of payload bytes that a rank sends for gradients in a
	// step. All are means.
	BreakDown
	DataWaitMS float64 `json:"data_wait_ms"`
	// PullWaitMS is the part of ComputeMS that waits for parameter servers. If a rank has several
	// threads, parts and median are those of a thread's steps, and StepMS is the time between the
	// ends of two steps of any threads.
	PullWaitMS float64 `json:"pull_wait_ms,omitempty"`
	// TuneS is the number of seconds in the epoch that strategy `auto` or a measured plan took to
	// measure and choose. No time of a step and no rate includes it.
	TuneS         float64 `json:"tune_s,omitempty"`
	StepBytesSent float64 `json:"step_bytes_sent"`
	// Stages are the times of this rank's pipeline to heter-trainers.
	Stages *Stages `json:"stages,omitempty"`
	// Layers are the statistics of the layers in rank 0's last step, with Config.Layers.
	Layers []Layer `json:"layers,omitempty"`
	// Skipped is the number of steps that all ranks skipped, with Exchange.NonFinite "skip".
	// Training metrics exclude them.
	Skipped int `json:"skipped_steps,omitempty"`
	// BytesSent is the payload that all ranks sent in the epoch and its evaluation. WireBytes adds
	// headers, handshakes and control connections.
	BytesSent int64 `json:"bytes_sent"`
	WireBytes int64 `json:"wire_bytes"`
}

// Summary reports the whole run.
type Summary struct {
	Event    string `json:"event"`
	Model    string `json:"model"`
	Params   int    `json:"params"`
	NP       int    `json:"np"`
	Servers  int    `json:"servers,omitempty"` // aggregation servers and parameter servers
	Strategy string `json:"strategy"`
	// Codec is the codec of gradients; "" without one.
	Codec string `json:"codec,omitempty"`
	Plan  string `json:"plan"`
	// PlanSHA256 is the hash of the plan at the end of the run.
	PlanSHA256 string `json:"plan_sha256"`
	Buckets    int    `json:"buckets"`
	// Choices are those that the run has made from measurements: another run with them as
	// Tuning.Choices has the same bits.
	Choices   tune.Choices `json:"choices,omitempty"`
	Optimizer string       `json:"optimizer"`
	Seed      uint64       `json:"seed"`
	Fold      int          `json:"fold,omitempty"` // of RunFolds, from 1
	// LR and Warmup are the rate that Config.ScaleLR has computed, and its warm-up; LR is 0 without
	// ScaleLR.
	LR     float64         `json:"-"`
	Warmup schedule.Warmup `json:"-"`
	// TrainLoss, EvalLoss and Eval are of the last epoch.
	TrainLoss float64 `json:"train_loss"`
	EvalLoss  float64 `json:"eval_loss"`
	// Eval are the model's metrics. As JSON they are fields such as "eval_accuracy".
	Eval model.Metrics `json:"-"`
	// Report has the tables of the last evaluation, if the model has any.
	evalmetrics.Report
	SamplesPerS float64       `json:"samples_per_s"`
	TokensPerS  OptionalFloat `json:"tokens_per_s,omitzero"`
	// LeftOut counts the excluded samples of the data set, by kind, equal for any number of ranks.
	// Bad lines of a stream are those of the last epoch.
	LeftOut []data.LeftOut `json:"left_out,omitempty"`
	// Lost lists the ranks that were lost during the run.
	Lost []int `json:"lost_ranks,omitempty"`
	// Stages are the times of this rank's pipeline to heter-trainers in all epochs.
	Stages *Stages `json:"stages,omitempty"`
	// RowCache is the use of this rank's row cache, if any.
	RowCache *RowCache `json:"row_cache,omitempty"`
	// Skipped is the number of the run's steps that all ranks skipped.
	Skipped int64 `json:"skipped_steps,omitempty"`
	// DiskFullCheckpoints is the number of failed attempts to write a checkpoint on a full disk of
	// rank 0. The last checkpoint was written.
	DiskFullCheckpoints int `json:"checkpoints_disk_full,omitempty"`
	// Ended is the reason for an end before the last epoch, after Epochs epochs; "" without one.
	Ended  string `json:"ended,omitempty"`
	Epochs int    `json:"epochs,omitempty"`
	// Best is the best epoch, with Config.Best.
	Best *BestEpoch `json:"best,omitempty"`
	// BestCheckpoint and LastCheckpoint are the files of the best epoch and of the run's end; "" if
	// the run is not saved, or the disk was full.
	BestCheckpoint string `json:"best_checkpoint,omitempty"`
	LastCheckpoint string `json:"last_checkpoint,omitempty"`
	// Diverged describes losses of the last epoch far above the first step's; "" without
	// divergence.
	Diverged string `json:"diverged,omitempty"`
	// DistinctKeys estimates the number of different keys that all ranks have trained on since the
	// run began or resumed, with a standard error of 0.8 %. Servers with a row for each key print
	// the exact number when they end.
	DistinctKeys int64 `json:"distinct_keys,omitempty"`
	// ParamsSHA256 is the hash of parameters, tables and running statistics, equal on all ranks. It
	// excludes rows of keys on servers.
	ParamsSHA256 string  `json:"params_sha256"`
	WallS        float64 `json:"wall_s"`
}

// Progress reports the position in an epoch.
type Progress struct {
	// Phase is "train" or "evaluate".
	Phase string
	// Epoch is the current one of Epochs, from 1.
	Epoch, Epochs int
	// Done is the number of finished steps, or batches of an evaluation, of Total in this phase on
	// this rank.
	Done, Total int
	// Samples is the number of samples of all ranks since the last call.
	Samples int
	// Loss is the loss of this rank's last batch; 0 in an evaluation.
	Loss float64
	// Progressive has the last merged scores of a click model; nil without any. Do not change it.
	Progressive *Progressive
}

// Observer receives the events of a run. Calls do not overlap, come from the training goroutine or
// the rank's other threads, and should return quickly.
type Observer interface {
	// Start is called once, before the first step.
	Start(Info)
	// Progress is called after each batch.
	Progress(Progress)
	// Step is called after every Config.LogEvery steps of an epoch.
	Step(Step)
	// Epoch is called after each epoch.
	Epoch(Epoch)
	// Remark is called for facts that a user should know, possibly before Start.
	Remark(Remark)
}

type unobserved struct{}

func (unobserved) Start(Info)        {}
func (unobserved) Progress(Progress) {}
func (unobserved) Step(Step)         {}
func (unobserved) Epoch(Epoch)       {}
func (unobserved) Remark(Remark)     {}

// Remark is a fact for the user that does not end the run. As JSON it is a line of the file named
// by --json.
type Remark struct {
	// Event is "remark".
	Event string `json:"event"`
	// Epoch is from 1; 0 before the first.
	Epoch int `json:"epoch,omitzero"`
	// Step is the number of steps of the run.
	Step int64  `json:"step,omitzero"`
	Text string `json:"text"`
}

// Info describes the run before the first step.
type Info struct {
	Model  string
	Params int
	// NP is the number of ranks, Threads of computing threads in each, and Servers of aggregation
	// or parameter servers. Workers is Config.Workers.
	NP, Threads, Servers, Workers int
	// Batch is the number of samples in one backward pass of a rank or a virtual worker.
	// GlobalBatch is the number of samples of an update.
	Batch, GlobalBatch int
	// Unit is the unit of rates, "samples" or "tokens". PerSample is the units per sample.
	Unit      string
	PerSample int
	// Metrics are the model's metrics.
	Metrics []model.Metric
	// TrainSamples and EvalSamples count all ranks' samples, LeftOut excluded ones by kind.
	TrainSamples, EvalSamples int
	LeftOut                   []data.LeftOut
	// Omitted is the number of training samples that are in no step of an epoch.
	Omitted               int
	Epochs, StepsPerEpoch int
	Optimizer             string
	// Schedule describes the learning rate. UsualRate is the model's default
	// rate, with the batch for which it is meant.
	Schedule  string
	UsualRate UsualRate
	Seed      uint64
	Fold      int // of RunFolds, from 1
	// Strategy, Plan, Codec ("" without compression) and Exchange ("" if all values are sent)
	// describe the exchange of gradients.
	Strategy, Plan, Codec, Exchange string
	// PlanSHA256 is the hash of the plan, and Buckets the number of its buckets.
	PlanSHA256 string
	Buckets    int
	Kernels    string
	Transport  string
	// Placement describes the cores of ranks; "" without placement.
	Placement string
	// DataSet is the path of the data. DataNotes are remarks about reading them.
	DataSet   string
	DataNotes []string
	// Columns are the columns of a table as read. ColumnNotes are those of DataNotes that say the
	// same as Columns.
	Columns     []table.Found
	ColumnNotes []string
	// Best has the metric of Config.Best and, of a resumed run, its best epoch.
	Best BestEpoch
	// Parameters describes initial values, frozen parameters and rates. Its first lines, Initial,
	// are about initial values only.
	Parameters, Initial []string
	// Resumed is the checkpoint that the run resumed from, or "". Steps is its number of steps.
	Resumed string
	Steps   int64
	// Changed lists settings other than the checkpoint's, as "training.lr 0.1 instead of 0.05".
	Changed []string
}

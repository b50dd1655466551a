package train

import (
	"encoding/json"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/optim/schedule"
)

// OptionalFloat is a number that only some tasks have. As JSON it is the number; with
// omitzero it is left out where it is not known.
type OptionalFloat struct {
	Value float64
	Known bool
}

// IsZero reports that there is no number.
func (f OptionalFloat) IsZero() bool { return !f.Known }

// MarshalJSON writes the number, or null.
func (f OptionalFloat) MarshalJSON() ([]byte, error) {
	if !f.Known {
		return []byte("null"), nil
	}
	return json.Marshal(f.Value)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *OptionalFloat) UnmarshalJSON(text []byte) error {
	f.Known = string(text) != "null"
	if !f.Known {
		f.Value = 0
		return nil
	}
	return json.Unmarshal(text, &f.Value)
}

// Epoch is what one epoch was like, over all ranks. As JSON it is one line of
// the file named by --json.
type Epoch struct {
	Event string  `json:"event"` // "epoch"
	Epoch int     `json:"epoch"` // from 1
	Seed  uint64  `json:"seed"`
	LR    float64 `json:"lr"` // of the last step
	// Done is how many steps of the run are done, and WallS how many seconds ago it began or was resumed, when the epoch was evaluated.
	Done  int64   `json:"done"`
	WallS float64 `json:"wall_s"`
	// Losses are means per sample or, of a language model, per token. Training figures are gathered while the epoch
	// trains.
	TrainLoss float64 `json:"train_loss"`
	EvalLoss  float64 `json:"eval_loss"`
	// Train and Eval are the model's metrics. As JSON they are fields such as "train_accuracy" and "eval_auc".
	Train model.Metrics `json:"-"`
	Eval  model.Metrics `json:"-"`
	// Progressive is of click models alone, when the epoch's last step was done.
	*Progressive
	// SamplesPerS counts all ranks, over the time spent training; TokensPerS is
	// for language models.
	SamplesPerS float64       `json:"samples_per_s"`
	TokensPerS  OptionalFloat `json:"tokens_per_s,omitzero"`
	// StepMS is the mean time of a step, StepMedianMS the median, of the steps
	// since the run began or was resumed; both are means over ranks.
	StepMS       float64 `json:"step_ms"`
	StepMedianMS float64 `json:"step_median_ms"`
	// BreakDown is of StepMS; DataWaitMS is the part of ComputeMS that waits for
	// batches. StepBytesSent is the payload of its gradients that a rank sends in a
	// step. All are means.
	BreakDown
	DataWaitMS float64 `json:"data_wait_ms"`
	// PullWaitMS is the part of ComputeMS that waits for what servers that keep parameters
	// send. Where a rank trains on several threads, parts and median are those of a
	// thread's step, and StepMS is the time from one to the next of any of them.
	PullWaitMS float64 `json:"pull_wait_ms,omitempty"`
	// TuneS is how long `auto` or a measured plan measured and chose in the epoch, in
	// seconds: part of no step and of no rate.
	TuneS         float64 `json:"tune_s,omitempty"`
	StepBytesSent float64 `json:"step_bytes_sent"`
	// Stages is where this rank's time went, where heter-trainers have the dense part.
	Stages *Stages `json:"stages,omitempty"`
	// Layers is what rank 0's last step did to each layer, with Config.Layers.
	Layers []Layer `json:"layers,omitempty"`
	// Skipped is the number of steps that no rank applied, with Exchange.NonFinite "skip". Training
	// figures leave them out.
	Skipped int `json:"skipped_steps,omitempty"`
	// BytesSent is the payload all ranks sent in the epoch, evaluation
	// included; WireBytes adds headers, handshakes and control connections.
	BytesSent int64 `json:"bytes_sent"`
	WireBytes int64 `json:"wire_bytes"`
}

// Summary is the whole run.
type Summary struct {
	Event    string `json:"event"` // "summary"
	Model    string `json:"model"`
	Params   int    `json:"params"`
	NP       int    `json:"np"`
	Servers  int    `json:"servers,omitempty"` // through which gradients went
	Strategy string `json:"strategy"`
	// Codec is what gradients go through, "" where they travel as they are.
	Codec string `json:"codec,omitempty"`
	Plan  string `json:"plan"`
	// PlanSHA256 is the hash of the plan at the end of the run.
	PlanSHA256 string `json:"plan_sha256"`
	Buckets    int    `json:"buckets"`
	// Choices is what was done after what was measured: given as Tuning.Choices, another run has the same bits.
	Choices   tune.Choices `json:"choices,omitempty"`
	Optimizer string       `json:"optimizer"`
	Seed      uint64       `json:"seed"`
	// LR and Warmup are the scaled rate and its warm-up, with Config.ScaleLR; LR is 0 where the
	// rate was not scaled.
	LR     float64         `json:"-"`
	Warmup schedule.Warmup `json:"-"`
	// The figures of the last epoch.
	TrainLoss float64 `json:"train_loss"`
	EvalLoss  float64 `json:"eval_loss"`
	// Eval are the model's metrics. As JSON they are fields such as "eval_accuracy".
	Eval        model.Metrics `json:"-"`
	SamplesPerS float64       `json:"samples_per_s"`
	TokensPerS  OptionalFloat `json:"tokens_per_s,omitzero"`
	// LeftOut is what the data set leaves out, by kind, the same for any number of ranks. Bad lines
	// of a stream are those of the last epoch.
	LeftOut []data.LeftOut `json:"left_out,omitempty"`
	// Lost are the ranks that were lost on the way, without which the others went on.
	Lost []int `json:"lost_ranks,omitempty"`
	// Stages is where this rank's time went, as of an Epoch, in all epochs.
	Stages *Stages `json:"stages,omitempty"`
	// RowCache is what came of this rank's cache of rows, where there is one.
	RowCache *RowCache `json:"row_cache,omitempty"`
	// Skipped is the number of the run's steps that no rank applied.
	Skipped int64 `json:"skipped_steps,omitempty"`
	// DiskFullCheckpoints is how often a checkpoint could not be written because the disk was full,
	// on rank 0. The last one was.
	DiskFullCheckpoints int `json:"checkpoints_without_room,omitempty"`
	// Ended is why the run ended before its last epoch, when Epochs had begun; "" where it did not.
	Ended  string `json:"ended,omitempty"`
	Epochs int    `json:"epochs,omitempty"`
	// Best is the best epoch, with Config.Best.
	Best *BestEpoch `json:"best,omitempty"`
	// Diverged says that the last epoch's losses are far over that of the first step; "" where all
	// is well.
	Diverged string `json:"blown_up,omitempty"`
	// DistinctKeys is about how many different keys all ranks have trained on since the run began or went on: an estimate with a
	// standard error of 0.8 %. Servers that keep the rows of all keys tell at their end how many these are, exactly.
	DistinctKeys int64 `json:"distinct_keys,omitempty"`
	// ParamsSHA256 is the hash of parameters, tables and running statistics,
	// which all ranks agreed on. Rows of keys that lie on servers are not part of it.
	ParamsSHA256 string  `json:"params_sha256"`
	WallS        float64 `json:"wall_s"`
}

// Progress is how far the current epoch is.
type Progress struct {
	// Phase is "train" or "evaluate".
	Phase string
	// Epoch is the current one of Epochs, from 1.
	Epoch, Epochs int
	// Done is how many steps, or batches of an evaluation, of Total this rank has done in this phase.
	Done, Total int
	// Samples is how many of all ranks there were since the last call.
	Samples int
	// Loss is that of this rank's last batch; 0 while evaluating.
	Loss float64
	// Progressive is what a click model's last samples came to when that was last found out; nil: it was not. It is not to be changed.
	Progressive *Progressive
}

// Observer is told what happens. Its methods are called one after the other, in order, on the training
// goroutine or those of the rank's other workers, and should return soon.
type Observer interface {
	// Start is called once, when all ranks are about to take the first step.
	Start(Info)
	// Progress is called after each batch.
	Progress(Progress)
	// Step is called after every Config.LogEvery steps of an epoch.
	Step(Step)
	// Epoch is called after each epoch.
	Epoch(Epoch)
	// Remark is called when there is something that a person should know, perhaps before Start.
	Remark(Remark)
}

// unobserved is told in vain.
type unobserved struct{}

func (unobserved) Start(Info)        {}
func (unobserved) Progress(Progress) {}
func (unobserved) Step(Step)         {}
func (unobserved) Epoch(Epoch)       {}
func (unobserved) Remark(Remark)     {}

// Remark is something about the run that a person should know and that does not end it. As JSON
// it is a line of the file named by --json.
type Remark struct {
	// Event is "remark".
	Event string `json:"event"`
	// Epoch is from 1; 0: before the first.
	Epoch int `json:"epoch,omitzero"`
	// Step is how many steps of the run were done.
	Step int64  `json:"step,omitzero"`
	Text string `json:"text"`
}

// Info is what is known before the first step.
type Info struct {
	Model  string
	Params int
	// NP is the number of ranks, Threads how many threads compute in each, and Servers how many servers there are, which sum
	// gradients or keep the parameters.
	NP, Threads, Servers int
	// Batch is how many samples a rank has in a backward, and GlobalBatch of how many one update of the parameters is the
	// mean.
	Batch, GlobalBatch int
	// Unit is what rates count, "samples" or "tokens", and PerSample how many of these a sample has.
	Unit      string
	PerSample int
	// Metrics are those of the model.
	Metrics []model.Metric
	// TrainSamples and EvalSamples are those of all ranks, and LeftOut is what the data set leaves
	// out, by kind.
	TrainSamples, EvalSamples int
	LeftOut                   []data.LeftOut
	// Omitted is the number of training samples that each epoch has no step for.
	Omitted               int
	Epochs, StepsPerEpoch int
	Optimizer             string
	// Schedule is that of the learning rate, and UsualRate says for which batch that rate is usual.
	Schedule  string
	UsualRate UsualRate
	Seed      uint64
	// Strategy and Plan say how gradients travel, Codec through what ("" where they travel as they are), and Exchange how
	// entries are exchanged ("" where none are selected).
	Strategy, Plan, Codec, Exchange string
	// PlanSHA256 is the hash of the plan, and Buckets how many it has.
	PlanSHA256 string
	Buckets    int
	Kernels    string
	Transport  string
	// Placement says in words where ranks run, and is empty where that was nobody's concern.
	Placement string
	// DataSet says where the data are, and DataNotes what a person should know of how they were read.
	DataSet   string
	DataNotes []string
	// Columns are those of a table, as they were read.
	Columns []table.Found
	// Parameters says which values parameters began with, and which of them are frozen or have a rate of their own.
	// The first lines of them, Initial, are about initial values alone.
	Parameters, Initial []string
	// Resumed is the checkpoint that the run goes on from, empty for none, and
	// Steps how many steps were done there.
	Resumed string
	Steps   int64
	// Changed is what the run has otherwise than the checkpoint, such as "training.lr 0.1 instead of 0.05".
	Changed []string
}

// Package train is the loop: epochs over a data set, evaluation, and what is
// told about them.
package train

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/simd"
)

// run is one rank's side of a run.
type run struct {
	job     *ringo.Job
	cfg     Config
	obs     Observer
	replica *Replica

	train, eval     *data.Images
	order, shard    data.Sampler // of training and of evaluation
	steps           int          // per epoch, on every rank
	started         time.Time
	trainS          float64 // time spent in training epochs, mean over ranks
	samples         int64   // trained on, all ranks
	payload0, wire0 int64
}

// Run trains the model on every rank of the job and returns the summary, equal
// on all of them. It is a collective call: every rank makes it with the same
// configuration, which is checked. obs is told what happens on this rank.
//
// The ranks' parameters are compared at the end; if they differ that is an
// error, because replicas that drift apart train nothing.
func Run(job *ringo.Job, cfg Config, obs Observer) (Summary, error) {
	if err := cfg.Validate(); err != nil {
		return Summary{}, err
	}
	r := &run{job: job, cfg: cfg, obs: obs, started: time.Now()}
	if err := r.agreeConfig(); err != nil {
		return Summary{}, err
	}
	if err := r.load(); err != nil {
		return Summary{}, err
	}
	if err := r.agreeData(); err != nil {
		return Summary{}, err
	}
	job.SetStatus("building the model")
	var err error
	if r.replica, err = NewReplica(job.Group(), cfg, cfg.Batch); err != nil {
		return Summary{}, err
	}
	defer r.replica.Close()
	r.obs.Start(r.info())
	var last Epoch
	for epoch := 1; epoch <= cfg.Epochs; epoch++ {
		if last, err = r.epoch(epoch); err != nil {
			return Summary{}, fmt.Errorf("epoch %d: %w", epoch, err)
		}
		r.obs.Epoch(last)
	}
	return r.summary(last)
}

// agreeConfig reports ranks that were started with other settings: their sums
// would be wrong, or their operations would not match.
func (r *run) agreeConfig() error {
	text, err := json.Marshal(struct {
		Config
		Algorithm string
	}{r.cfg.agreed(), r.job.Group().Algorithm()})
	if err != nil {
		return fmt.Errorf("the configuration cannot be written as JSON: %w", err)
	}
	sum := sha256.Sum256(text)
	return r.sameOnAll(sum[:], "settings", "start all ranks with the same flags")
}

// agreeData reports hosts that hold other data: their epochs would differ in
// length, or be about something else. Labels and sizes are evidence enough.
func (r *run) agreeData() error {
	h := sha256.New()
	for _, im := range []*data.Images{r.train, r.eval} {
		fmt.Fprintf(h, "%d %d %d %d\n", im.N, im.Channels, im.Rows, im.Cols)
		h.Write(im.Labels)
	}
	return r.sameOnAll(h.Sum(nil), "data set", "give all hosts the same files")
}

// sameOnAll compares a hash over the ranks.
func (r *run) sameOnAll(own []byte, what, hint string) error {
	all := make([]byte, len(own)*r.job.Size())
	if err := collective.AllGather(r.job.Group(), all, own); err != nil {
		return fmt.Errorf("comparing the ranks' %s: %w", what, err)
	}
	for rank := range r.job.Size() {
		theirs := all[rank*len(own) : (rank+1)*len(own)]
		if string(theirs) != string(all[:len(own)]) {
			return fmt.Errorf("the %s of rank %d (sha256 %x…) differ from those of rank 0 (%x…): %s", what, rank, theirs[:4], all[:4], hint)
		}
	}
	return nil
}

// load opens the data set and finds this rank's shards.
func (r *run) load() (err error) {
	r.job.SetStatus("loading the data")
	if r.cfg.Data == Synthetic {
		r.train, r.eval = data.SyntheticMNIST(r.cfg.Seed, limited(syntheticTrain, r.cfg.TrainLimit), limited(syntheticEval, r.cfg.EvalLimit))
	} else if r.train, r.eval, err = data.OpenMNIST(r.cfg.Data); err != nil {
		return err
	}
	r.train, r.eval = head(r.train, r.cfg.TrainLimit), head(r.eval, r.cfg.EvalLimit)
	sampler := data.SamplerConfig{N: r.train.N, Batch: r.cfg.Batch, Rank: r.job.Rank(), Size: r.job.Size(), Seed: r.cfg.Seed}
	if r.order, err = data.NewSampler(sampler); err != nil {
		return fmt.Errorf("training set: %w", err)
	}
	sampler.N, sampler.Evaluate = r.eval.N, true
	if r.shard, err = data.NewSampler(sampler); err != nil {
		return fmt.Errorf("evaluation set: %w", err)
	}
	if r.steps = r.order.Steps() / r.accumulation(); r.steps == 0 {
		return fmt.Errorf("%d training samples on %d ranks are %d per rank, less than the %d of one step: use fewer ranks or a smaller batch",
			r.train.N, r.job.Size(), r.train.N/r.job.Size(), r.cfg.Batch*r.accumulation())
	}
	return nil
}

// The size of the synthetic data set: MNIST's.
const (
	syntheticTrain = 60000
	syntheticEval  = 10000
)

// limited is n, or limit if that is smaller and not 0.
func limited(n, limit int) int {
	if limit == 0 {
		return n
	}
	return min(n, limit)
}

// head is the first n samples of im; all of them when n is 0 or too large.
func head(im *data.Images, n int) *data.Images {
	if n = limited(im.N, n); n == im.N {
		return im
	}
	out := *im
	out.N, out.Pixels, out.Labels = n, im.Pixels[:n*im.Size()], im.Labels[:n]
	return &out
}

func (r *run) accumulation() int { return max(1, r.cfg.Exchange.Accumulation) }

func (r *run) info() Info {
	o := r.replica.Opt
	return Info{
		Model: r.cfg.Model, Params: r.replica.Params.Count(), NP: r.job.Size(), Threads: r.cfg.Threads, Batch: r.cfg.Batch,
		TrainSamples: r.train.N, EvalSamples: r.eval.N, Epochs: r.cfg.Epochs, StepsPerEpoch: r.steps,
		Strategy: string(o.Strategy()), Plan: o.PlanName(), Buckets: len(o.Plan()),
		Kernels: simd.Host().Name(), Transport: r.job.Transport(), DataSet: r.cfg.Data,
	}
}

// tally is what the ranks add up after an epoch.
type tally struct {
	loss, correct, samples         float64 // training
	evalLoss, evalCorrect, evalled float64
	trainS, exposedS               float64
	payload, wire                  float64
}

func (t *tally) values() []*float64 {
	return []*float64{&t.loss, &t.correct, &t.samples, &t.evalLoss, &t.evalCorrect, &t.evalled, &t.trainS, &t.exposedS, &t.payload, &t.wire}
}

// sum adds the tallies of all ranks.
func (r *run) sum(t *tally) error {
	fields := t.values()
	x := make([]float64, len(fields))
	for i, f := range fields {
		x[i] = *f
	}
	if err := collective.AllReduce(r.job.Group(), x, collective.Sum); err != nil {
		return fmt.Errorf("adding up the epoch's figures: %w", err)
	}
	for i, f := range fields {
		*f = x[i]
	}
	return nil
}

// epoch trains over the training set once and evaluates.
func (r *run) epoch(epoch int) (Epoch, error) {
	var t tally
	r.job.SetStatus(fmt.Sprintf("training epoch %d", epoch))
	start := time.Now()
	r.order.Start(epoch)
	for step := range r.steps {
		if err := r.step(epoch, step, &t); err != nil {
			return Epoch{}, err
		}
	}
	t.trainS = time.Since(start).Seconds()
	r.job.SetStatus(fmt.Sprintf("evaluating epoch %d", epoch))
	if err := r.replica.Opt.Sync(); err != nil {
		return Epoch{}, err
	}
	r.evaluate(epoch, &t)
	traffic := r.job.Traffic()
	t.payload, t.wire = float64(traffic.PayloadSent-r.payload0), float64(traffic.WireSent-r.wire0)
	r.payload0, r.wire0 = traffic.PayloadSent, traffic.WireSent
	if err := r.sum(&t); err != nil {
		return Epoch{}, err
	}
	return r.report(epoch, &t), nil
}

// step is one step of one rank.
func (r *run) step(epoch, step int, t *tally) error {
	var res Result
	k := r.accumulation()
	for i := range k {
		index, _ := r.order.Next() // r.steps never asks for more than there are
		x, labels := r.replica.Batch(len(index))
		r.train.Fill(x.Data, labels, index)
		res = r.replica.Backward(x, labels, i == k-1)
		t.loss += res.Loss * float64(len(labels))
		t.correct += float64(res.Correct)
		t.samples += float64(len(labels))
		if math.IsNaN(res.Loss) || math.IsInf(res.Loss, 0) {
			return fmt.Errorf("step %d: the loss is %v: training has diverged; lower the learning rate (now %v)", step, res.Loss, r.cfg.LR)
		}
	}
	if err := r.replica.Step(); err != nil {
		return err
	}
	t.exposedS += r.replica.Opt.Exposed().Seconds()
	r.obs.Progress(Progress{Phase: "train", Epoch: epoch, Epochs: r.cfg.Epochs, Done: step + 1, Total: r.steps,
		Samples: k * r.cfg.Batch * r.job.Size(), Loss: res.Loss})
	return nil
}

// evaluate runs the model over this rank's part of the evaluation set, every
// sample exactly once over all ranks.
func (r *run) evaluate(epoch int, t *tally) {
	r.shard.Start(epoch)
	batches := r.shard.Steps()
	for b := 1; ; b++ {
		index, ok := r.shard.Next()
		if !ok {
			return
		}
		if len(index) == 0 {
			continue // another rank's part is one sample longer
		}
		x, labels := r.replica.Batch(len(index))
		r.eval.Fill(x.Data, labels, index)
		res := r.replica.Evaluate(x, labels)
		t.evalLoss += res.Loss * float64(len(index))
		t.evalCorrect += float64(res.Correct)
		t.evalled += float64(len(index))
		r.obs.Progress(Progress{Phase: "evaluate", Epoch: epoch, Epochs: r.cfg.Epochs, Done: b, Total: batches, Samples: len(index) * r.job.Size()})
	}
}

// report turns the sums over all ranks into the epoch's figures.
func (r *run) report(epoch int, t *tally) Epoch {
	np := float64(r.job.Size())
	steps := float64(r.steps) * np
	r.trainS += t.trainS / np
	r.samples += int64(t.samples)
	return Epoch{
		Event: "epoch", Epoch: epoch,
		TrainLoss: t.loss / t.samples, TrainAccuracy: t.correct / t.samples,
		EvalLoss: t.evalLoss / t.evalled, EvalAccuracy: t.evalCorrect / t.evalled,
		SamplesPerS: t.samples / (t.trainS / np),
		StepMS:      1000 * t.trainS / steps, ExposedCommMS: 1000 * t.exposedS / steps,
		BytesSent: int64(t.payload), WireBytes: int64(t.wire),
	}
}

func (r *run) summary(last Epoch) (Summary, error) {
	sum := r.replica.Hash()
	if err := r.sameOnAll(sum[:], "parameters", "the replicas have drifted apart; this is a fault of the program or of a machine's memory"); err != nil {
		return Summary{}, err
	}
	o := r.replica.Opt
	return Summary{
		Event: "summary", Model: r.cfg.Model, Params: r.replica.Params.Count(), NP: r.job.Size(),
		Strategy: string(o.Strategy()), Plan: o.PlanName(), Buckets: len(o.Plan()),
		EvalAccuracy: last.EvalAccuracy, SamplesPerS: float64(r.samples) / r.trainS,
		ParamsSHA256: hex.EncodeToString(sum[:]), WallS: time.Since(r.started).Seconds(),
	}, nil
}

package train

import (
	"context"
	"math"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/evalmetrics"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
)

// Loop is a model on every rank of a job for a custom loop: TrainOneBatch any number of times, with
// strategies that may change from batch to batch, Save and Evaluate in between. All ranks make the
// same calls, so that they are always at the same step.
//
// A Loop does the same as Run, except for epochs and data: cfg selects whether parameters are on
// ranks or on servers, checkpoints have Run's form, and after a stop request all ranks save after
// the same step (TrainOneBatch returns a *ringo.StoppedError).
type Loop struct {
	r  *run
	at position
	lr float64
	// failed reports that a batch returned an error.
	failed  bool
	remarks *notedRemarks
}

// notedRemarks is an observer that keeps the remarks.
type notedRemarks struct {
	Observer
	all []Remark
}

func (n *notedRemarks) Remark(m Remark) {
	n.all = append(n.all, m)
	n.Observer.Remark(m)
}

// endless is the number of steps of a Loop's only epoch.
const endless = math.MaxInt32

// NewLoop makes the model on this rank. m has the shape of the samples; epochs and data in cfg are
// ignored. In a heter-trainer NewLoop serves and returns ringo.ErrHeterTrainerDone, as Run does.
// cfg.Checkpoint.Resume resumes from the folder's last checkpoint, if any: Steps returns its step.
func NewLoop(ctx context.Context, job *ringo.Job, m model.Spec, cfg Config) (l *Loop, err error) {
	if job.HeterTrainer() != nil {
		return nil, runHeterTrainer(ctx, job, m, cfg)
	}
	cfg.Model, cfg.hasSet, cfg.Epochs = m, true, endless
	cfg = cfg.on(job)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := newRun(ctx, job, cfg, new(data.Dataset))
	noted := &notedRemarks{Observer: r.obs}
	r.data.steps, r.ownLoop, r.obs = endless, true, noted
	defer func() {
		if err = r.located(err); err != nil {
			r.close()
		}
	}()
	r.setPosition("preparing", 0, 0)
	if err := r.enter(); err != nil {
		return nil, err
	}
	if err := r.saver.takeFolder(); err != nil {
		return nil, err
	}
	if err := r.data.describe(); err != nil {
		return nil, err
	}
	opts, place := r.data.options(), placement(cfg, r.peers)
	if err := r.add(cfg, opts, place); err != nil {
		return nil, err
	}
	if err := r.resumption.find(); err != nil {
		return nil, err
	}
	if err := r.begin(opts, place); err != nil {
		return nil, err
	}
	l = &Loop{r: r, lr: cfg.LR, remarks: noted}
	if l.at, err = r.resumption.resume(); err != nil {
		return nil, err
	}
	r.loop.stoppable(l.at)
	return l, nil
}

// Steps returns the number of steps of the run, including steps before it was resumed.
func (l *Loop) Steps() int64 { return l.r.resumption.stepsDone(l.at) }

// SetLR sets the learning rate of the following steps, equal on all ranks.
func (l *Loop) SetLR(lr float64) { l.lr = lr }

// Remarks returns the remarks of this rank since the last call, such as parameters without a
// gradient, skipped steps, and an evaluation with a loss that is not finite. Config.Observer
// receives them, too.
func (l *Loop) Remarks() []Remark {
	all := l.remarks.all
	l.remarks.all = nil
	return all
}

// Replica returns this rank's copy of the model and its optimizer.
func (l *Loop) Replica() *Replica { return l.r.replica }

// TrainOneBatch runs the rank's batch forward and backward, exchanges gradients during backward,
// and updates. strategy and spars change the exchange from this step on, as in distopt; "" and 0
// change nothing. The pass is valid until the next call.
//
// With Exchange.NonFinite "skip" all ranks may skip the step: Replica().Opt.Times().Skipped is then
// the reason.
//
// If one rank fails, the steps of other ranks fail with an error about that rank: immediately after
// an error of an exchange or update, otherwise when the rank's function in ringo.Run or ringo.Local
// returns.
func (l *Loop) TrainOneBatch(b model.Batch, strategy distopt.Strategy, spars float64) (pass model.Pass, err error) {
	r := l.r
	defer func() {
		err = r.located(err)
		l.failed = err != nil && !stopped(err)
	}()
	if err := r.alive(); err != nil {
		return pass, err
	}
	if err := r.loop.checkStop(l.at.epoch, l.at.step, 1); err != nil {
		if saved := l.Save(); stopped(err) && saved != nil {
			err = saved
		}
		return pass, err
	}
	r.setPosition("", l.at.epoch, l.at.step+1)
	if err := l.choose(strategy, spars); err != nil {
		return pass, err
	}
	r.replica.params.setRate(l.lr, l.lr)
	r.replica.rec.BeginStep(r.replica.Opt.Steps())
	if pass, err = r.replica.Backward(b, true); err != nil {
		return pass, err
	}
	if loss := lossOf(pass); !finite(loss) {
		samples := &data.Batch{N: b.N, Values: valuesOf(b), Targets: b.Targets}
		if !r.replica.skips {
			return pass, notFinite(loss, l.lr, samples)
		}
		r.replica.Opt.Reject(whyRejected(loss, l.lr, samples))
	}
	if err := r.replica.Step(); err != nil {
		return pass, err
	}
	l.at.step++
	return pass, r.reports.skipped(l.at.epoch, l.at.step)
}

func (l *Loop) choose(strategy distopt.Strategy, spars float64) error {
	o := l.r.replica.Opt
	if strategy == distopt.PartialUpdate && l.r.cfg.Average != 0 {
		return setting.Errorf(settingAverage, "%s: under strategy %s the ranks' parameters differ between steps", quantity.Exact(l.r.cfg.Average), strategy)
	}
	if strategy != "" && strategy != o.Strategy() {
		if err := o.SetStrategy(strategy); err != nil {
			return err
		}
	}
	if spars == 0 || spars == o.Spars() {
		return nil
	}
	return o.SetSpars(spars)
}

// Evaluate evaluates the model on a set's evaluation samples, which the ranks divide, in batches of
// Config.Batch. The result is equal on all ranks.
func (l *Loop) Evaluate(set *data.Dataset) (Evaluation, error) {
	r := l.r
	r.setPosition("evaluating", l.at.epoch, l.at.step)
	r.data.set, r.data.evalRanks, r.data.shares = set, nil, dataPartition{train: r.data.shares.train, eval: set.Eval.Len()} // all ranks share it
	if err := r.data.checkShapes(); err != nil {
		return Evaluation{}, r.located(err)
	}
	e, err := r.loop.evaluateNow(l.at.epoch)
	if err == nil && !finite(e.Loss) {
		r.remark(0, "the loss of the evaluation is %s: the model has diverged, or a row of the set is not finite", quantity.Exact(e.Loss))
	}
	return e, r.located(err)
}

// Save saves the loop in cfg.Checkpoint.Dir, if set: parameters and optimizer state, each rank's
// unsent gradients (residuals), running statistics and the model's state between batches. Rank 0
// writes.
func (l *Loop) Save() error {
	if l.r.cfg.Checkpoint.Dir == "" {
		return nil
	}
	return l.r.located(l.r.saver.save(l.at))
}

// ParamsSHA256 returns the hash of the model's values, or an error if ranks have different ones.
func (l *Loop) ParamsSHA256() (string, error) {
	if err := l.r.sync(); err != nil {
		return "", l.r.located(err)
	}
	sum, err := l.r.reports.paramsSHA256()
	return sum, l.r.located(err)
}

// Close leaves the job. After an error it only releases memory and connections.
func (l *Loop) Close() error {
	defer l.r.close()
	if l.failed {
		return nil
	}
	return l.r.replica.params.leave()
}

// Evaluation is the result of a model on a set, over all ranks.
type Evaluation struct {
	// Loss is the mean over Terms, the number of samples or tokens.
	Loss    float64
	Terms   int64
	Figures model.Metrics
	// Report has the tables of classes, numbers or clicks, if the model has any of these.
	Report evalmetrics.Report
}

// evaluateNow evaluates the model on all ranks' parts of the set. The call is collective.
func (l *epochLoop) evaluateNow(epoch int) (Evaluation, error) {
	if err := l.sync(); err != nil {
		return Evaluation{}, err
	}
	t := l.replica.newTally()
	whole, err := l.evaluateAll(epoch, &t)
	if err != nil {
		return Evaluation{}, err
	}
	return l.replica.evaluated(whole), nil
}

// evaluated returns loss and metrics of an evaluation by all ranks.
func (r *Replica) evaluated(whole evaluation) Evaluation {
	c := whole.counts
	return Evaluation{Loss: c.Loss / c.Terms, Terms: int64(c.Terms), Figures: r.model.Figures(c, whole.words, false), Report: whole.report}
}

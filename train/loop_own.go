package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/model"
)

// Loop is a model on every rank of a job for a loop of one's own: TrainOneBatch as often as one likes, by a strategy that
// may change from batch to batch, Save and Evaluate now and then. All calls are collective, and between two of them all ranks are equally far.
//
// It is Run without its epochs and data: parameters lie where cfg says, with the ranks or on servers, checkpoints are Run's, and
// a job that is told to end saves the loop after the same step on all ranks (TrainOneBatch returns a *ringo.StoppedError).
type Loop struct {
	r  *run
	at position
	lr float64
	// failed says that a batch was not trained to its end.
	failed bool
}

// endless is how many steps the one epoch of a Loop has.
const endless = math.MaxInt32

// NewLoop makes the model on this rank. Its Spec says the shape of its samples, cfg all that Config
// says which needs neither epochs nor data. Where Run would be a heter-trainer it is one, too, and
// returns ringo.ErrHeterTrainerDone. With cfg.Checkpoint.Resume it goes on from the folder's last
// checkpoint, if there is one: Steps says where.
func NewLoop(ctx context.Context, job *ringo.Job, m model.Spec, cfg Config) (l *Loop, err error) {
	if job.HeterTrainer() != nil {
		return nil, runHeterTrainer(ctx, job, m, cfg)
	}
	cfg.Model, cfg.given, cfg.Epochs = m, true, endless
	cfg = cfg.on(job)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := newRun(ctx, job, cfg, new(data.Dataset))
	r.data.steps, r.ownLoop = endless, true
	defer func() {
		if err = r.located(err); err != nil {
			r.close()
		}
	}()
	r.setPosition("preparing", 0, 0)
	if err := errors.Join(r.peers.validate(cfg), cfg.canSave()); err != nil {
		return nil, err
	}
	if err := r.peers.whenConnected(r.agreeConfig); err != nil {
		return nil, err
	}
	if err := r.saver.takeFolder(); err != nil {
		return nil, err
	}
	if err := r.data.describe(); err != nil {
		return nil, err
	}
	opts, place := r.data.options(), cfg.placement(r.peers)
	if err := r.add(cfg, opts, place); err != nil {
		return nil, err
	}
	if err := r.resumption.find(); err != nil {
		return nil, fmt.Errorf("resuming: %w", err)
	}
	if err := r.begin(opts, place); err != nil {
		return nil, err
	}
	l = &Loop{r: r, lr: cfg.LR, at: position{epoch: 1, tally: r.newTally()}}
	if cfg.Checkpoint.Resume {
		if l.at, err = r.resumption.resume(); err != nil {
			return nil, err
		}
	}
	r.loop.stoppable(l.at)
	return l, nil
}

// Steps is how many steps the run has done, those before it was resumed among them.
func (l *Loop) Steps() int64 { return l.r.resumption.stepsDone(l.at) }

// SetLR sets the learning rate of the following steps, the same on all ranks.
func (l *Loop) SetLR(lr float64) { l.lr = lr }

// Replica is this rank's copy of the model and its optimizer.
func (l *Loop) Replica() *Replica { return l.r.replica }

// TrainOneBatch runs this rank's batch forward and backward, exchanges gradients while backward runs, and updates. strategy and spars
// say how gradients are exchanged from this step on, as in distopt: "" and 0 leave that as it is. What it returns is good until the
// next call.
//
// With Exchange.NonFinite "skip" the step may be skipped on all ranks:
// Replica().Opt.Times().Skipped is then the reason.
//
// An error of this rank alone ends the other ranks' steps, which name it, as soon as the function that ringo.Run or ringo.Local has called returns it;
// that of an exchange, or of an update, at once.
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

// choose makes the following steps exchange gradients by a strategy, unless they do.
func (l *Loop) choose(strategy distopt.Strategy, spars float64) error {
	o := l.r.replica.Opt
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

// Evaluate evaluates the model on a set's part for that, which the ranks share: each sample is seen once, by one of them, in batches of
// Config.Batch. The result is the same on all ranks.
func (l *Loop) Evaluate(set *data.Dataset) (Evaluation, error) {
	r := l.r
	r.setPosition("evaluating", l.at.epoch, l.at.step)
	r.data.set, r.data.evalRanks, r.data.shares = set, nil, dataPartition{train: r.data.shares.train, eval: set.Eval.Len()} // all ranks share it
	if err := r.data.checkShapes(); err != nil {
		return Evaluation{}, r.located(err)
	}
	e, err := r.loop.evaluateNow(l.at.epoch)
	return e, r.located(err)
}

// Save saves the loop in the folder cfg.Checkpoint.Dir: parameters and the optimizer's state, what codecs have kept on each rank, running
// statistics and what the model carries; rank 0 writes. Without a folder it does nothing.
func (l *Loop) Save() error {
	if l.r.cfg.Checkpoint.Dir == "" {
		return nil
	}
	return l.r.located(l.r.saver.save(l.at))
}

// ParamsSHA256 is the hash of what the model has learnt, as in Summary. Ranks that differ are an error.
func (l *Loop) ParamsSHA256() (string, error) {
	if err := l.r.sync(); err != nil {
		return "", l.r.located(err)
	}
	sum, err := l.r.reports.paramsSHA256()
	return sum, l.r.located(err)
}

// Close ends the rank's part in good order. After an error it only gives back what the loop holds.
func (l *Loop) Close() error {
	defer l.r.close()
	if l.failed {
		return nil
	}
	return l.r.replica.params.leave()
}

// Evaluation is what a model made of a set, over all ranks.
type Evaluation struct {
	// Loss is the mean over Terms, which are samples or tokens.
	Loss  float64
	Terms int64
	// Figures are the model's metrics.
	Figures model.Metrics
}

// evaluateNow evaluates the model as it is on all ranks' shares of the set. It is a collective call.
func (l *epochLoop) evaluateNow(epoch int) (Evaluation, error) {
	if err := l.sync(); err != nil {
		return Evaluation{}, err
	}
	t := l.newTally()
	whole, err := l.evaluateAll(epoch, &t)
	if err != nil {
		return Evaluation{}, err
	}
	return l.evaluated(whole), nil
}

// evaluated are the figures of an evaluation by all ranks.
func (e *runEnv) evaluated(whole evaluation) Evaluation {
	c := whole.counts
	return Evaluation{Loss: c.Loss / c.Terms, Terms: int64(c.Terms), Figures: e.replica.model.Figures(c, whole.words, false)}
}

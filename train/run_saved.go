package train

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/table"
	"github.com/ringo-ml/ringo/internal/data/layout"
	"github.com/ringo-ml/ringo/internal/evalmetrics"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/setting"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// SavedEvaluation is the result of a saved model on the evaluation samples of a data set, over all
// ranks. As JSON it is one line.
type SavedEvaluation struct {
	Event string `json:"event"`
	Model string `json:"model"`
	// Checkpoint is the file, saved at Step, after Epoch whole epochs, in a run of TrainedNP ranks.
	Checkpoint string `json:"checkpoint"`
	Step       int64  `json:"step"`
	Epoch      int    `json:"epoch"`
	TrainedNP  int    `json:"trained_np"`
	NP         int    `json:"np"` // ranks of the evaluation
	DataSet    string `json:"data"`
	Samples    int    `json:"samples"`
	// LeftOut counts the excluded samples, by kind.
	LeftOut []data.LeftOut `json:"left_out,omitempty"`
	// Unseen counts, by column, rank 0's rows of a table with a word that training data lack.
	Unseen map[string]int `json:"unseen,omitempty"`
	// EvalLoss is the mean per sample or, in a language model, per token.
	EvalLoss float64 `json:"eval_loss"`
	// Eval are the model's metrics. As JSON they are fields such as "eval_accuracy".
	Eval model.Metrics `json:"-"`
	// Report has the tables of classes, numbers or clicks, if the model has any of these.
	evalmetrics.Report
	// SamplesPerS counts all ranks, over the time of the evaluation, without that of Importance.
	SamplesPerS float64 `json:"samples_per_s"`
	WallS       float64 `json:"wall_s"`
}

// Evaluate loads a model's checkpoint and evaluates the model as in its run. The checkpoint is the
// file cfg.Checkpoint.Dir, or the one of that folder that checkpoint.Choose selects. Training
// settings are ignored. If parameters are on running servers, these must have started with the
// checkpoint (Servers.Start); without servers each rank reads the parts that servers saved
// (Servers.OpenServerCheckpoint). All ranks call it with the same configuration, and get the same
// metrics.
//
// With as many ranks as in training, metrics equal the run's to the last digit. With another
// number, counts and orders (accuracy, AUC) are equal, and sums such as the loss differ by
// rounding. Text is cut as in the run: at most as many ranks as in training evaluate a model with a
// state between batches.
func Evaluate(ctx context.Context, job *ringo.Job, m model.Spec, set *data.Dataset, cfg Config) (e SavedEvaluation, err error) {
	if cfg, err = cfg.forSet(job, m, set); err != nil {
		return e, err
	}
	r := newRun(ctx, job, cfg, set)
	defer r.close()
	defer func() { err = r.located(err) }()
	r.setPosition("preparing", 0, 0)
	if err := r.prepareSaved(r.data.openToEvaluate); err != nil {
		return e, err
	}
	info := r.info()
	info.Resumed = "" // a loaded model does not continue its run
	r.obs.Start(info)
	if err := r.loop.checkJudge(); err != nil {
		return e, err
	}
	start := time.Now()
	whole, err := r.loop.evaluateSaved()
	seconds := time.Since(start).Seconds()
	if err == nil {
		err = r.loop.judge(&whole.report)
	}
	if err != nil {
		return e, err
	}
	f := r.resumption.found
	e = SavedEvaluation{
		Event: "evaluation", Model: cfg.name(), Checkpoint: f.File, Step: f.Step, Epoch: f.Epoch, TrainedNP: f.NP, NP: job.Size(), DataSet: cfg.source(),
		Samples: r.data.shares.eval, LeftOut: r.data.shares.excluded, Unseen: r.data.set.Unseen, EvalLoss: whole.counts.Loss / whole.counts.Terms, Eval: r.replica.evaluated(whole).Figures, Report: whole.report,
		SamplesPerS: float64(r.data.shares.eval) / seconds, WallS: r.wall(),
	}
	if !finite(e.EvalLoss) {
		return e, fmt.Errorf("the loss is %s: the model in %s has diverged", quantity.Exact(e.EvalLoss), f.File)
	}
	r.setPosition("leaving the servers", 0, 0)
	return e, r.replica.params.leave()
}

// prepareSaved prepares the evaluation or use of a saved model, up to the first batch.
func (r *run) prepareSaved(openData func(saved checkpointInfo) error) error {
	r.cfg.ClassWeights, r.cfg.LabelSmoothing = "", 0 // of training alone
	if err := r.cfg.Validate(); err != nil {
		return err
	}
	if err := r.enter(); err != nil {
		return err
	}
	r.cfg.Average = 0 // the checkpoint's parameters are the average
	r.prepares("opening the checkpoint")
	if err := r.resumption.broadcastInfo(r.resumption.openOther); err != nil {
		return err
	}
	saved := r.resumption.found
	saved.keepPrecision(&r.cfg)
	if s := saved.About.Shape; r.cfg.Model.AnySlots && r.cfg.Model.IDs > 0 && len(s.Slots) > 0 { // trained by keys
		r.cfg.Model = shaped(r.cfg.Model, s)
		r.spec = r.cfg.Model
	}
	if err := openData(saved); err != nil {
		return err
	}
	r.prepares("building the model")
	opts, place := r.data.options(), placement(r.cfg, r.peers)
	if r.cfg.Servers.Live != nil && saved.Servers == nil {
		return errors.New(saved.File + " has all parameters: its run had no parameter servers to read from")
	}
	if saved.Servers != nil {
		r.cfg.saved = saved.Params
		if r.cfg.Servers.Live != nil {
			place = func(m *Replica) paramPlacement {
				return &liveParams{replicatedParams: replicatedParams{replica: m}, ctx: r.ctx, dial: r.cfg.Servers.Live}
			}
		} else if r.cfg.Servers.Consistency == "" { // without servers
			place = func(m *Replica) paramPlacement {
				return &checkpointParams{replicatedParams: replicatedParams{replica: m}, ctx: r.ctx, saved: saved}
			}
		}
	}
	if err := r.add(r.cfg, opts, place); err != nil {
		return err
	}
	r.prepares("loading the checkpoint")
	if err := r.begin(opts, place); err != nil {
		return err
	}
	return r.resumption.loadSaved()
}

// openOther opens a checkpoint of the same model; the settings of its run may differ.
func (r *resumption) openOther() (checkpointInfo, error) {
	file, _, err := checkpoint.Choose(r.cfg.Checkpoint.Dir)
	if err != nil {
		return checkpointInfo{}, err
	}
	head, err := openSaved(file)
	if err != nil {
		return checkpointInfo{}, err
	}
	if of := head.file.Header.Model; of != r.spec.Name {
		_ = head.file.Close() // read only
		return checkpointInfo{}, fmt.Errorf("%s is of model %s, not of %s", head.File, of, r.spec.Name)
	}
	return head, nil
}

// openToEvaluate opens data with the same meaning as the run's.
func (d *runData) openToEvaluate(saved checkpointInfo) (err error) {
	if d.set == nil {
		d.prepares("loading the data")
		if d.set, err = d.openSetOf(saved); err != nil {
			return err
		}
	}
	if err := sameMeaning(saved.About, d.set); err != nil {
		return fmt.Errorf("%s: %w", saved.File, err)
	}
	return d.openData(false)
}

// sameMeaning returns an error if the data have another meaning than the training data. Numbers of
// classes and rows are compared when parameters are read.
func sameMeaning(d data.Description, s *data.Dataset) error {
	kind := func(e *table.Encoder) string {
		if e == nil {
			return "no table"
		}
		return "a table"
	}
	switch {
	case (d.Encoder == nil) != (s.Encoder == nil):
		return fmt.Errorf("the model was trained on %s, but these data are %s", kind(d.Encoder), kind(s.Encoder))
	case (d.Layout == nil) != (s.Layout == nil) || d.Layout != nil && !bytes.Equal(d.Layout.Meaning(), s.Layout.Meaning()):
		return fmt.Errorf("the model was trained on samples by %s, but these are by %s, with different columns", layoutName(d.Layout), layoutName(s.Layout))
	case d.Encoder == nil && len(d.Words) > 0 && len(s.Words) > 0 && !slices.Equal(d.Words, s.Words):
		return errors.New("the names of the classes, or the words of the vocabulary, differ from the training data's")
	}
	return nil
}

// layoutName names a layout in errors.
func layoutName(l *layout.Layout) string {
	if l == nil {
		return "no layout"
	}
	return "layout " + l.Name()
}

// openSetOf opens the data set to evaluate: a table in the run's encoding. The run's own file is
// evaluated on the held-out rows, another file on all rows.
func (d *runData) openSetOf(s checkpointInfo) (*data.Dataset, error) {
	cfg := d.cfg
	now := files{cfg.Data, cfg.TrainFile, cfg.EvalFile}
	if cfg.encoder = s.About.Encoder; cfg.encoder == nil {
		set, err := openSet(cfg)
		if now.absolute() != s.Files.absolute() && refusesShare(err) {
			d.remark(0, "the run's data.eval-split %s has no effect: these data have evaluation samples", quantity.Exact(cfg.Split))
			cfg.Split = 0
			return openSet(cfg)
		}
		return set, err
	}
	if now.absolute() == s.Files.absolute() { // later rows are held out by the same rule
		return openSet(cfg)
	}
	// All ranks have the same files, or agreeData returns an error: the ranks decide equally
	// without communication.
	other := cfg.EvalFile
	if other == "" || now.absolute().Eval == s.Files.absolute().Eval {
		other = cmp.Or(cfg.Data, cfg.TrainFile)
		if set, err := openSet(cfg); err == nil && nameOf(set.Fingerprint()) == s.Data {
			return set, nil // the file was moved
		}
	}
	cfg.Data, cfg.TrainFile, cfg.EvalFile, cfg.Split, cfg.TrainLimit = "", "", other, 0, 0
	set, err := openSet(cfg)
	if err == nil {
		d.remark(0, "evaluating all %s of %s, which is another file than the training data", quantity.Count(set.Eval.Len(), "row"), other)
	}
	return set, err
}

// refusesShare reports whether err says that data have evaluation samples, so that no others are
// held out.
func refusesShare(err error) bool {
	var e *setting.Error
	return errors.As(err, &e) && e.Path == "data.eval-split"
}

// loadSaved fills every rank's memory with the checkpoint's values that all ranks share. The call
// is collective.
func (r *resumption) loadSaved() error {
	means := make([]float32, len(r.replica.Params.Buffers()))
	if r.job.Rank() == 0 {
		read := r.found.file.Read
		if r.found.Servers != nil || slices.ContainsFunc(r.found.file.Arrays(), func(a checkpoint.Info) bool { return strings.HasPrefix(a.Name, trainedPrefix) }) {
			read = r.found.file.ReadSome // the file may have the state of heter-trainers' optimizer, or weights without their average
		}
		if err := read(r.replica.arrays(means)...); err != nil {
			return err
		}
	}
	if err := r.restoreMeans(means); err != nil {
		return err
	}
	return r.loaded()
}

// evaluateSaved runs the model over the evaluation set, each sample once, and adds up the counters.
// Ranks divide the set evenly or, for a model with a state between batches, as the ranks of the
// training did. All ranks call it.
func (l *epochLoop) evaluateSaved() (evaluation, error) {
	l.prepares("evaluating")
	ranks := l.data.shares.amongSharers(collective.Ranks(l.job.Size()))
	parts := len(ranks)
	if l.replica.model.State != nil && parts == l.job.Size() {
		parts = l.resumption.found.NP
	}
	l.tableWords = savedTableWords
	whole := l.replica.newEvaluation(l.tablePlan())
	for part := slices.Index(ranks, l.job.Rank()); part < parts; part += len(ranks) {
		if err := l.data.openPart(part, parts); err != nil {
			return whole, err
		}
		own, err := l.evaluatePart(l.resumption.found.Epoch)
		if err != nil {
			return whole, err
		}
		whole.add(&own)
	}
	if err := l.addUp(&whole, new(epochCounters)); err != nil {
		return whole, fmt.Errorf("adding up the counters: %w", err)
	}
	return whole, nil
}

// Predictor is a saved model on every rank of a job, for new samples. It runs the forward pass of
// evaluations without recording, with the same bits for the same batch. A Predictor needs the
// memory of a training model, and computes on Config.Threads threads of each rank; a batch is one
// call, without allocation after the largest batch.
//
// Only one goroutine of each rank may use a Predictor. Ranks may run different numbers of batches;
// with parameters on servers each rank fetches the rows of its batches.
type Predictor struct {
	r      *run
	failed bool
}

// NewPredictor loads a model's checkpoint, as Evaluate does, and opens no data. All ranks call it,
// as well as Gather and End.
func NewPredictor(ctx context.Context, job *ringo.Job, m model.Spec, cfg Config) (p *Predictor, err error) {
	cfg.Model, cfg.hasSet = m, true
	cfg = cfg.settled(job.Size())
	r := newRun(ctx, job, cfg, nil)
	defer func() {
		if err = r.located(err); err != nil {
			r.close()
		}
	}()
	r.setPosition("preparing", 0, 0)
	if err := r.prepareSaved(r.data.describedBySaved); err != nil {
		return nil, err
	}
	if cfg.Servers.Live == nil { // dense parameters change
		r.replica.constant(cfg)
	}
	return &Predictor{r: r}, nil
}

// constant fixes the replica's parameters: values that depend on weights alone, such as packed
// weights for products, are computed once and kept, in as much memory again for most layers. No
// step may follow, because it would not update these values. Rows of tables may change from batch
// to batch. The results have the bits of an evaluation, which computes the values for each batch.
func (r *Replica) constant(cfg Config) {
	r.tape.Close()
	r.tape = nn.NewTape(nn.TapeConfig{Kernels: r.kernels, Threads: cfg.threadsEach(), Constant: true})
	r.ResetState()
}

// describedBySaved makes the data a set without samples, with the checkpoint's description.
func (d *runData) describedBySaved(saved checkpointInfo) error {
	a := saved.About
	d.set = &data.Dataset{Name: a.Name, Classes: a.Classes, Vocabulary: a.Vocabulary, Rows: a.Rows, Words: a.Words, Encoder: a.Encoder, Layout: a.Layout}
	if s := a.Shape; s.Size() > 0 || s.IDs > 0 || len(s.Slots) > 0 { // a Loop has no shape: its model is complete
		d.cfg.Model = shaped(d.cfg.Model, s)
	}
	d.spec = d.cfg.Model
	return d.describe()
}

// Description describes the samples that the model takes.
func (p *Predictor) Description() data.Description { return p.r.resumption.found.About }

// Spec returns the model with the shape of its samples.
func (p *Predictor) Spec() model.Spec { return p.r.spec }

// Checkpoint returns the file and its step.
func (p *Predictor) Checkpoint() (file string, step int64) {
	return p.r.resumption.found.File, p.r.resumption.found.Step
}

// Replica returns this rank's copy of the model.
func (p *Predictor) Replica() *Replica { return p.r.replica }

// Forward runs the forward pass of evaluations over a batch, and returns its outputs, valid until
// the next call. A model that carries state continues from the batch before; Replica().ResetState
// resets it.
func (p *Predictor) Forward(b *data.Batch) (model.Outputs, error) {
	out, err := p.r.replica.Forward(p.r.replica.Batch(b))
	return out, p.note(err)
}

// Gather sends every rank's bytes to all ranks, and returns them by rank. All ranks call it.
func (p *Predictor) Gather(own []byte) ([][]byte, error) {
	all, err := p.r.peers.gather(own)
	return all, p.note(err)
}

// End leaves the job, and releases the predictor. Call it once, after success or error:
//
// return p.End(use(p))
//
// It leaves in good order, or returns err or the error of an earlier call.
func (p *Predictor) End(err error) error {
	defer p.r.close()
	if err != nil || p.failed {
		return p.r.located(err)
	}
	return p.r.replica.params.leave()
}

// note records whether a call has failed, for End, and returns err with its position in the run.
func (p *Predictor) note(err error) error {
	p.failed = p.failed || err != nil
	return p.r.located(err)
}

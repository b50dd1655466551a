package train

import (
	"context"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

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

// NewPredictor loads a model's checkpoint cfg.Checkpoint.Dir, or the one of that folder by
// checkpoint.Choose, and opens no data. Training settings are ignored. Parameters on servers are
// the servers' initial values: see Servers.Start; without servers each rank reads the servers'
// parts: see Servers.OpenServerCheckpoint. The call is collective, as are Gather and End.
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
	r.replica.constant(cfg)
	return &Predictor{r: r}, nil
}

// constant fixes the replica's parameters: values computed from weights alone, such as packed
// weights for products, are computed once and retained, in as much memory again for most layers. No
// step may follow, because a step would not update these values. Rows of tables may change, as rows
// on servers do from batch to batch: constant retains none. The bits equal an evaluation's, which
// computes the values for each batch.
func (r *Replica) constant(cfg Config) {
	r.tape.Close()
	r.tape = nn.NewTape(nn.TapeConfig{Kernels: r.kernels, Threads: cfg.threadsEach(), Constant: true})
	r.ResetState()
}

// describedBySaved makes the data a set without samples, as the checkpoint describes it.
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

// Gather sends every rank's bytes to all ranks, and returns them by rank. The call is collective.
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

// note notes an error, after which End does not leave in good order.
func (p *Predictor) note(err error) error {
	p.failed = p.failed || err != nil
	return p.r.located(err)
}

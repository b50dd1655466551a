package train

import (
	"context"

	"github.com/ringo-ml/ringo"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// Predictor is a saved model on every rank of a job, to be run over samples that it was not trained on, by the forward pass that
// evaluations make: nothing is recorded for backward, and of the same batch the outputs have the same bits as there. It has the
// memory of a model that trains, and computes on Config.Threads threads of each rank; a batch is one call, and nothing is allocated
// once the largest batch was seen.
//
// It belongs to one goroutine of each rank. Ranks need not run as many batches; where parameters lie on servers each fetches the rows of its
// own batches from there.
type Predictor struct {
	r      *run
	failed bool
}

// NewPredictor loads a model's checkpoint, which cfg.Checkpoint.Dir names, or that folder's last
// one; no data are opened. The settings of training in cfg are ignored. Parameters on servers are
// those that the servers began with: see Servers.Start; without servers each rank reads what they
// have saved: see Servers.OpenServerCheckpoint. It is a collective call, as are Gather and End.
func NewPredictor(ctx context.Context, job *ringo.Job, m model.Spec, cfg Config) (p *Predictor, err error) {
	cfg.Model, cfg.given = m, true
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

// constant makes the parameters those that the replica keeps: what is computed of weights alone,
// such as their packing for products, is computed once and kept, in as much memory again for most
// layers. No step may follow: it would move parameters behind the back of what was kept. Rows of
// tables may change, as those on servers do from batch to batch: nothing is kept of them. The bits
// are those of an evaluation, in which the same is computed for each batch.
func (r *Replica) constant(cfg Config) {
	r.tape.Close()
	r.tape = nn.NewTape(nn.TapeConfig{Kernels: r.kernels, Threads: cfg.threadsEach(), Constant: true})
	r.ResetState()
}

// describedBySaved makes the data those that the checkpoint describes, without samples.
func (d *runData) describedBySaved(saved checkpointInfo) error {
	a := saved.About
	d.set = &data.Dataset{Name: a.Name, Classes: a.Classes, Vocabulary: a.Vocabulary, Rows: a.Rows, Words: a.Words, Encoder: a.Encoder, Layout: a.Layout}
	if s := a.Shape; s.Size() > 0 || s.IDs > 0 || len(s.Slots) > 0 { // a Loop's has none: its model says all
		d.cfg.Model = shaped(d.cfg.Model, s)
	}
	d.spec = d.cfg.Model
	return d.describe()
}

// Description says what the samples are that the model takes.
func (p *Predictor) Description() data.Description { return p.r.resumption.found.About }

// Spec is the model's, with the shape of its samples.
func (p *Predictor) Spec() model.Spec { return p.r.spec }

// Checkpoint is the file, and after how many steps it was saved.
func (p *Predictor) Checkpoint() (file string, step int64) {
	return p.r.resumption.found.File, p.r.resumption.found.Step
}

// Replica is this rank's copy of the model.
func (p *Predictor) Replica() *Replica { return p.r.replica }

// Forward runs the model over a batch by the forward pass of evaluations, and returns its outputs,
// which are good until the next call. A model that carries state goes on from the batch before it;
// Replica().ResetState begins anew.
func (p *Predictor) Forward(b *data.Batch) (model.Outputs, error) {
	out, err := p.r.replica.Forward(p.r.replica.Batch(b))
	return out, p.note(err)
}

// Gather brings every rank's bytes to all ranks, by rank. It is a collective call.
func (p *Predictor) Gather(own []byte) ([][]byte, error) {
	all, err := p.r.peers.gather(own)
	return all, p.note(err)
}

// End ends the rank's part, and gives back what the predictor holds. It is called once, whatever has happened:
//
//	return p.End(use(p))
//
// It ends in good order unless something has failed, err or a call before, and returns that.
func (p *Predictor) End(err error) error {
	defer p.r.close()
	if err != nil || p.failed {
		return p.r.located(err)
	}
	return p.r.replica.params.leave()
}

// note keeps that something has failed: then there is no good order to leave in.
func (p *Predictor) note(err error) error {
	p.failed = p.failed || err != nil
	return p.r.located(err)
}

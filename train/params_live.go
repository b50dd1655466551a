package train

import (
	"context"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/server/trainer"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Intervals and limits of liveParams.
const (
	denseEvery  = time.Second // pulls of dense parameters
	redialEvery = time.Second // attempts to connect to lost servers
)

// liveParams are parameters on the running servers of a job, read without training. Each batch
// reads its rows; dense parameters are read again after denseEvery. Cost: one round trip for each
// batch, and the memory of its rows.
type liveParams struct {
	replicatedParams
	dial   func(context.Context, schema.Schema) (*client.Client, error)
	ctx    context.Context
	schema schema.Schema

	client  *client.Client // nil while the servers are lost
	trainer *trainer.Trainer
	pulled  time.Time // of the dense parameters
	lost    time.Time // of err
	err     error
}

func (p *liveParams) layOut(ps *nn.Params) { ps.TablesElsewhere() }

func (p *liveParams) begin(cfg Config, at beginning) (err error) {
	r := p.replica
	if p.schema, err = cfg.schemaOf(r.Params, at.rate); err != nil {
		return err
	}
	if err := p.ready(); err != nil {
		return err
	}
	if p.rule, err = cfg.newRule(r.Params, nil); err != nil {
		return err
	}
	return r.optimize(cfg, r.job.Group(), p.rule, nil)
}

// ready connects if necessary, and reads the dense parameters if they are older than denseEvery.
func (p *liveParams) ready() error {
	if p.client == nil {
		if time.Since(p.lost) < redialEvery {
			return p.err
		}
		if err := p.connect(); err != nil {
			return p.fail(err)
		}
	}
	if time.Since(p.pulled) < denseEvery {
		return nil
	}
	if err := p.trainer.PullDense(); err != nil {
		return p.fail(err)
	}
	p.pulled = time.Now()
	return nil
}

func (p *liveParams) connect() (err error) {
	if p.client, err = p.dial(p.ctx, p.schema); err != nil {
		p.client = nil
		return err
	}
	p.pulled = time.Time{}
	p.trainer, err = trainer.New(trainer.Config{Client: p.client, Schema: p.schema, Lookups: lookupsOf(p.replica.Params), Values: p.replica.Params.Values()})
	return err
}

// fail ends the connections, until the next attempt.
func (p *liveParams) fail(err error) error {
	p.disconnect()
	p.lost, p.err = time.Now(), fmt.Errorf("rows of running servers: %w", err)
	return p.err
}

func (p *liveParams) disconnect() {
	if p.client != nil {
		_ = p.client.Close() // nothing was changed
	}
	if p.trainer != nil {
		_ = p.trainer.Close()
	}
	p.client, p.trainer = nil, nil
}

func (p *liveParams) fetch(b model.Batch, _ bool) (model.Batch, error) {
	if err := p.ready(); err != nil {
		return b, err
	}
	if err := p.trainer.Peek(trainer.Batch{IDs: b.IDs, Keys: b.Bags.Keys, Offsets: b.Bags.Offsets, N: b.N}); err != nil {
		return b, p.fail(err)
	}
	return heldRows(p.trainer, p.replica.Params.Tables(), b), nil
}

// arrays are the values that only the checkpoint's file has, and not the servers.
func (p *liveParams) arrays() []checkpoint.Array {
	return (&serverParams{replica: p.replica}).arrays()
}

func (p *liveParams) close() {
	p.disconnect()
	p.replicatedParams.close()
}

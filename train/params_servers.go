package train

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/quantity"
	"github.com/ringo-ml/ringo/internal/server/message"
	"github.com/ringo-ml/ringo/internal/server/trainer"
	"github.com/ringo-ml/ringo/internal/transport/mem"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// servers are the parameter servers of a job as one rank uses them.
type servers struct {
	peers    communicator
	client   *client.Client  // rank's connections; nil before the first replica begins
	code     message.Code    // wire type of rows
	replicas []*serverParams // rank's parameters, one session each
}

func (s *servers) addReplica(r *Replica) paramPlacement {
	p := &serverParams{servers: s, replica: r, number: len(s.replicas), next: -1, prefetch: func(ask func() error) error { return ask() }}
	s.replicas = append(s.replicas, p)
	return p
}

func (s *servers) communicator() communicator { return s.peers }

// dial connects to the servers. Ranks without connections to each other exchange data there from
// then on.
func (s *servers) dial(r *Replica, cfg Config, at beginning, sc schema.Schema) (err error) {
	c := client.Config{Schema: sc, Sessions: cfg.Servers.threads(), Job: at.job, Settings: cfg.Servers.sharedSettings()}
	if err := cfg.Servers.codes(&c); err != nil {
		return err
	}
	s.code = c.Pull
	if s.client, err = r.job.DialParameterServers(c); err != nil {
		return err
	}
	return s.peers.setServers(s.client)
}

// serverParams are parameters on servers. A replica has the rows of its batch or, in geo, copies
// that the rank updates.
type serverParams struct {
	*servers
	replica *Replica
	number  int // number of its session
	cfg     Config
	trainer *trainer.Trainer
	// alone is a group of this replica alone, for gradients that ranks do not sum.
	alone *collective.Group
	// rule updates the rank's copies of parameters in geo; nil if servers update.
	rule             *optim.Shared
	reportedCacheUse trainer.CacheUse // cache use in the metrics until now
	// next is the learning rate of the next step, sent to the servers at the end of this one.
	next      float64
	following *data.Batch // batch after the one of the next pass; nil if unknown
	more      bool        // following is in the same step as the next pass
	share     float32     // weight of the present batch's loss; 0 means 1
	unshared  []float32   // buffer of rowsReady
	// prefetch calls ask, which requests the rows of the next batch.
	prefetch func(ask func() error) error
}

func (p *serverParams) layOut(ps *nn.Params) { ps.TablesElsewhere() }

func (p *serverParams) begin(cfg Config, at beginning) error {
	r, s := p.replica, cfg.Servers
	p.cfg = cfg
	sc, err := cfg.schemaOf(r.Params, at.rate)
	if err != nil {
		return err
	}
	if p.client == nil {
		if err := p.peers.whenConnected(func() error { return agreeModel(p.peers, r.Params) }); err != nil {
			return err
		}
		if err := p.dial(r, cfg, at, sc); err != nil {
			return err
		}
	}
	t := trainer.Config{
		Client: p.client, Session: p.number, Schema: sc, Lookups: lookupsOf(r.Params), Values: r.Params.Values(), First: r.job.Rank() == 0 && p.number == 0,
		Cache: s.cache(p.code), GeoSteps: s.geoSteps(), Copies: r.job.Size() * s.threads(), Batches: cfg.Exchange.Accumulation, Done: uint64(at.step) / uint64(s.threads()),
	}
	t.ClipNorm, cfg.Exchange.ClipNorm = cfg.Exchange.ClipNorm, 0 // the trainer has the rows, too
	if p.trainer, err = trainer.New(t); err != nil {
		return err
	}
	if p.alone, err = collective.New(mem.New(1)[0], collective.Config{Record: r.rec}); err != nil {
		return err
	}
	if s.geoSteps() == 0 {
		cfg.Exchange.Reducer = p.trainer
	} else if p.rule, err = cfg.newRule(r.Params, nil); err != nil {
		return err
	}
	return r.optimize(cfg, p.alone, p.rule, nil)
}

func (p *serverParams) swapAverage()     {} // Validate rejects an average
func (p *serverParams) prefetches() bool { return true }

func (p *serverParams) setNextBatch(b *data.Batch, more bool) { p.following, p.more = b, more }

func (p *serverParams) takeWaitTime() time.Duration { return p.trainer.Waited() }
func (p *serverParams) end() error                  { return p.trainer.End(p.next) }

func (p *serverParams) fetch(b model.Batch, training bool) (model.Batch, error) {
	p.share = b.Share
	get, ask := p.trainer.Peek, p.trainer.AskPeek
	if training {
		if get, ask = p.trainer.Fetch, p.trainer.Ask; p.more {
			ask = p.trainer.AskMore
		}
	}
	if err := get(trainer.Batch{IDs: b.IDs, Keys: b.Bags.Keys, Offsets: b.Bags.Offsets, N: b.N}); err != nil {
		return b, err
	}
	b = heldRows(p.trainer, p.replica.Params.Tables(), b)
	if f := p.following; f != nil {
		p.following = nil
		return b, p.prefetch(func() error {
			return ask(trainer.Batch{IDs: f.IDs, Keys: f.Bags.Keys, Offsets: f.Bags.Offsets, N: f.N})
		})
	}
	return b, nil
}

// heldRows sets the tables' rows to those that t has fetched for a batch, and returns the batch
// with numbers of rows instead of ids.
func heldRows(t *trainer.Trainer, tables []*nn.Table, b model.Batch) model.Batch {
	for i, table := range tables {
		switch at, rows := t.Rows(i); {
		case table.Slots != nil:
			table.Hold(rows, at)
		case len(at) > 0:
			table.Hold(rows, nil)
			b.IDs = at
		}
	}
	return b
}

// rowsReady pushes the gradients of rows and, for a table that counts, shows and clicks. Gradients
// that are not finite are an error.
func (p *serverParams) rowsReady(table int, at []int32, grads []float32, labels []int32) error {
	if s := p.replica.kernels.SumSquares(grads); s-s != 0 {
		return fmt.Errorf("the gradient of table %s is not finite: lower the learning rate, or check the data and the model", p.replica.Params.Tables()[table].Name)
	}
	if p.trainer.Counts(table) {
		if p.share != 0 && p.share != 1 { // servers weight samples by their shows
			p.unshared = append(p.unshared[:0], grads...)
			grads = p.unshared
			p.replica.kernels.Scale(grads, 1/p.share)
		}
		return p.trainer.PushClicks(table, at, grads, labels)
	}
	return p.trainer.PushRows(table, at, grads)
}

func (p *serverParams) setRate(lr, next float64) {
	if p.rule != nil {
		p.rule.SetLR(lr)
	}
	p.trainer.SetRate(lr)
	p.next = next
}

// sync pushes all pending updates of all replicas and ranks, and then pulls the servers' values.
func (s *servers) sync() error {
	for _, p := range s.replicas {
		if err := p.trainer.PushDeltas(); err != nil {
			return err
		}
	}
	if err := s.client.Flush(context.Background()); err != nil {
		return err
	}
	if err := s.peers.barrier(); err != nil {
		return fmt.Errorf("waiting for all ranks' pushes: %w", err)
	}
	for _, p := range s.replicas {
		if err := p.trainer.PullDense(); err != nil {
			return err
		}
	}
	return nil
}

// rows lists the rows of a table by number. Rows by key only servers can list.
func (p *serverParams) rows(table int) (func(func([]float32) error) error, bool) {
	each := func(show func([]float32) error) error { return p.trainer.Each(table, show) }
	return each, p.replica.Params.Tables()[table].Slots == nil
}

// arrays are the frozen parameters, which are not on servers.
func (p *serverParams) arrays() (out []checkpoint.Array) {
	for _, v := range p.replica.Params.Frozen() {
		out = append(out, checkpoint.Floats(paramName(v.Name), v.Data))
	}
	return out
}

// localState is the state of compression or, in geo, of the optimizers of the rank's copies.
func (p *serverParams) localState() []stream {
	thread := fmt.Sprintf("thread%d/", p.number)
	if p.rule == nil {
		if p.cfg.Servers.threads() == 1 {
			thread = ""
		}
		return streamsOf(thread, p.replica.Opt.State())
	}
	out := streamsOf(thread, p.rule.State())
	for i, t := range p.replica.Params.Tables() {
		name := "rows"
		if t.Slots != nil {
			name += "/" + t.Name
		}
		out = append(out, stream{
			name: thread + name, n: p.trainer.StateLen(i), varies: true, give: func() func([]float32) error { return p.trainer.ReadState(i) },
			take: func(n int, _ bool, _ float32) (func([]float32) error, error) { return p.trainer.WriteState(i, n) },
		})
	}
	return out
}

// save makes servers save their parts, after sync. They keep the parts of existing checkpoints.
func (p *serverParams) save(step int64) (map[string]string, error) {
	if err := p.sync(); err != nil {
		return nil, err
	}
	oldest := []int64{step}
	if p.replica.job.Rank() == 0 {
		steps, err := checkpoint.Steps(p.cfg.Checkpoint.Dir)
		if err != nil {
			return nil, err
		}
		oldest[0] = slices.Min(append(steps, step))
	}
	if err := collective.Broadcast(p.replica.job.Group(), oldest, 0); err != nil {
		return nil, fmt.Errorf("broadcasting the servers' checkpoints: %w", err)
	}
	numbers, err := p.client.Save(uint64(step), uint64(oldest[0]))
	if err != nil {
		return nil, err
	}
	part := ServersPart{Start: p.cfg.Servers.Start, Numbers: numbers}
	if p.replica.job.Rank() == 0 {
		part.Folders = foldersOf(p.cfg.Checkpoint.Dir, part.Start, len(numbers))
	}
	text, err := json.Marshal(part)
	return map[string]string{moreServers: string(text)}, err
}

// resumed pulls the servers' values, which a run that ends without a step needs too.
func (p *serverParams) resumed() error { return p.sync() }

func (s *servers) leave() error { return s.replicas[0].trainer.Leave(context.Background()) }
func (s *servers) abort()       { _ = s.client.Close() }

func (p *serverParams) close() {
	if p.client != nil {
		_ = p.client.Close() // again, for other replicas
	}
	if p.trainer != nil {
		_ = p.trainer.Close()
	}
	if p.alone != nil {
		_ = p.alone.Close()
	}
	if p.rule != nil {
		p.rule.Close()
	}
}

// RowCache describes the use of a rank's row cache by all of its threads. Rates are shares of the
// different rows of a batch that were in the cache, and therefore not pulled.
type RowCache struct {
	TrainHitRate float64 `json:"train_hit_rate"` // always 0 in bsp: the rank's own push invalidates each row
	EvalHitRate  float64 `json:"eval_hit_rate"`
	SavedBytes   int64   `json:"saved_bytes"` // keys and rows that were not pulled
}

// String returns both rates and the saved traffic.
func (c RowCache) String() string {
	return fmt.Sprintf("its cache had %s of rows in training and %s in evaluations, %s did not travel", quantity.Percent(c.TrainHitRate), quantity.Percent(c.EvalHitRate), quantity.Traffic(float64(c.SavedBytes)))
}

// cacheUse returns the use of the replica's cache since the last call.
func (p *serverParams) cacheUse() trainer.CacheUse {
	was := p.reportedCacheUse
	t, e := p.trainer.CacheUse()
	p.reportedCacheUse = t.Plus(e)
	return trainer.CacheUse{Lookups: p.reportedCacheUse.Lookups - was.Lookups, Hits: p.reportedCacheUse.Hits - was.Hits, Saved: p.reportedCacheUse.Saved - was.Saved}
}

// rowCache returns the use of the rank's cache in all its replicas.
func (s *servers) rowCache() *RowCache {
	var train, eval trainer.CacheUse
	for _, p := range s.replicas {
		t, e := p.trainer.CacheUse()
		train, eval = train.Plus(t), eval.Plus(e)
	}
	rate := func(u trainer.CacheUse) float64 { return float64(u.Hits) / float64(max(1, u.Lookups)) }
	return &RowCache{rate(train), rate(eval), train.Saved + eval.Saved}
}

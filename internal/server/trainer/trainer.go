// Package trainer is a rank's side of a model with parameters on servers. It fetches the dense
// parameters and the batch's rows before a pass, sends gradients during backward as they become
// final, and reports the end of each step.
//
//	t, err := trainer.New(trainer.Config{Client: c, Schema: s, Values: params.Values()})
//	for … {
//		err = t.Fetch(batch)               // loads the rows of its ids and keys
//		at, rows := t.Rows(table)          // the model looks up at in rows
//		err = t.Ask(next)                  // requests the next batch's rows early
//		…                                  // forward, backward; t is distopt's Reducer
//		err = t.PushRows(table, at, grads) // at of Rows
//		err = t.End(rate)                  // after one or more batches
//	}
//	err = t.Leave(ctx)
//
// The servers' consistency mode decides which steps of other ranks a pull includes. Rows requested
// ahead may lack the trainer's own last step as well, except in bsp and in ssp without staleness.
// Dense values are requested at the end of a step and include that step: without it, early training
// is much worse.
//
// # Rows of earlier batches
//
// With [Config.Cache] the trainer stores pulled rows, and reuses them while the servers'
// consistency allows.
//
// # Geo
//
// With [Config.GeoSteps] the trainer has copies: the dense parameters, updated by the caller's
// optimizer, and the touched rows, updated by PushRows with the schema's rule. After GeoSteps steps
// the trainer sends the changes, divided by [Config.Copies], takes the servers' dense values, and
// drops the rows until a batch names them again. The rows' optimizer state stays: 4 bytes per value
// and about 17 per row ever touched.
//
// With one trainer an exchange does not change values: to the last bit if a value has at most
// doubled or halved since the previous exchange, otherwise up to the rounding of difference and
// sum.
package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/internal/simd"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// algorithm is a Trainer's name in exchange.Result.
const algorithm = "push"

// array is the index of the dense parameters, a single array, in the schema.
const array = 0

// Config configures a Trainer.
type Config struct {
	// Client is connected to the servers. Trainers that share a Client, with a session each, end
	// together: Leave is for all of them.
	Client *client.Client
	// Session is the trainer's session, from 0.
	Session int
	// Schema has one dense array, and any tables.
	Schema schema.Schema
	// Lookups has the lookup of each table.
	Lookups []Lookup
	// Values is the arena of dense parameters. Fetch and PullDense write to Values; so does the
	// request that End sends, until the next Fetch or PullDense.
	Values []float32
	// First makes this trainer send the initial values to the servers: one trainer must.
	First bool
	// GeoSteps, above 0, is the number of steps between two exchanges in geo mode, in which each
	// session trains a local copy of the parameters. Copies is the number of copies of all
	// trainers.
	GeoSteps, Copies int
	// Cache configures the reuse of rows of earlier batches. It is not for GeoSteps.
	Cache CacheConfig
	// Batches is the number of batches in a step: gradients are sums over them, and servers receive
	// the mean. 0 means 1.
	Batches int
	// ClipNorm limits the norm of the gradient that this trainer pushes in a step: all dense values
	// and rows, as selected by requests, and means over the batches. Larger gradients are scaled
	// down to it, and pushes begin with the step's first Wait. 0 means no limit. It is not for
	// GeoSteps, nor for tables with counts.
	ClipNorm float64
	// Done is the number of steps of a replaced trainer, for the schedule of exchanges.
	Done uint64
	// Timeout limits waits for the servers; 0: 15 min.
	Timeout time.Duration
}

// Trainer moves parameters and gradients between a rank and its servers. A Trainer is
// not safe for concurrent use.
type Trainer struct {
	cfg     Config
	session *client.Session
	tables  []table
	groups  []group
	step    uint64 // current step, from 1
	geo     *geo   // nil: the servers' rules update parameters

	batches [2]batch // one in use, one requested
	turn    int      // index of the batch in use
	pending pending
	caches  []*cache // caches by table; nil without a cache
	pass    pass
	used    [2]CacheUse // counts of training and of Peek
	pushed  []uint64
	clicks  clicks
	mean    mean
	sums    []rowSums           // by table; nil if a step has one batch
	held    []*exchange.Request // requests that wait for the norm of the step's gradient
	clipped bool                // the norm of this step's gradient is known
	current bool                // the dense parameters are of the current step
	waited  time.Duration
	err     error // error of a Start, for Wait
}

type table struct {
	dim    int
	group  int
	counts bool // the rule needs shows and clicks
}

// New returns a trainer. With Config.First the trainer sends the parameters' initial values.
func New(cfg Config) (*Trainer, error) {
	sc := &cfg.Schema
	if len(sc.Dense) != 1 || len(cfg.Lookups) != len(sc.Sparse) || len(cfg.Values) != sc.Dense[0].Len {
		return nil, fmt.Errorf("ps: trainer: %d arrays, %d tables with %d lookups, and %d values: want one array of as many values, and a lookup for each table", len(sc.Dense), len(sc.Sparse), len(cfg.Lookups), len(cfg.Values))
	}
	if cfg.GeoSteps < 0 || cfg.GeoSteps > 0 && cfg.Copies < 1 {
		return nil, fmt.Errorf("ps: trainer: %d copies exchanged every %d steps: want at least 1 and 0", cfg.Copies, cfg.GeoSteps)
	}
	if cfg.Batches < 0 || cfg.Batches > 1 && cfg.GeoSteps > 0 {
		return nil, fmt.Errorf("ps: trainer: %d batches in a step, copies exchanged every %d: want at least 0, and 1 with copies", cfg.Batches, cfg.GeoSteps)
	}
	if cfg.ClipNorm > 0 && cfg.GeoSteps > 0 {
		return nil, fmt.Errorf("ps: trainer: norm limited to %v with copies, which push no gradients: want 0", cfg.ClipNorm)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 15 * time.Minute
	}
	t := &Trainer{mean: mean{factor: batchShare(cfg.Batches), kernels: simd.Host()}, cfg: cfg, session: cfg.Client.Session(cfg.Session), step: 1, groups: groups(cfg.Lookups), tables: make([]table, len(sc.Sparse))}
	for i, g := range t.groups {
		for _, k := range g.tables {
			t.tables[k] = table{sc.Sparse[k].Dim, i, sc.Sparse[k].Counts() > 0}
			if cfg.ClipNorm > 0 && t.tables[k].counts {
				return nil, fmt.Errorf("ps: trainer: rule %s of table %q divides gradients by counts of all trainers: their norm cannot be limited to %v", sc.Sparse[k].Rule.Name, sc.Sparse[k].Name, cfg.ClipNorm)
			}
			if cfg.GeoSteps > 0 && t.tables[k].counts {
				return nil, fmt.Errorf("ps: trainer: rule %s of table %q counts on the servers: copies that trainers move cannot", sc.Sparse[k].Rule.Name, sc.Sparse[k].Name)
			}
		}
	}
	if cfg.Batches > 1 || cfg.ClipNorm > 0 {
		t.sums = make([]rowSums, len(t.tables))
	}
	for i := range t.batches {
		t.batches[i] = batch{parts: make([]part, len(t.groups)), rows: make([][]float32, len(t.tables)), misses: make([]cacheMisses, len(t.tables))}
	}
	var err error
	if t.caches, err = newCaches(cfg); err != nil {
		return nil, err
	}
	if cfg.GeoSteps > 0 {
		if t.geo, err = newGeo(cfg, t.groups); err != nil {
			return nil, err
		}
	}
	if cfg.First {
		if err := t.session.SetDense(array, cfg.Values); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// PushRows updates rows of a table from the last Fetch by gradients: row i of grads is for its row
// at[i]; rows must be distinct. With several batches in a step, End sends the sums over them. For
// tables with counts use PushClicks.
func (t *Trainer) PushRows(table int, at []int32, grads []float32) error {
	if t.geo != nil {
		t.geo.tables[table].move(at, grads)
		return nil
	}
	return t.push(table, t.keysOf(table, at), grads)
}

// keysOf returns the keys of a table's rows of the last Fetch, valid until the next call.
func (t *Trainer) keysOf(table int, at []int32) []uint64 {
	keys := t.batches[t.turn].parts[t.tables[table].group].unique.keys
	t.pushed = t.pushed[:0]
	for _, i := range at {
		t.pushed = append(t.pushed, keys[i])
	}
	return t.pushed
}

// Start sends a bucket's gradients, see exchange.Reducer: as they are in the client's encoding of
// dense values, or coded or selected by the request. Servers add and apply them; no sum returns.
func (t *Trainer) Start(op *exchange.Request) {
	if t.cfg.ClipNorm > 0 && !t.clipped {
		t.held = append(t.held, op)
		return
	}
	if t.err != nil {
		return
	}
	op.Sent = exchange.Result{Algorithm: algorithm, Bytes: 4 * int64(len(op.X)), Entries: len(op.X), Dense: true}
	code := op.Code
	if code == nil {
		code = compress.FP32{}
	}
	switch {
	case op.Sparse != nil:
		t.mean.values = append(t.mean.values[:0], op.Sparse.Value...)
		s := compress.Sparse{Len: op.Sparse.Len, Index: op.Sparse.Index, Value: t.mean.of(t.mean.values)}
		op.Sent.Entries, op.Sent.Dense = s.Count(), false
		op.Sent.Bytes, t.err = t.session.PushCoded(array, t.step, op.Lo, code, nil, &s)
	case code.Code() != compress.CodeFP32:
		op.Sent.Bytes, t.err = t.session.PushCoded(array, t.step, op.Lo, code, t.mean.of(op.X), nil)
	default:
		t.err = t.session.PushDense(array, t.step, op.Lo, t.mean.of(op.X))
	}
	if v := (*compress.ValueError)(nil); errors.As(t.err, &v) {
		t.err = &exchange.ValueError{At: op.Lo + v.Index, Value: v.Value, Code: v.Code}
	}
}

// Wait sends the requests held back for ClipNorm, and returns: a push has no result before a Fetch.
func (t *Trainer) Wait(*exchange.Request) (time.Time, error) {
	t.clip()
	return time.Now(), t.err
}

// Close frees the memory of copies. Leave ends the connections.
func (t *Trainer) Close() error {
	if t.geo == nil {
		return nil
	}
	return t.geo.close()
}

// SetRate sets the learning rate of PushRows for copies of rows; no effect without copies: see End.
func (t *Trainer) SetRate(rate float64) {
	if t.geo != nil {
		t.geo.setRate(rate)
	}
}

// End ends the step. rate is the servers' learning rate from the next step.
func (t *Trainer) End(rate float64) error {
	if t.exchanges() {
		if err := t.PushDeltas(); err != nil {
			return err
		}
	}
	t.clip()
	if t.err != nil {
		return t.err
	}
	if err := t.pushSums(); err != nil {
		return err
	}
	if err := t.session.Clock(t.step, rate); err != nil {
		return err
	}
	t.step++
	t.current, t.clipped, t.mean.factor = false, false, batchShare(t.cfg.Batches)
	t.pass.moved()
	if t.geo != nil && (!t.geo.stale || t.pending.values != nil) {
		return nil
	}
	if err := t.awaitValues(); err != nil { // unused by a step without a Fetch
		return err
	}
	return t.askDense()
}

// exchanges reports whether copies are exchanged at the end of the current step.
func (t *Trainer) exchanges() bool {
	return t.geo != nil && (t.cfg.Done+t.step)%uint64(t.cfg.GeoSteps) == 0
}

// PushDeltas sends the changes of copies since their last exchange. PullDense must follow, or a
// Fetch. Without copies it has no effect. It is called between steps.
func (t *Trainer) PushDeltas() error {
	if t.geo == nil {
		return nil
	}
	return t.geo.pushDeltas(t.session, t.step, t.cfg.Values)
}

// PullDense loads the dense parameters after all steps until now. For copies PushDeltas must
// precede it.
func (t *Trainer) PullDense() error {
	t.current = false
	t.pass.moved()
	if err := t.await(); err != nil { // an earlier request may lack other trainers' last steps
		return err
	}
	if err := t.askDense(); err != nil {
		return err
	}
	return t.await()
}

// Waited returns the waiting time for rows and values since its last call.
func (t *Trainer) Waited() time.Duration {
	d := t.waited
	t.waited = 0
	return d
}

// Each calls do with all rows of a table that is looked up by ids, in order and in batches:
// untouched rows have initial values. It creates no rows.
func (t *Trainer) Each(table int, do func(rows []float32) error) error {
	const some = 16 << 10
	dim, most := t.tables[table].dim, t.cfg.Lookups[table].Rows
	keys := make([]uint64, 0, some)
	dst := make([]float32, some*dim)
	for at := 0; at < most; at += some {
		keys = keys[:0]
		for k := at; k < min(at+some, most); k++ {
			keys = append(keys, uint64(k))
		}
		rows := dst[:len(keys)*dim]
		p, err := t.session.PeekRows(table, t.step, keys, rows)
		if err == nil {
			err = p.Wait()
		}
		if err == nil {
			err = do(rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Leave reports the trainer's end to the servers, waits until they have all changes, and ends the
// connections.
func (t *Trainer) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	return t.cfg.Client.Leave(ctx)
}

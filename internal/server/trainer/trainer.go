// Package trainer is a rank's side of a model whose parameters lie on servers. Before a
// pass it fetches the dense parameters and the rows that the batch names, during backward
// it sends gradients as they become final, and at the end of a step it says so.
//
//	t, err := trainer.New(trainer.Config{Client: c, Schema: s, Values: params.Values()})
//	for … {
//		err = t.Fetch(batch)               // its ids and keys
//		at, rows := t.Rows(table)          // the model looks up at in rows
//		err = t.Ask(next)                  // which travels meanwhile
//		…                                  // forward and backward; distopt gives buckets to t, an exchange.Reducer
//		err = t.PushRows(table, at, grads) // at as Rows has it
//		err = t.End(rate)
//	}
//	err = t.Leave(ctx)
//
// What a pull sees of other trainers' steps is the servers' consistency. Rows that were asked for
// ahead may lack the trainer's own last step as well, except in bsp and in ssp without staleness,
// where servers answer when they have it. Dense values are asked for at the end of a step and have it: training
// without it does much worse at first.
//
// # Rows of earlier batches
//
// With [Config.Cache] the trainer keeps rows that it has pulled, and uses them again as long as the servers' consistency allows.
//
// # Geo
//
// With [Config.GeoSteps] the trainer has copies of its own: the dense parameters, which its
// caller's optimizer moves, and the rows it has touched, which PushRows moves by the schema's rule.
// After so many steps it sends by how much they have moved, divided by [Config.Copies], takes the
// servers' dense values, and forgets the rows: it pulls them again when a batch names them. The
// rows' optimizer state stays: 4 bytes for each of its values and about 17 for each row that the
// trainer has ever touched.
//
// With one trainer a value is after an exchange what its copy was before: to the last bit where it has at
// most doubled or halved since the one before, else but for the roundings of difference and sum.
package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/exchange"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
)

// algorithm is the name of what a Trainer does, in exchange.Result.
const algorithm = "push"

// array is the place of the dense parameters, all in one, in the schema.
const array = 0

// Config says what the parameters are.
type Config struct {
	// Client is connected to the servers. Trainers that share it, each with a session, end
	// together: Leave is for all of them.
	Client *client.Client
	// Session is the trainer's own, from 0.
	Session int
	// Schema has one dense array, and any tables.
	Schema schema.Schema
	// Lookups says what each table is looked up by.
	Lookups []Lookup
	// Values is the arena of dense parameters. Fetch and PullDense write to it, and what End asks
	// for until then.
	Values []float32
	// First says that this trainer gives the servers the first values: one of them does.
	First bool
	// GeoSteps, above 0, is after how many steps copies are exchanged, and Copies how many
	// there are: of all trainers' sessions together.
	GeoSteps, Copies int
	// Cache says which rows of earlier batches are used again. It is not for copies, which are such rows.
	Cache CacheConfig
	// Done is how many steps an earlier trainer has done whose place this one takes: exchanges of copies go on
	// in their turn.
	Done uint64
	// Timeout bounds waits for the servers; 0: 15 min.
	Timeout time.Duration
}

// Trainer moves parameters and gradients between a rank and its servers. It is used by
// one goroutine.
type Trainer struct {
	cfg     Config
	session *client.Session
	tables  []table
	groups  []group
	step    uint64 // under way, from 1
	geo     *geo   // nil: the servers' rules move parameters

	batches [2]batch // one is used, the other asked for
	turn    int      // the one in use
	pending pending
	caches  []*cache // by table; nil: there are none
	pass    pass
	used    [2]CacheUse // while training, and of Peek
	pushed  []uint64
	clicks  clicks
	waited  time.Duration
	err     error // of a Start, for Wait
}

// table is a sparse table of the schema.
type table struct {
	dim    int
	group  int
	counts bool // its rule wants shows and clicks
}

// New makes a trainer. The first one sends the values that the parameters begin with.
func New(cfg Config) (*Trainer, error) {
	sc := &cfg.Schema
	if len(sc.Dense) != 1 || len(cfg.Lookups) != len(sc.Sparse) || len(cfg.Values) != sc.Dense[0].Len {
		return nil, fmt.Errorf("ps: trainer: %d arrays, %d tables with %d lookups, and %d values: want one array of as many values, and a lookup for each table", len(sc.Dense), len(sc.Sparse), len(cfg.Lookups), len(cfg.Values))
	}
	if cfg.GeoSteps < 0 || cfg.GeoSteps > 0 && cfg.Copies < 1 {
		return nil, fmt.Errorf("ps: trainer: %d copies exchanged every %d steps: want at least 1 and 0", cfg.Copies, cfg.GeoSteps)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 15 * time.Minute
	}
	t := &Trainer{cfg: cfg, session: cfg.Client.Session(cfg.Session), step: 1, groups: groups(cfg.Lookups), tables: make([]table, len(sc.Sparse))}
	for i, g := range t.groups {
		for _, k := range g.tables {
			t.tables[k] = table{sc.Sparse[k].Dim, i, sc.Sparse[k].Counts() > 0}
			if cfg.GeoSteps > 0 && t.tables[k].counts {
				return nil, fmt.Errorf("ps: trainer: rule %s of table %q counts on the servers: copies that trainers move cannot", sc.Sparse[k].Rule.Name, sc.Sparse[k].Name)
			}
		}
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

// PushRows moves rows of a table, those of the last Fetch, by gradients: row i of grads is that of its row at[i],
// each once. Of tables that want counts PushClicks does.
func (t *Trainer) PushRows(table int, at []int32, grads []float32) error {
	if t.geo != nil {
		t.geo.tables[table].move(at, grads)
		return nil
	}
	return t.session.PushRows(table, t.step, t.keysOf(table, at), grads)
}

// keysOf are the keys of a table's rows of the last Fetch, good until the next call.
func (t *Trainer) keysOf(table int, at []int32) []uint64 {
	keys := t.batches[t.turn].parts[t.tables[table].group].unique.keys
	t.pushed = t.pushed[:0]
	for _, i := range at {
		t.pushed = append(t.pushed, keys[i])
	}
	return t.pushed
}

// Start sends a bucket's gradients, see exchange.Reducer. Only whole ones can be sent.
func (t *Trainer) Start(op *exchange.Request) {
	if t.err != nil {
		return
	}
	if op.Sparse != nil || op.Code != nil {
		t.err = fmt.Errorf("ps: trainer: step %d: values at %d are selected or coded: servers of parameters take whole gradients", t.step, op.Lo)
		return
	}
	t.err = t.session.PushDense(array, t.step, op.Lo, op.X)
	op.Sent = exchange.Result{Algorithm: algorithm, Bytes: 4 * int64(len(op.X)), Entries: len(op.X), Dense: true}
}

// Wait returns at once: nothing comes back before the next Fetch.
func (t *Trainer) Wait(*exchange.Request) (time.Time, error) { return time.Now(), t.err }

// Close gives the memory of copies back. It does not end the connections: see Leave.
func (t *Trainer) Close() error {
	if t.geo == nil {
		return nil
	}
	return t.geo.close()
}

// SetRate sets the learning rate by which PushRows moves copies of rows. Without copies it has no
// effect: see End.
func (t *Trainer) SetRate(rate float64) {
	if t.geo != nil {
		t.geo.setRate(rate)
	}
}

// End ends the step. rate is the servers' learning rate from the next one on.
func (t *Trainer) End(rate float64) error {
	if t.exchanges() {
		if err := t.PushDeltas(); err != nil {
			return err
		}
	}
	if err := t.session.Clock(t.step, rate); err != nil {
		return err
	}
	t.step++
	t.pass.moved()
	if t.geo != nil && (!t.geo.stale || t.pending.values != nil) {
		return nil
	}
	if err := t.awaitValues(); err != nil { // which a step without a Fetch did not use
		return err
	}
	return t.askDense()
}

// exchanges tells whether copies are exchanged at the end of the step under way.
func (t *Trainer) exchanges() bool {
	return t.geo != nil && (t.cfg.Done+t.step)%uint64(t.cfg.GeoSteps) == 0
}

// PushDeltas sends by how much copies have moved since they were last exchanged. PullDense must
// follow, or a Fetch. Without copies nothing happens. It is called between steps.
func (t *Trainer) PushDeltas() error {
	if t.geo == nil {
		return nil
	}
	return t.geo.pushDeltas(t.session, t.step, t.cfg.Values)
}

// PullDense brings the dense parameters to what they are after the steps so far. Copies have been
// shared before.
func (t *Trainer) PullDense() error {
	t.pass.moved()
	if err := t.await(); err != nil { // what was asked for may lack others' last steps
		return err
	}
	if err := t.askDense(); err != nil {
		return err
	}
	return t.await()
}

// Waited is how long the trainer has waited for rows and values since it was last asked.
func (t *Trainer) Waited() time.Duration {
	d := t.waited
	t.waited = 0
	return d
}

// Each calls do with all rows by number of a table that is looked up by ids, some at a time: those never touched
// have what they begin with. No rows are made.
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

// Leave tells the servers that this trainer is done, waits until they have everything, and
// ends the connections.
func (t *Trainer) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	return t.cfg.Client.Leave(ctx)
}

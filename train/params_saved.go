package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/bytesview"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/model"
	"github.com/ringo-ml/ringo/nn"
)

// ServerCheckpoint reads the values that the servers of a job saved, without a server. A Job of
// package ps/offline is one.
type ServerCheckpoint interface {
	// Array reads a whole array into values, which has its length.
	Array(ctx context.Context, array int, values []float32) error
	// Each calls do with a table's rows, keys and weights, in pieces and in no order, valid during
	// the call.
	Each(ctx context.Context, table int, do func(keys []uint64, weights []float32) error) error
}

func (s Servers) recall(file string, step int64, part ServersPart) (ServerCheckpoint, error) {
	if s.OpenServerCheckpoint == nil {
		return nil, fmt.Errorf("%s: the parameters are in the checkpoints of the run's servers: set Servers.OpenServerCheckpoint, for instance to offline.At of package ps/offline", file)
	}
	return s.OpenServerCheckpoint(AttemptDir(filepath.Dir(file), part.Start), uint64(step), part.Numbers)
}

// checkpointParams are parameters from the servers' parts of a checkpoint, for use without servers
// and without training: each rank reads all parts. Cost: memory for the weights of all saved rows,
// and about 30 bytes for each. Rows that were never saved get their initial values, as on servers,
// for one batch.
type checkpointParams struct {
	replicatedParams
	ctx   context.Context
	saved checkpointInfo

	tables []recalledTable
}

type recalledTable struct {
	*nn.Table
	at map[uint64]int32 // places of weights by key or id
	// weights has the saved rows, then rows of the current batch that were never saved.
	weights []float32
	mapped  []int32
	initial rowinit.Init
}

func (p *checkpointParams) layOut(ps *nn.Params) { ps.TablesElsewhere() }

func (p *checkpointParams) begin(cfg Config, _ beginning) error {
	r := p.replica
	from, err := cfg.Servers.recall(p.saved.File, p.saved.Step, *p.saved.Servers)
	if err == nil {
		err = errors.Join(from.Array(p.ctx, 0, r.Params.Values()), p.take(from))
	}
	if err != nil {
		return fmt.Errorf("checkpoints of the servers for %s: %w", p.saved.File, err)
	}
	if p.rule, err = cfg.newRule(r.Params, nil); err != nil {
		return err
	}
	return r.optimize(cfg, r.job.Group(), p.rule, nil)
}

func (p *checkpointParams) take(from ServerCheckpoint) (err error) {
	for i, table := range p.replica.Params.Tables() {
		t := recalledTable{Table: table, at: map[uint64]int32{}}
		err = from.Each(p.ctx, i, func(keys []uint64, weights []float32) error {
			if err := fits(table, keys, weights); err != nil {
				return err
			}
			for i, key := range keys {
				t.at[key] = int32(len(t.at))
				t.weights = append(t.weights, weights[i*t.Dim:][:t.Dim]...)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if t.initial, err = t.Init.Init(); err != nil {
			return err
		}
		p.tables = append(p.tables, t)
	}
	return nil
}

func fits(t *nn.Table, keys []uint64, weights []float32) error {
	if len(weights) != len(keys)*t.Dim {
		return fmt.Errorf("table %s: %d rows have %d values, want %d each", t.Name, len(keys), len(weights), t.Dim)
	}
	if i := slices.IndexFunc(keys, func(k uint64) bool { return k >= uint64(t.Rows) }); i >= 0 && t.Slots == nil {
		return fmt.Errorf("table %s: row %d: the model has %d rows", t.Name, keys[i], t.Rows)
	}
	return nil
}

func (p *checkpointParams) fetch(b model.Batch, _ bool) (model.Batch, error) {
	ids := b.IDs
	for i := range p.tables {
		t := &p.tables[i]
		t.weights = t.weights[:len(t.at)*t.Dim]
		if slots := t.Slots; slots != nil {
			t.findKeys(b.Bags, slots)
		} else if len(ids) > 0 {
			if err := t.findIDs(ids); err != nil {
				return b, err
			}
			b.IDs = t.mapped
		}
	}
	return b, nil
}

func (t *recalledTable) findKeys(b nn.Bags, slots []int) {
	t.mapped = bytesview.Sized(t.mapped, len(b.Keys))
	for slot, most := range slots {
		lo, hi := b.Offsets[slot*b.N], b.Offsets[(slot+1)*b.N]
		for i := lo; i < hi && most != 0; i++ {
			t.mapped[i] = t.row(b.Keys[i])
		}
	}
	t.Hold(t.weights, t.mapped)
}

func (t *recalledTable) findIDs(ids []int32) error {
	t.mapped = t.mapped[:0]
	for _, id := range ids {
		if id < 0 || int(id) >= t.Rows {
			return fmt.Errorf("table %s: id %d: want one below %d", t.Name, id, t.Rows)
		}
		t.mapped = append(t.mapped, t.row(uint64(id)))
	}
	t.Hold(t.weights, nil)
	return nil
}

// row returns the index in weights of a key's row, which it adds if it was never saved.
func (t *recalledTable) row(key uint64) int32 {
	if at, ok := t.at[key]; ok {
		return at
	}
	at := len(t.weights) // once for each use: a batch has few
	t.weights = slices.Grow(t.weights, t.Dim)[:at+t.Dim]
	t.initial(t.weights[at:], rowinit.Row(t.Stream(), key))
	return int32(at / t.Dim)
}

// arrays are the values that only the checkpoint's file has, and not the servers.
func (p *checkpointParams) arrays() []checkpoint.Array {
	return (&serverParams{replica: p.replica}).arrays()
}

package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/checkpoint"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/nn"
)

// Recalled is what the servers of a job have saved, read without a server: a Job of package ps/saved is one.
type Recalled interface {
	// Array reads an array, all of it, into values: as many as it has.
	Array(ctx context.Context, array int, values []float32) error
	// Each hands out a table's rows, keys and weights, some at a time and in no order, valid during the call.
	Each(ctx context.Context, table int, do func(keys []uint64, weights []float32) error) error
}

// recall opens what servers have saved with a checkpoint's file.
func (s Servers) recall(file string, step int64, part ServersPart) (Recalled, error) {
	if s.Recall == nil {
		return nil, fmt.Errorf("%s: the parameters of its run lie in what its servers have saved, which Servers.Recall would open: a program sets it to saved.At of package ps/saved", file)
	}
	return s.Recall(StartDir(filepath.Dir(file), part.Start), uint64(step), part.Numbers)
}

// recalled are parameters as servers have saved them, to be used without servers: each rank reads the parts of all. It trains nothing.
// Its cost is the memory of the weights of all rows that the servers had, and some 30 bytes for each; a batch copies no row but those
// that the servers never had, which have their first values, as on servers.
type recalled struct {
	replicated
	ctx   context.Context
	saved saved

	at map[int32]int32 // of the table, by id: where its weights are
	// weights are those of rows, with room for a batch's rows that were never saved.
	weights []float32
	mapped  []int32
	initial rowinit.Init
}

func (p *recalled) place(ps *nn.Params) { ps.TablesElsewhere() }

func (p *recalled) begin(cfg Config, _ beginning) error {
	r := p.replica
	if n := len(r.Params.Tables()); n > 1 {
		return fmt.Errorf("model %s has %d tables: servers save one", cfg.name(), n)
	}
	from, err := cfg.Servers.recall(p.saved.File, p.saved.Step, *p.saved.Servers)
	if err == nil {
		err = errors.Join(from.Array(p.ctx, 0, r.Params.Values()), p.take(from))
	}
	if err != nil {
		return fmt.Errorf("what servers have saved for %s: %w", p.saved.File, err)
	}
	if p.rule, err = cfg.newRule(r.Params); err != nil {
		return err
	}
	return r.optimize(cfg, r.job.Group(), p.rule, nil)
}

// take reads the table's rows.
func (p *recalled) take(from Recalled) (err error) {
	for _, t := range p.replica.Params.Tables() {
		p.at = map[int32]int32{}
		err = from.Each(p.ctx, 0, func(keys []uint64, weights []float32) error {
			if err := fits(t, keys, weights); err != nil {
				return err
			}
			for i, key := range keys {
				p.at[int32(key)] = int32(len(p.at))
				p.weights = append(p.weights, weights[i*t.Dim:][:t.Dim]...)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if p.initial, err = t.Init.Init(); err != nil {
			return err
		}
	}
	return nil
}

// fits reports rows that are of another table.
func fits(t *nn.Table, keys []uint64, weights []float32) error {
	if len(weights) != len(keys)*t.Dim {
		return fmt.Errorf("table %s: %d rows have %d values, want %d each", t.Name, len(keys), len(weights), t.Dim)
	}
	if i := slices.IndexFunc(keys, func(k uint64) bool { return k >= uint64(t.Rows) }); i >= 0 {
		return fmt.Errorf("table %s: there is a row %d, and the model knows %d", t.Name, keys[i], t.Rows)
	}
	return nil
}

// fetch puts rows that were never saved behind the others, for this batch.
func (p *recalled) fetch(ids []int32, _ bool) ([]int32, error) {
	if p.at == nil || len(ids) == 0 {
		return ids, nil
	}
	t := p.replica.Params.Tables()[0]
	saved := len(p.at) * t.Dim
	p.weights, p.mapped = p.weights[:saved], p.mapped[:0]
	for _, id := range ids {
		at, ok := p.at[id]
		if !ok {
			if id < 0 || int(id) >= t.Rows {
				return nil, fmt.Errorf("table %s: id %d: want one below %d", t.Name, id, t.Rows)
			}
			at = int32(len(p.weights) / t.Dim) // again for each that names it: a batch's are few
			p.weights = slices.Grow(p.weights, t.Dim)[:len(p.weights)+t.Dim]
			p.initial(p.weights[len(p.weights)-t.Dim:], rowinit.Row(t.Stream(), uint64(id)))
		}
		p.mapped = append(p.mapped, at)
	}
	t.Hold(p.weights)
	return p.mapped, nil
}

// arrays are those that servers do not know, which the file has.
func (p *recalled) arrays() []checkpoint.Array { return (&served{replica: p.replica}).arrays() }

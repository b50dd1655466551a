package engine

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/ps/schema"
)

// Pushes with counts that no batch has, or without any, are refused whole and may be made right under the same
// number; in geo, where trainers move rows, such tables are refused.
func TestCountsRefused(t *testing.T) {
	s := schema.Schema{Sparse: []schema.Sparse{{Name: "clicks", Dim: 2, Rule: schema.Rule{Name: "click", LR: 1}}}}
	for _, mode := range []Mode{BSP, Async} {
		e := open(t, Config{Trainers: 1, Mode: mode, Durability: None}, s)
		for _, c := range []struct {
			values []float32
			want   string
		}{
			{[]float32{1, 1, 2, 1, 5, 5, 1, 2}, `table "clicks": row 1 of the push has 1 shows and 2 clicks`},
			{[]float32{1, 1, 2, 1}, `table "clicks": 4 values for 2 rows of 4`},
		} {
			if _, err := e.PushRows(0, 1, 0, 1, []uint64{3, 4}, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", mode, err, c.want)
			}
		}
		if e.Last(0) != 0 {
			t.Errorf("%s: change %d was taken", mode, e.Last(0))
		}
		_, err := e.PushRows(0, 1, 0, 1, []uint64{3, 4}, []float32{1, 1, 2, 1, 5, 5, 10, 2})
		must(t, err)
		_, err = e.Clock(0, 2, 1, -1)
		must(t, err)
		got := make([]float32, 4)
		must(t, e.PullRows(anyPull, 0, []uint64{3, 4}, got))
		if !same(got, []float32{-0.5, 0, -0.5, 0}) { // the gradient of each show, by the first step of row-wise adagrad
			t.Errorf("%s: rows %v", mode, got)
		}
	}
	if _, err := Open(Config{Trainers: 1, Mode: Geo, Durability: None}, s); err == nil || !strings.Contains(err.Error(), `table "clicks": rule click counts on the servers`) || !strings.Contains(err.Error(), "use bsp, async or ssp") {
		t.Errorf("geo: %v", err)
	}
}

// watched is a rule that records the statistics of the row that it changed last.
type watched struct {
	optim.CountedRule
	clicks []float32
}

func (w *watched) UpdateCounted(data []float32, state [][]float32, dim int, ids []int32, grads []float32, gradScale float32, due []int32) []int32 {
	due = w.CountedRule.UpdateCounted(data, state, dim, ids, grads, gradScale, due)
	w.clicks = slices.Clone(state[1][int(ids[0])*optim.ClickStatsLen:][:optim.ClickStatsLen])
	return due
}

// Counts come back from checkpoint and log, and a push that was acknowledged before the server ended is not
// counted again.
func TestCountsOverRestarts(t *testing.T) {
	s := schema.Schema{Sparse: []schema.Sparse{{Name: "clicks", Dim: 1, Rule: schema.Rule{Name: "click", LR: 1}}}}
	rule := &watched{}
	c := Config{Job: "j", Trainers: 1, Mode: Async, Durability: WAL, Dir: t.TempDir(), Make: func(i int, c rows.Config) (Table, error) {
		rule = &watched{CountedRule: c.Rule.(optim.CountedRule)}
		c.Rule = rule
		return newShard(i, c)
	}}
	e := open(t, c, s)
	push := func(e *Engine, seq uint64) {
		ticket, err := e.PushRows(0, seq, 0, 1, []uint64{3}, []float32{1, 2, 1})
		must(t, err)
		must(t, e.Durable(ticket))
	}
	push(e, 1)
	_, err := e.Save(context.Background(), false)
	must(t, err)
	push(e, 2)
	want := rule.clicks
	must(t, e.Close())
	e = open(t, c, s)
	push(e, 2)
	if got := rule.clicks; !same(got, want) || got[0] != 4 || got[1] != 2 {
		t.Errorf("the row is %v, want %v", got, want)
	}
}

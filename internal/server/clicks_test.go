package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/ps/client"
	"github.com/ringo-ml/ringo/ps/schema"
	"github.com/ringo-ml/ringo/transport"
)

const clickDim = 3

// clickTable has a policy whose scores have no roundings.
var clickTable = schema.Schema{
	Sparse: []schema.Sparse{{Name: "ads", Dim: clickDim, Init: schema.Init{Name: "uniform", Value: 0.5}, Rule: schema.Rule{
		Name: "click", LR: 0.02,
		Settings: map[string]float64{"rate": 5, "initial": 2, "bound": 0.75, "no_click": 0.25, "click": 1, "extend_at": 5, "decay": 0.5, "delete_below": 0.7, "delete_after": 2},
	}}},
	Dense: []schema.Dense{{Name: "dense", Len: 1, Rule: schema.Rule{Name: "sgd", LR: 1}}},
}

// clickRow is a row by the definition of the rule.
type clickRow struct {
	w                   [clickDim]float64
	sum, more           float64 // of the first weight, and of the others
	extended            bool
	show, click, unseen float64
}

func (r *clickRow) score() float64 { return (r.show-r.click)*0.25 + r.click }

// clickTwin is a table as a map.
type clickTwin struct {
	rows              map[uint64]*clickRow
	extended, deleted int
}

func initialClick(key uint64) (w [clickDim]float64) {
	row := make([]float32, clickDim)
	rowinit.Uniform(0.5)(row, rowinit.Row(rowinit.Table(0, "ads"), key))
	for i, v := range row {
		w[i] = float64(v)
	}
	return w
}

func (c *clickTwin) push(key uint64, push []float32) {
	r := c.rows[key]
	if r == nil {
		r = &clickRow{w: [clickDim]float64{initialClick(key)[0]}}
		c.rows[key] = r
	}
	show, click := float64(push[clickDim]), float64(push[clickDim+1])
	move := func(w []float64, g []float32, sum *float64) {
		squares := 0.0
		for j := range w {
			d := float64(g[j]) / show
			w[j] = min(0.75, max(-0.75, w[j]-0.02*5*d*math.Sqrt(2/(2+*sum))))
			squares += d * d
		}
		*sum += squares / float64(len(w))
	}
	move(r.w[:1], push[:1], &r.sum)
	if r.extended {
		move(r.w[1:], push[1:clickDim], &r.more)
	}
	r.show, r.click, r.unseen = r.show+show, r.click+click, 0
	if !r.extended && r.score() >= 5 {
		initial := initialClick(key)
		copy(r.w[1:], initial[1:])
		r.extended = true
		c.extended++
	}
}

// day returns how many rows go.
func (c *clickTwin) day(days int) (gone int) {
	for key, r := range c.rows {
		for range days {
			r.show, r.click, r.unseen = r.show/2, r.click/2, r.unseen+1
		}
		if r.score() < 0.7 || r.unseen > 2 {
			delete(c.rows, key)
			gone++
		}
	}
	c.deleted += gone
	return gone
}

// compare wants the rows of keys to be those of the map, and all others as they begin.
func (c *clickTwin) compare(t *testing.T, cl *client.Client, step uint64, keys int) {
	t.Helper()
	all, dst := make([]uint64, keys), make([]float32, keys*clickDim)
	for i := range all {
		all[i] = uint64(i)
	}
	p, err := cl.Session(0).PeekRows(0, step, all, dst)
	must(t, errors.Join(err, p.Wait()))
	for i, key := range all {
		want := [clickDim]float64{initialClick(key)[0]}
		if r := c.rows[key]; r != nil {
			want = r.w
		}
		for j, w := range want {
			if got := float64(dst[i*clickDim+j]); math.Abs(got-w) > 1e-5 {
				t.Fatalf("step %d: weight %d of key %d is %v, want %v", step, j, key, got, w)
			}
		}
	}
}

// Over days of shows and clicks a server has the rows that a map has, by the real client: whatever tier
// they are in, and after it was killed, with what the log has since the checkpoint that a day ends with.
func TestClicksAgainstMap(t *testing.T) {
	leakcheck.Check(t)
	const keys, batch, steps = 14_000, 1500, 8
	ticket, dir := transport.NewTicket(), t.TempDir()
	begin := func() (*running, *client.Client) {
		r := run(t, ticket, func(c *Config) { c.Durability, c.Dir, c.MemoryBytes = engine.WAL, dir, 700<<10 })
		c, err := client.Dial(context.Background(), client.Config{Servers: []string{r.addr}, Ticket: ticket, Version: "1", Trainers: 1, Schema: clickTable})
		must(t, err)
		return r, c
	}
	r, c := begin()
	must(t, c.Session(0).SetDense(0, []float32{0}))
	twin := &clickTwin{rows: map[uint64]*clickRow{}}
	random := rand.New(rand.NewPCG(1, 2))
	step, stored := uint64(0), 0.0
	for day := range 5 {
		for range steps {
			step++
			most := keys - day*2000 // some keys are not seen any more
			var pushed []uint64
			var values []float32
			for _, key := range random.Perm(most)[:batch] {
				pushed = append(pushed, uint64(key))
				for range clickDim {
					values = append(values, float32(random.NormFloat64()))
				}
				show := 1 + random.IntN(6)
				values = append(values, float32(show), float32(random.IntN(show+1)/2))
				twin.push(uint64(key), values[len(values)-clickDim-2:])
			}
			must(t, c.Session(0).PushRows(0, step, pushed, values))
			must(t, c.Session(0).Clock(step, -1))
		}
		must(t, c.Flush(context.Background()))
		twin.compare(t, c, step+1, keys)
		stored = max(stored, r.table(t)["stored_rows"].(float64))
		if day%2 == 1 { // what was pushed since the last day is in the log alone
			var killed string
			eventually(t, "a copy", func() bool { // not while the store removes a file
				killed = t.TempDir()
				err := os.CopyFS(killed, os.DirFS(dir))
				if !errors.Is(err, fs.ErrNotExist) {
					must(t, err)
				}
				return err == nil
			})
			r.stop()
			<-r.end
			_ = c.Close()
			dir = killed
			r, c = begin()
			twin.compare(t, c, step+1, keys)
		}
		days := 1 + day%2
		if _, out := r.ask(t, "POST", fmt.Sprintf("/shrink?days=%d", days)); out["deleted_rows"] != float64(twin.day(days)) {
			t.Fatalf("day %d: %v; the map has %d rows left", day, out, len(twin.rows))
		}
		twin.compare(t, c, step+1, keys)
		if f := r.table(t); f["rows"].(float64)+f["stored_rows"].(float64) != float64(len(twin.rows)) {
			t.Fatalf("day %d: %v, want %d rows", day, f, len(twin.rows))
		}
	}
	if stored < 1000 || twin.extended < 1000 || twin.deleted < 1000 {
		t.Errorf("%v rows on SSD, %d extended, %d deleted: all should occur", stored, twin.extended, twin.deleted)
	}
	must(t, errors.Join(c.Leave(context.Background()), <-r.end))
}

// Days that would do nothing to the tables are refused when these are known.
func TestDaysFit(t *testing.T) {
	both := schema.Schema{Sparse: append(append([]schema.Sparse{}, oneTable.Sparse...), clickTable.Sparse...)}
	for _, c := range []struct {
		schema schema.Schema
		every  time.Duration
		after  int
		want   bool
	}{
		{oneTable, 0, 0, true}, {oneTable, 1, 1, true}, {oneTable, 1, 0, false}, {oneTable, 0, 1, true},
		{clickTable, 0, 0, true}, {clickTable, 1, 0, true}, {clickTable, 1, 1, false}, {clickTable, 0, 1, false},
		{both, 1, 0, true}, {both, 1, 1, true},
	} {
		if err := (Config{ShrinkEvery: c.every, DeleteAfter: c.after}).daysFit(c.schema); (err == nil) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
	ticket := transport.NewTicket()
	r := run(t, ticket, func(c *Config) { c.DeleteAfter = 3 })
	_, err := client.Dial(context.Background(), client.Config{Servers: []string{r.addr}, Ticket: ticket, Version: "1", Trainers: 1, Schema: clickTable})
	if err == nil {
		t.Error("a server with days that do nothing")
	}
	if err := <-r.end; err == nil || !strings.Contains(err.Error(), "ps.delete-after-unseen-days 3 has no effect") || !strings.Contains(err.Error(), "delete_after") {
		t.Errorf("got %v", err)
	}
}

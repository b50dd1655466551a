package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/leakcheck"
	"github.com/ringo-ml/ringo/internal/server/engine"
	"github.com/ringo-ml/ringo/internal/server/rows"
	"github.com/ringo-ml/ringo/internal/server/tiers"
)

// looked is what a trainer saw: rows by id.
type looked map[int32][]float32

func (l *looked) take(ids, mapped []int32, rows []float32) {
	*l = looked{}
	for i, id := range ids {
		(*l)[id] = slices.Clone(rows[int(mapped[i])*rowDim:][:rowDim])
	}
}

// peeksOf is how often upkeep looks in an evaluation: some rows come again, others are new.
const peeksOf = 3

// upkeep trains and evaluates in bsp with a server that keeps rows on SSD, too, and does something to them at a moment of each step. It
// returns what the trainer saw in training and, look by look, in evaluations.
func upkeep(t *testing.T, cacheBytes int64, when string, do func(table engine.Table, step int) error) (trained, peeked []looked, use CacheUse) {
	t.Helper()
	sc := testSchema("adagrad", 0.1)
	ti, err := tiers.Open(tiers.Config{Dir: t.TempDir(), MemoryBytes: 1 << 20, DeleteAfter: 1, Deltas: true}, sc)
	must(t, err)
	var table engine.Table
	j := newJob(t, engine.Config{Mode: engine.BSP, Servers: 1, Trainers: 1, Make: func(i int, c rows.Config) (engine.Table, error) {
		table, err = ti.Make(i, c)
		return table, err
	}}, sc)
	tr := j.trainers(0, func(c *Config) { c.Cache.Bytes = cacheBytes })[0]
	for step := range 8 {
		at := func(moment string) {
			if moment == when {
				must(t, do(table, step))
			}
		}
		var saw looked
		batch := batchOf(step, 0)
		mapped, values, err := fetch(tr, batch)
		must(t, err)
		saw.take(batch, mapped, values)
		trained = append(trained, saw)
		at("between pull and push")
		ids := different(mapped)
		must(t, tr.PushRows(0, ids, slices.Repeat([]float32{float32(step%3) - 1.5}, rowDim*len(ids))))
		must(t, tr.End(-1))
		must(t, tr.cfg.Client.Flush(context.Background()))
		at("between push and peek")
		for i := range peeksOf {
			batch := append(batchOf(step, 0), batchOf(step+i, 1)...)
			mapped, values, err := peek(tr, batch)
			must(t, err)
			saw.take(batch, mapped, values)
			peeked = append(peeked, saw)
			if i == 0 {
				at("between peek and peek")
			}
		}
		at("between peek and pull")
	}
	_, use = tr.CacheUse()
	must(t, tr.Leave(context.Background()))
	j.seats[0].stop()
	must(t, ti.Close())
	return trained, peeked, use
}

// stays makes of what is seen without a cache what one keeps, where days pass after the first look of each evaluation: rows of that look
// stay as they are in later, where days pass behind the last. It returns how many would have moved.
func stays(peeked, later []looked) (moved int) {
	for look, saw := range peeked {
		for id := range peeked[look-look%peeksOf] {
			if row, again := saw[id]; again && !slices.Equal(row, later[look][id]) {
				saw[id] = later[look][id]
				moved++
			}
		}
	}
	return moved
}

// Whatever a server does to its rows between two calls, a trainer sees in bsp what it sees without a cache. Where days pass within an
// evaluation, a row that it has seen in it stays as it was.
func TestCacheWhileServersKeepUp(t *testing.T) {
	leakcheck.Check(t)
	saves := t.TempDir()
	saved := 0
	days := func(n int) func(engine.Table, int) error {
		return func(table engine.Table, _ int) error {
			_, err := table.Shrink(context.Background(), n)
			return err
		}
	}
	for _, c := range []struct {
		name  string
		moves bool
		do    func(table engine.Table, step int) error
	}{
		{"rows leave memory", false, func(table engine.Table, _ int) error {
			n, err := table.(interface{ Evict(int) (int, error) }).Evict(100)
			if err == nil && n == 0 {
				err = errors.New("none did")
			}
			return err
		}},
		{"rows are saved", false, func(table engine.Table, _ int) error {
			saved++
			_, err := table.Save(context.Background(), filepath.Join(saves, fmt.Sprint(saved)), "", 0)
			return err
		}},
		{"a day", true, days(1)},
		{"two days, and all rows go", true, days(2)},
	} {
		_, later, _ := upkeep(t, 0, "between peek and pull", c.do)
		for _, when := range []string{"between pull and push", "between push and peek", "between peek and peek", "between peek and pull"} {
			wantTrained, want, _ := upkeep(t, 0, when, c.do)
			if within := when == "between peek and peek"; within && (stays(want, later) > 0) != c.moves {
				t.Errorf("%s %s: whether rows move is not %t", c.name, when, c.moves)
			}
			trained, peeked, use := upkeep(t, 1<<20, when, c.do)
			same := func(a, b looked) bool { return maps.EqualFunc(a, b, slices.Equal[[]float32]) }
			if !slices.EqualFunc(trained, wantTrained, same) || !slices.EqualFunc(peeked, want, same) || use.Hits == 0 {
				t.Errorf("%s %s: other rows than without a cache, or none from it: %+v", c.name, when, use)
			}
		}
	}
}

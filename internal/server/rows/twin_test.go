package rows

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// twin is a table as a plain map.
type twin struct {
	t    *Table
	cfg  Config
	rows map[uint64]*twinRow
	seq  uint64 // pushes of session 0
}

type twinRow struct {
	values []float32
	usage  Usage
}

func (w *twin) initial(key uint64) []float32 {
	out := make([]float32, w.t.Width())
	w.cfg.Init(out[:w.cfg.Dim], rowinit.Row(rowinit.Table(w.cfg.Seed, w.cfg.Name), key))
	at := w.cfg.Dim
	for _, p := range w.t.Parts() {
		for range p.Width {
			out[at] = p.Initial
			at++
		}
	}
	return out
}

// row is the row of a key, made if create and admitted; nil if there is none.
func (w *twin) row(key uint64, create bool) *twinRow {
	r := w.rows[key]
	if r == nil && create && (w.cfg.Admit == nil || w.cfg.Admit(key, false)) {
		r = &twinRow{values: w.initial(key), usage: Usage{Last: w.t.Epoch()}}
		w.rows[key] = r
	}
	return r
}

func (w *twin) update(key uint64, grad []float32, scale float32) {
	r := w.rows[key]
	var state [][]float32
	at := w.cfg.Dim
	for _, p := range w.t.Parts() {
		state = append(state, r.values[at:at+p.Width])
		at += p.Width
	}
	w.cfg.Rule.UpdateRows(r.values[:w.cfg.Dim], state, w.cfg.Dim, []int32{0}, grad, scale)
	r.usage.Last, r.usage.Changed = w.t.Epoch(), true
}

func (w *twin) touch(r *twinRow) {
	r.usage = unpackUsage(touched(r.usage.pack(), uint32(w.t.Epoch())))
}

// check compares all rows.
func (w *twin) check(t *testing.T, what string) {
	t.Helper()
	if err := w.t.index.check(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	seen := map[uint64]bool{}
	walkAll(t, w.t, 7, func(r *Row) Verdict {
		want := w.rows[r.Key]
		if want == nil || seen[r.Key] {
			t.Fatalf("%s: walked key %d: seen before: %t", what, r.Key, seen[r.Key])
		}
		seen[r.Key] = true
		if got := slices.Concat(append([][]float32{r.Weights}, r.State...)...); !slices.Equal(got, want.values) {
			t.Fatalf("%s: key %d: %v, want %v", what, r.Key, got, want.values)
		}
		if w.cfg.Usage && r.Usage != want.usage {
			t.Fatalf("%s: key %d: usage %v, want %v", what, r.Key, r.Usage, want.usage)
		}
		return Keep
	})
	if len(seen) != len(w.rows) || w.t.Len() != len(w.rows) {
		t.Fatalf("%s: walked %d rows, Len %d, want %d", what, len(seen), w.t.Len(), len(w.rows))
	}
	if st, free := w.t.Stats(), w.t.freeRows(); st.Rows != len(w.rows) || w.t.numbers.used-free != len(w.rows) {
		t.Fatalf("%s: %d rows, %d numbers used, %d free, want %d rows", what, st.Rows, w.t.numbers.used, free, len(w.rows))
	}
}

func TestAgainstMap(t *testing.T) {
	for i, c := range []Config{
		{Dim: 1},
		{Dim: 16, Rule: testRule{[]int{1}}, Init: rowinit.Uniform(0.1), Usage: true},
		{Dim: 7, Rule: testRule{[]int{1, 7}}, Init: rowinit.Uniform(2), Usage: true, shift: 3},
		{Dim: 33, Rule: testRule{[]int{33, 2, 1}}, Init: rowinit.Constant(1.5), shift: 6},
		{Dim: 16, Rule: testRule{[]int{16}}, Init: rowinit.Uniform(1), Admit: func(key uint64, _ bool) bool { return key%3 != 0 }},
	} {
		t.Run(fmt.Sprintf("%d:dim=%d", i, c.Dim), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			tb := newTable(t, c)
			w := &twin{t: tb, cfg: tb.cfg, rows: map[uint64]*twinRow{}}
			for step := range 300 {
				tb.SetEpoch(uint16(step * 1000))
				what := fmt.Sprintf("step %d: %s", step, w.random(t, r))
				if step%10 == 0 || step > 290 {
					w.check(t, what)
				}
			}
			walkAll(t, tb, 100, func(*Row) Verdict { return Drop })
			clear(w.rows)
			w.check(t, "empty")
			if used, idle, _ := tb.index.arena.chunks(); used-idle != 1 {
				t.Errorf("%d chunks of the index are in use without keys", used-idle-1)
			}
		})
	}
}

// random does one random operation on both.
func (w *twin) random(t *testing.T, r *rand.Rand) string {
	t.Helper()
	n := r.IntN(300)
	if r.IntN(5) == 0 {
		n = r.IntN(3)
	}
	keys := drawKeys(r, n)
	switch op := r.IntN(12); op {
	case 0, 1:
		return w.pull(t, append(keys, keys[:n/3]...))
	case 2:
		return w.peek(t, append(keys, keys[:n/3]...))
	case 3, 4:
		return w.push(t, keys, randomValues(r, n*w.cfg.Dim), op == 3)
	case 5:
		return w.export(t, append(keys, keys[:n/3]...))
	case 6:
		return w.load(t, r, append(keys, keys[:n/3]...))
	case 7:
		return w.drop(t, r.Uint64N(4)+2)
	case 8:
		return w.pullPresent(t, append(keys, keys[:n/3]...))
	case 9:
		return w.make(t, append(keys, keys[:n/3]...))
	case 10:
		return w.visit(t, keys, r.Uint64N(4)+2)
	}
	return w.remove(t, append(keys, keys[:n/3]...))
}

func (w *twin) pull(t *testing.T, keys []uint64) string {
	dst := make([]float32, len(keys)*w.cfg.Dim)
	must(t, w.t.Pull(keys, dst))
	for i, key := range keys {
		want := w.initial(key)
		if row := w.row(key, true); row != nil {
			want = row.values
			w.touch(row)
		}
		if got := dst[i*w.cfg.Dim:][:w.cfg.Dim]; !slices.Equal(got, want[:w.cfg.Dim]) {
			t.Fatalf("pull: key %d: %v, want %v", key, got, want)
		}
	}
	return "pull"
}

func (w *twin) peek(t *testing.T, keys []uint64) string {
	dst := make([]float32, len(keys)*w.cfg.Dim)
	missing, err := w.t.Peek(keys, dst, []int32{-7})
	must(t, err)
	w.checkMissing(t, "peek", keys, missing)
	for i, key := range keys {
		want := w.initial(key)
		if row := w.rows[key]; row != nil {
			want = row.values
		}
		if got := dst[i*w.cfg.Dim:][:w.cfg.Dim]; !slices.Equal(got, want[:w.cfg.Dim]) {
			t.Fatalf("peek: key %d: %v, want %v", key, got, want)
		}
	}
	return "peek"
}

// checkMissing compares what was appended to -7 with the places without a row.
func (w *twin) checkMissing(t *testing.T, what string, keys []uint64, missing []int32) {
	t.Helper()
	want := []int32{-7}
	for i, key := range keys {
		if w.rows[key] == nil {
			want = append(want, int32(i))
		}
	}
	if slices.Sort(missing); !slices.Equal(missing, want) {
		t.Fatalf("%s: missing %v, want %v", what, missing, want)
	}
}

func (w *twin) push(t *testing.T, keys []uint64, grads []float32, create bool) string {
	if create {
		must(t, w.t.Push(keys, grads, 0.5))
	} else {
		w.seq++
		must(t, w.t.PushOnce(0, w.seq, keys, grads, 0.5, &Once{Drop: slices.Repeat([]bool{true}, len(keys))}))
	}
	for i, key := range keys {
		if w.row(key, create) != nil {
			w.update(key, grads[i*w.cfg.Dim:][:w.cfg.Dim], 0.5)
		}
	}
	return fmt.Sprintf("push, create %t", create)
}

func (w *twin) export(t *testing.T, keys []uint64) string {
	width := w.t.Width()
	values, usage := make([]float32, len(keys)*width), make([]Usage, len(keys))
	missing, err := w.t.Export(keys, values, usage, []int32{-7})
	must(t, err)
	w.checkMissing(t, "export", keys, missing)
	for i, key := range keys {
		want := &twinRow{values: make([]float32, width)}
		if row := w.rows[key]; row != nil {
			want = row
		}
		if got := values[i*width:][:width]; !slices.Equal(got, want.values) {
			t.Fatalf("export: key %d: %v, want %v", key, got, want.values)
		}
		if w.cfg.Usage && usage[i] != want.usage {
			t.Fatalf("export: key %d: %v, want %v", key, usage[i], want.usage)
		}
	}
	return "export"
}

func (w *twin) load(t *testing.T, r *rand.Rand, keys []uint64) string {
	width, replace := w.t.Width(), r.IntN(2) == 0
	values := randomValues(r, len(keys)*width)
	var usage []Usage
	if r.IntN(2) == 0 {
		for range keys {
			usage = append(usage, Usage{uint16(r.Uint32()), uint16(r.Uint32N(mostTouches + 1)), r.IntN(2) == 0, r.IntN(2) == 0})
		}
	}
	stored, err := w.t.Import(keys, values, usage, replace)
	must(t, err)
	want := 0
	for i, key := range keys {
		row := w.rows[key]
		if row != nil && !replace {
			continue
		}
		want++
		f := Usage{Last: w.t.Epoch()}
		if row != nil {
			f = row.usage
		}
		f.Changed = true
		if usage != nil {
			f = usage[i]
		}
		w.rows[key] = &twinRow{slices.Clone(values[i*width:][:width]), f}
	}
	if stored != want {
		t.Fatalf("import stored %d rows, want %d", stored, want)
	}
	return fmt.Sprintf("import, replace %t", replace)
}

// drop walks, changes rows and deletes those whose key divides.
func (w *twin) drop(t *testing.T, divisor uint64) string {
	walkAll(t, w.t, 50, func(row *Row) Verdict {
		row.Weights[0] += 1
		row.Usage.Touches /= 2
		if row.Key%divisor == 0 {
			return Drop
		}
		return Keep
	})
	maps.DeleteFunc(w.rows, func(key uint64, row *twinRow) bool {
		row.values[0] += 1
		row.usage.Touches /= 2
		return key%divisor == 0
	})
	return fmt.Sprintf("drop multiples of %d", divisor)
}

func (w *twin) remove(t *testing.T, keys []uint64) string {
	want := 0
	for _, key := range keys {
		if w.rows[key] != nil {
			want++
			delete(w.rows, key)
		}
	}
	got, err := w.t.Delete(keys)
	must(t, err)
	if got != want {
		t.Fatalf("deleted %d rows, want %d", got, want)
	}
	return "delete"
}

func (w *twin) pullPresent(t *testing.T, keys []uint64) string {
	dst := make([]float32, len(keys)*w.cfg.Dim)
	missing, err := w.t.PullPresent(keys, dst, []int32{-7})
	must(t, err)
	w.checkMissing(t, "pull present", keys, missing)
	for i, key := range keys {
		want := make([]float32, w.cfg.Dim)
		if row := w.rows[key]; row != nil {
			want = row.values[:w.cfg.Dim]
			w.touch(row)
		}
		if got := dst[i*w.cfg.Dim:][:w.cfg.Dim]; !slices.Equal(got, want) {
			t.Fatalf("pull present: key %d: %v, want %v", key, got, want)
		}
	}
	return "pull present"
}

func (w *twin) make(t *testing.T, keys []uint64) string {
	before := len(w.rows)
	made, err := w.t.Make(keys, false)
	must(t, err)
	for _, key := range keys {
		if row := w.row(key, true); row != nil {
			w.touch(row)
		}
	}
	if want := len(w.rows) - before; made != want {
		t.Fatalf("made %d rows, want %d", made, want)
	}
	return "make"
}

// visit changes the rows of keys and deletes those whose key divides.
func (w *twin) visit(t *testing.T, keys []uint64, divisor uint64) string {
	seen := map[uint64]bool{}
	must(t, w.t.Visit(keys, func(i int, r *Row) Verdict {
		if r.Key != keys[i] || seen[r.Key] || w.rows[r.Key] == nil || r.Weights[0] != w.rows[r.Key].values[0] {
			t.Fatalf("visit: place %d has key %d, got key %d, seen %t", i, keys[i], r.Key, seen[r.Key])
		}
		seen[r.Key] = true
		r.Weights[0]++
		r.Usage.Stored = true
		return Verdict(r.Key%divisor == 0)
	}))
	for _, key := range keys {
		row := w.rows[key]
		if (row != nil) != seen[key] {
			t.Fatalf("visit: key %d: visited %t", key, seen[key])
		}
		if row != nil && key%divisor == 0 {
			delete(w.rows, key)
		} else if row != nil {
			row.values[0]++
			row.usage.Stored = true
		}
	}
	return "visit"
}

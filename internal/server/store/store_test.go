package store

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Kinds are the stores that the suite runs over, with that of storetest. limit is 0 for none.
var Kinds = map[string]func(t testing.TB, limit int64) Store{
	"Segments": func(t testing.TB, limit int64) Store {
		s, err := OpenSegments(filepath.Join(t.TempDir(), "new", "store"), limit)
		must(t, err)
		return s
	},
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// each runs a test over an empty store of each kind.
func each(t *testing.T, limit int64, test func(t *testing.T, s Store)) {
	for _, name := range slices.Sorted(maps.Keys(Kinds)) {
		t.Run(name, func(t *testing.T) {
			s := Kinds[name](t, limit)
			test(t, s)
			must(t, s.Close())
		})
	}
}

// model is the naive twin of every store.
type model map[uint32]map[uint64]string

// tables are the numbers at the ends and in between.
var tables = []uint32{0, 1, 7, math.MaxUint32}

func newModel() model {
	m := model{}
	for _, t := range tables {
		m[t] = map[uint64]string{}
	}
	return m
}

// draw returns sorted unique keys of a small space, its ends included.
func draw(r *rand.Rand, n int) []uint64 {
	keys := map[uint64]bool{}
	for range n {
		k := r.Uint64N(300)
		if k >= 290 {
			k = math.MaxUint64 - k
		}
		keys[k] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

func (m model) sizes(table uint32, keys []uint64) []int32 {
	out := make([]int32, len(keys))
	for i, k := range keys {
		out[i] = -1
		if row, ok := m[table][k]; ok {
			out[i] = int32(len(row))
		}
	}
	return out
}

// put writes random rows to a store and to its model; where known is set it says
// what they replace.
func (m model) put(t *testing.T, s Store, r *rand.Rand, table uint32, n int, known bool) {
	t.Helper()
	var rows Rows
	for _, k := range draw(r, n) {
		row := strings.Repeat(string(rune('a'+k%26)), r.IntN(300))
		rows.Add(k, []byte(row))
	}
	if known {
		rows.Old = m.sizes(table, rows.Keys)
	}
	must(t, s.Put(table, &rows))
	for i, k := range rows.Keys {
		m[table][k] = string(rows.Row(i))
	}
}

func (m model) remove(t *testing.T, s Store, r *rand.Rand, table uint32, n int, known bool) {
	t.Helper()
	keys := draw(r, n)
	var sizes []int32
	if known {
		sizes = m.sizes(table, keys)
	}
	must(t, s.Delete(table, keys, sizes))
	for _, k := range keys {
		delete(m[table], k)
	}
}

// check compares all that a store says with its model.
func (m model) check(t *testing.T, s Store) {
	t.Helper()
	total := TableSize{}
	for _, table := range tables {
		want := TableSize{Rows: int64(len(m[table]))}
		for _, row := range m[table] {
			want.Bytes += int64(len(row)) + KeyBytes
		}
		if got := s.Table(table); got != want {
			t.Errorf("table %d: %+v, want %+v", table, got, want)
		}
		total = total.plus(want)
		seen := map[uint64]string{}
		must(t, s.Iterate(table, func(k uint64, row []byte) error {
			if _, twice := seen[k]; twice {
				t.Errorf("table %d: key %d comes twice", table, k)
			}
			seen[k] = string(row)
			return nil
		}))
		if !maps.Equal(seen, m[table]) {
			t.Fatalf("table %d: not the %d rows that were put, but %d", table, len(m[table]), len(seen))
		}
	}
	if d, ok := s.(*Segments); ok && (d.all() != total || d.disk() > d.peak) {
		t.Errorf("%+v, want %+v", d.all(), total)
	}
}

func (m model) get(t *testing.T, s Store, r *rand.Rand, table uint32, n int, found *Rows) {
	t.Helper()
	keys := draw(r, n)
	must(t, s.Get(table, keys, found))
	i := 0
	for _, k := range keys {
		row, ok := m[table][k]
		if !ok {
			continue
		}
		if i >= found.Len() || found.Keys[i] != k || string(found.Row(i)) != row {
			t.Fatalf("table %d, key %d: not what was put", table, k)
		}
		i++
	}
	if i != found.Len() {
		t.Fatalf("%d rows found, want %d", found.Len(), i)
	}
}

func TestStore(t *testing.T) {
	each(t, 0, func(t *testing.T, s Store) {
		m, r := newModel(), rand.New(rand.NewPCG(1, 2))
		var found Rows
		for step := range 60 {
			table, n := tables[r.IntN(len(tables))], r.IntN(200)
			switch {
			case step%4 < 2:
				m.put(t, s, r, table, n, step%3 == 0)
			case step%4 == 2:
				m.remove(t, s, r, table, n, step%3 == 0)
			default:
				m.get(t, s, r, table, n, &found)
			}
			if step%20 == 19 {
				must(t, s.Compact(context.Background()))
			}
		}
		m.check(t, s)
		if d, ok := s.(*Segments); ok && (d.written == 0 || d.disk() == 0) {
			t.Errorf("%d bytes written, %d in the file", d.written, d.disk())
		}
	})
}

func TestMisuse(t *testing.T) {
	each(t, 0, func(t *testing.T, s Store) {
		for name, err := range map[string]error{
			"get":    s.Get(1, []uint64{2, 1}, &Rows{}),
			"put":    s.Put(1, &Rows{Keys: []uint64{1, 1}, Ends: []int{0, 0}}),
			"ends":   s.Put(1, &Rows{Keys: []uint64{1, 2}, Ends: []int{2, 1}, Data: []byte("a")}),
			"data":   s.Put(1, &Rows{Keys: []uint64{1}, Ends: []int{1}, Data: []byte("ab")}),
			"old":    s.Put(1, &Rows{Keys: []uint64{1}, Ends: []int{0}, Old: []int32{-1, -1}}),
			"delete": s.Delete(1, []uint64{3, 3}, nil),
			"sizes":  s.Delete(1, []uint64{3}, []int32{1, 2}),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), "store: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, err := range []error{s.Put(1, &Rows{}), s.Delete(1, nil, nil), s.Get(1, nil, &Rows{})} {
			must(t, err) // nothing to do
		}
		newModel().check(t, s)
	})
	for name, open := range Kinds {
		s := open(t, 0)
		must(t, s.Close())
		rows := &Rows{Keys: []uint64{1}, Ends: []int{0}}
		for _, err := range []error{s.Get(1, nil, rows), s.Put(1, rows), s.Delete(1, nil, nil), s.Iterate(1, nil), s.Close()} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	}
}

// What iterates may change what it iterates over, and sees none of it.
func TestIterate(t *testing.T) {
	each(t, 0, func(t *testing.T, s Store) {
		var rows Rows
		for k := range uint64(100) {
			rows.Add(k, []byte("row"))
		}
		must(t, s.Put(3, &rows))
		n := 0
		must(t, s.Iterate(3, func(k uint64, row []byte) error {
			n++
			rows.Reset()
			rows.Add(k+1000, row)
			return errors.Join(s.Put(3, &rows), s.Delete(3, []uint64{99 - k}, nil))
		}))
		if got := s.Table(3); n != 100 || got.Rows != 100 {
			t.Errorf("%d rows seen, %d there", n, got.Rows)
		}
		stop := errors.New("stop")
		if err := s.Iterate(3, func(uint64, []byte) error { return stop }); !errors.Is(err, stop) {
			t.Error(err)
		}
	})
}

// A store at its limit takes no more, says by how much, and goes on when rows
// have been deleted. Its files never exceed the limit.
func TestLimit(t *testing.T) {
	const limit, width, batch = MinLimitBytes, 1000, 200
	if testing.Short() {
		t.Skip("writes and compacts for many seconds")
	}
	each(t, limit, func(t *testing.T, s Store) {
		var rows Rows
		next := uint64(0)
		// fill puts rows until there is no room, compacts once, and goes on.
		fill := func() (put int, err error) {
			compacted := false
			for ; put < 1000; put++ {
				rows.Reset()
				for range batch {
					next++
					row := make([]byte, width)
					row[next%width] = byte(next)
					rows.Add(next*0x9E3779B97F4A7C15, row) // from end to end of the keys
				}
				sortRows(&rows)
				err := s.Put(1, &rows)
				if err != nil && !compacted {
					compacted = true
					must(t, s.Compact(context.Background()))
					err = s.Put(1, &rows)
				}
				if err != nil {
					return put, err
				}
			}
			return put, nil
		}
		first, err := fill()
		var l *LimitError
		if !errors.As(err, &l) || l.Over <= 0 || l.Over > l.Need+limit || l.Need < batch*width || l.Limit != limit {
			t.Fatalf("%d batches, then %v", first, err)
		}
		if first*batch*width < limit*6/10 {
			t.Errorf("only %d batches of %d bytes fit into %d", first, batch*width, limit)
		}
		if got := s.Table(1).Rows; got != int64(first*batch) {
			t.Errorf("%d rows, want %d", got, first*batch)
		}
		var all []uint64
		must(t, s.Iterate(1, func(k uint64, _ []byte) error { all = append(all, k); return nil }))
		slices.Sort(all)
		must(t, s.Delete(1, all[:len(all)/2], nil))
		if got := s.Table(1); got.Rows != int64(len(all)-len(all)/2) {
			t.Errorf("%+v after deleting half of %d", got, len(all))
		}
		must(t, s.Compact(context.Background()))
		again, err := fill()
		if !errors.As(err, &l) || again < first/3 {
			t.Errorf("half deleted, and %d batches more after %d: %v", again, first, err)
		}
		if d, ok := s.(*Segments); ok && (d.peak > limit || d.disk() > d.peak) {
			t.Errorf("%d bytes, %d at most: beyond the limit", d.disk(), d.peak)
		}
	})
}

// sortRows sorts rows of one length by key.
func sortRows(r *Rows) {
	var out Rows
	order := make([]int, r.Len())
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if r.Keys[a] < r.Keys[b] {
			return -1
		}
		return 1
	})
	for _, i := range order {
		out.Add(r.Keys[i], r.Row(i))
	}
	*r = out
}

package rows

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
	"github.com/ringo-ml/ringo/optim"
)

func TestConfigFaults(t *testing.T) {
	_, err := New(Config{Dim: -1, MaxRows: math.MaxInt32 + 1})
	for _, want := range []string{"no name", "-1 weights", "2147483648 rows", "no rule"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
	_, err = New(Config{Name: "users", Dim: 3, Rule: badRule{}})
	for _, want := range []string{`"users"`, "the rate is bad", `"sum" of the state of bad has 0 values`, `two parts of the state of bad are named "sum"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
}

type badRule struct{ testRule }

func (badRule) Name() string    { return "bad" }
func (badRule) Validate() error { return errors.New("the rate is bad") }
func (badRule) Parts(int) []optim.RowPart {
	return []optim.RowPart{{Name: "sum"}, {Name: "sum", Width: 1}}
}

func TestBatchFaults(t *testing.T) {
	tb := newTable(t, Config{Name: "ads", Dim: 3})
	keys, nine := []uint64{5, 6, 7}, make([]float32, 9)
	_, peek := tb.Peek(keys, nine[1:], nil)
	_, usage := tb.Import(keys, nine, make([]Usage, 2), true)
	_, load := tb.Import(keys, nine[2:], nil, true)
	for what, err := range map[string]error{
		"Pull: 8 values for 3 rows of 3":   tb.Pull(keys, nine[1:]),
		"PushOnce: 6 values for 3 rows":    tb.Push(keys, nine[3:], 1),
		"Peek: 8 values for 3 rows of 3":   peek,
		"Import: usage of 2 rows for 3":    usage,
		"Import: 7 values for 3 rows of 3": load,
	} {
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), `"ads"`) {
			t.Errorf("%v does not hold %q", err, what)
		}
	}
	if n := tb.Len(); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// A batch of gradients with a key twice changes nothing, wherever the two are.
func TestPushRefusesDuplicates(t *testing.T) {
	tb := newTable(t, Config{Dim: 1})
	const n = 3000
	keys, grads := sequence(0, n), make([]float32, n)
	for i := range grads {
		grads[i] = 1
	}
	for round, at := range [][2]int{{0, 1}, {0, n - 1}, {n - 2, n - 1}, {1500, 77}} {
		bad := slices.Clone(keys)
		bad[at[0]] = bad[at[1]]
		err := tb.Push(bad, grads, 1)
		if !errors.Is(err, ErrDuplicate) {
			t.Fatalf("%v: %v", at, err)
		}
		must(t, tb.Push(keys, grads, -1)) // what was refused leaves nothing behind
		got := make([]float32, n)
		must(t, tb.Pull(keys, got))
		if got[0] != float32(round+1) || slices.Min(got) != slices.Max(got) {
			t.Fatalf("%v: values from %v to %v, want %d", at, slices.Min(got), slices.Max(got), round+1)
		}
	}
}

// The set that finds duplicates forgets earlier batches, also where its counter
// begins anew.
func TestUniqueForgets(t *testing.T) {
	tb := newTable(t, Config{})
	for start := range uint64(2 * stripes) {
		b, err := tb.begin(sequence(0, 200))
		must(t, err)
		must(t, b.unique())
		clear(b.keySet)
		b.round = math.MaxUint32 - start
		for range 4 {
			must(t, b.unique())
		}
		b.sort(tb.index, append(sequence(0, 200), start))
		if err := b.unique(); !errors.Is(err, ErrDuplicate) {
			t.Fatalf("key %d twice: %v", start, err)
		}
		tb.giveBatch(b)
	}
}

// A full table serves the rows it has and says so.
func TestFull(t *testing.T) {
	tb := newTable(t, Config{Dim: 1, MaxRows: 100, Init: rowinit.Uniform(1)})
	keys := sequence(1, 150)
	first, dst := make([]float32, 150), make([]float32, 150)
	if err := tb.Pull(keys, first); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "100 rows") {
		t.Fatal(err)
	}
	missing, err := tb.Peek(keys, dst, nil)
	must(t, err)
	if tb.Len() != 100 || len(missing) != 50 || !slices.Equal(first, dst) {
		t.Fatalf("%d rows, %d missing", tb.Len(), len(missing))
	}
	ones := slices.Repeat([]float32{1}, 150)
	if err := tb.PushOnce(0, 1, keys, ones, -1, &Once{Create: true}); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	must(t, tb.PushOnce(0, 1, keys, ones, -1, &Once{Drop: slices.Repeat([]bool{true}, 150)})) // the stripes that were not full have it already
	for _, i := range missing {
		first[i]-- // these got no gradient
	}
	_, err = tb.Peek(keys, dst, nil)
	must(t, err)
	for i := range dst {
		if dst[i] != first[i]+1 {
			t.Fatalf("key %d is %v, was %v", keys[i], dst[i], first[i])
		}
	}
	if stored, err := tb.Import(keys, dst, nil, false); stored != 0 || !errors.Is(err, ErrFull) {
		t.Fatalf("stored %d: %v", stored, err)
	}
	// What is deleted makes room.
	deleted, err := tb.Delete(keys)
	if err != nil || deleted != 100 {
		t.Fatalf("deleted %d: %v", deleted, err)
	}
	must(t, tb.Pull(sequence(1000, 100), dst[:100]))
	if st, free := tb.Stats(), tb.freeRows(); st.Rows != 100 || free != 0 {
		t.Errorf("%+v, %d free", st, free)
	}
	must(t, tb.index.check())
}

func TestClosed(t *testing.T) {
	tb := newTable(t, Config{Dim: 1})
	x := make([]float32, 1)
	must(t, tb.Pull([]uint64{1}, x))
	must(t, tb.Close())
	must(t, tb.Close())
	_, _, walk := tb.Walk(Cursor{}, 1, nil)
	_, del := tb.Delete([]uint64{1})
	for i, err := range []error{tb.Pull([]uint64{1}, x), tb.Push([]uint64{1}, x, 1), walk, del} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if tb.Stats().Resident() != 0 {
		t.Error("memory is counted")
	}
}

// A row begins with the same values in tables of any number of rows, whatever came
// before, and with others for another key, seed or name.
func TestInitialValues(t *testing.T) {
	pull := func(name string, seed uint64, maxRows int, keys []uint64) []float32 {
		tb := newTable(t, Config{Name: name, Dim: 16, Seed: seed, MaxRows: maxRows, Init: rowinit.Uniform(0.5)})
		dst := make([]float32, 16*len(keys))
		must(t, tb.Pull(keys, dst))
		return dst
	}
	keys := sequence(0, 1000)
	want := pull("a", 1, 1000, keys)
	back := slices.Clone(keys)
	slices.Reverse(back)
	got := pull("a", 1, 1<<20, back)
	for i := range keys {
		if !slices.Equal(want[16*i:][:16], got[16*(999-i):][:16]) {
			t.Fatalf("key %d: %v and %v", i, want[16*i:][:16], got[16*(999-i):][:16])
		}
	}
	for what, other := range map[string][]float32{"name": pull("b", 1, 1000, keys), "seed": pull("a", 2, 1000, keys), "key": append(slices.Clone(want[16:]), want[:16]...)} {
		for i := range want {
			if i%16 > 0 && want[i] == other[i] && want[i-1] == other[i-1] {
				t.Fatalf("another %s begins with %v too", what, want[i-1:][:2])
			}
		}
	}
	sum, squares := 0.0, 0.0
	for _, v := range want {
		if v < -0.5 || v >= 0.5 {
			t.Fatalf("%v is out of [-0.5, 0.5)", v)
		}
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(want))
	if mean, variance := sum/n, squares/n; math.Abs(mean) > 5*0.2887/math.Sqrt(n) || math.Abs(variance-1.0/12) > 0.004 {
		t.Errorf("mean %v, variance %v, want 0 and 1/12", mean, variance)
	}
	// Pinned: a checkpoint's rows that were never touched must begin as they did.
	x := make([]float32, 3)
	rowinit.Uniform(1)(x, rowinit.Row(rowinit.Table(7, "pinned"), 42))
	if !slices.Equal(x, pinned) {
		t.Errorf("pinned values are %v, want %v", x, pinned)
	}
}

var pinned = []float32{0.9925631, 0.38037777, 0.60914063}

// A table with a rule of optim moves as one of a fixed size does: the same bits.
func TestRuleAgainstRowOptimizer(t *testing.T) {
	const rows, dim = 300, 10
	tb := newTable(t, Config{Dim: dim, Rule: optim.NewAdagradRows(0.1), Init: rowinit.Uniform(1), shift: 6})
	o := optim.NewAdagrad(0.1)
	must(t, o.BindTables([][2]int{{rows, dim}}))
	keys, data := sequence(0, rows), make([]float32, rows*dim)
	must(t, tb.Pull(keys, data))
	r := rand.New(rand.NewPCG(21, 22))
	for range 10 {
		var some []uint64
		var ids []int32
		for i := range rows {
			if r.IntN(3) == 0 {
				some, ids = append(some, uint64(i)), append(ids, int32(i))
			}
		}
		g := randomValues(r, len(ids)*dim)
		o.BeginStep()
		o.UpdateRows(0, data, ids, g, 0.5)
		must(t, tb.Push(some, g, 0.5))
	}
	got, whole := make([]float32, rows*dim), make([]float32, rows*tb.Width())
	must(t, tb.Pull(keys, got))
	if !slices.Equal(got, data) {
		t.Error("the weights differ")
	}
	_, err := tb.Export(keys, whole, nil, nil)
	must(t, err)
	for i := range rows {
		if !slices.Equal(whole[i*2*dim+dim:][:dim], o.TableState(0)[0].Data[i*dim:][:dim]) {
			t.Fatalf("the state of row %d differs", i)
		}
	}
}

// What Admit does not admit gets no row, and its gradients are counted.
func TestAdmit(t *testing.T) {
	pushes := 0
	tb := newTable(t, Config{Dim: 1, Init: rowinit.Constant(3), Admit: func(key uint64, push bool) bool {
		if push {
			pushes++
		}
		return key < 10
	}})
	keys, dst := sequence(5, 10), make([]float32, 10)
	must(t, tb.Pull(keys, dst))
	must(t, tb.Push(keys, dst, 1))
	must(t, tb.Pull(keys, dst))
	if want := []float32{0, 0, 0, 0, 0, 3, 3, 3, 3, 3}; !slices.Equal(dst, want) {
		t.Errorf("%v, want %v", dst, want)
	}
	if st := tb.Stats(); st.Rows != 5 || st.Denied != 10 || st.Dropped != 5 || pushes != 5 {
		t.Errorf("%+v, asked for %d pushes", st, pushes)
	}
	if stored, err := tb.Import(keys, dst, nil, false); stored != 5 || err != nil {
		t.Errorf("imported %d: %v", stored, err)
	}
}

func TestUsage(t *testing.T) {
	if f := (Usage{Last: 65530}); f.Age(4) != 10 {
		t.Errorf("age %d, want 10", f.Age(4))
	}
	tb := newTable(t, Config{Dim: 1, Usage: true})
	usage := func(key uint64) (f Usage) {
		var out [1]Usage
		_, err := tb.Export([]uint64{key}, make([]float32, 1), out[:], nil)
		must(t, err)
		return out[0]
	}
	x := make([]float32, 2)
	tb.SetEpoch(5)
	must(t, tb.Push([]uint64{1}, x[:1], 1))
	if f := usage(1); f != (Usage{Last: 5, Changed: true}) {
		t.Errorf("after a push: %v", f)
	}
	tb.SetEpoch(65535)
	must(t, tb.Pull([]uint64{1, 1}, x))
	if f := usage(1); f != (Usage{Last: 65535, Touches: 2, Changed: true}) {
		t.Errorf("after a pull of two: %v", f)
	}
	_, err := tb.Import([]uint64{1}, x[:1], []Usage{{Last: 7, Touches: mostTouches - 1, Stored: true}}, true)
	must(t, err)
	must(t, tb.Pull([]uint64{1, 1}, x))
	if f := usage(1); f != (Usage{Last: 65535, Touches: mostTouches, Stored: true}) {
		t.Errorf("at the end of the counter: %v", f)
	}
	tb.SetEpoch(3)
	must(t, tb.Push([]uint64{1}, x[:1], 1))
	if f := usage(1); f != (Usage{Last: 3, Touches: mostTouches, Changed: true, Stored: true}) {
		t.Errorf("after another push: %v", f)
	}
	for _, f := range []Usage{{1, 2, false, true}, {65535, mostTouches, true, false}, {}} {
		if unpackUsage(f.pack()) != f {
			t.Errorf("pack and unpack differ: %v", f)
		}
	}
	if f := unpackUsage(Usage{Touches: 65535}.pack()); f != (Usage{Touches: mostTouches}) {
		t.Errorf("too many touches: %v", f)
	}
}

// A warm table allocates nothing, a walk neither.
func TestNoAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	tb := newTable(t, Config{Dim: 16, Rule: testRule{[]int{1}}, Usage: true, Init: rowinit.Uniform(1)})
	const n = 1000
	keys, x := sequence(0, n), make([]float32, n*16)
	rows, usage, missing := make([]float32, n*17), make([]Usage, n), make([]int32, 0, n)
	absent := sequence(1<<40, n)
	at := Cursor{}
	once, seq := Once{Missing: make([]int32, 0, n)}, uint64(0)
	keep := func(int, *Row) Verdict { return Keep }
	for what, f := range map[string]func() error{
		"PullPresent": func() error { _, err := tb.PullPresent(keys, x, missing); return err },
		"PushOnce":    func() error { seq++; return tb.PushOnce(3, seq, keys, x, 1, &once) },
		"Visit":       func() error { return tb.Visit(keys, keep) },
		"Make":        func() error { _, err := tb.Make(keys, false); return err },
		"WalkPiece": func() (err error) {
			at, _, err = tb.WalkPiece(at, 100, func(*Piece) {}, func(*Row) Verdict { return Keep })
			return err
		},
		"Pull":   func() error { return tb.Pull(keys, x) },
		"Push":   func() error { return tb.Push(keys, x, 1) },
		"Peek":   func() error { _, err := tb.Peek(absent, x, missing); return err },
		"Import": func() error { _, err := tb.Import(keys, rows, usage, true); return err },
		"Walk":   func() (err error) { at, _, err = tb.Walk(at, 100, func(*Row) Verdict { return Keep }); return err },
	} {
		must(t, f())
		if n := testing.AllocsPerRun(20, func() { must(t, f()) }); n != 0 {
			t.Errorf("%s makes %v allocations", what, n)
		}
	}
	fresh := uint64(1 << 50)
	few := make([]uint64, 1)
	if n := testing.AllocsPerRun(100, func() {
		for range 20 { // what a growing segment allocates is less than one in 20 rows
			few[0] = fresh
			fresh++
			must(t, tb.Pull(few, x[:16]))
		}
	}); n > 1 {
		t.Errorf("20 new rows make %v allocations", n)
	}
}

package rows

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/rowinit"
)

// onceTwin is what PushOnce does, plainly: marks by stripe and session.
type onceTwin struct {
	*twin
	marks map[[2]int]uint64
}

func (w *onceTwin) stripeOf(key uint64) int { return StripeOf(w.t.Hash(key)) }

// push does a PushOnce on both.
func (w *onceTwin) push(t *testing.T, session int, seq uint64, keys []uint64, grads []float32, o Once) {
	t.Helper()
	want := []int32{-7}
	whole := map[int]bool{}
	for i, key := range keys {
		s := w.stripeOf(key)
		if _, ok := whole[s]; !ok {
			whole[s] = true
		}
		if w.marks[[2]int{s, session}] >= seq || w.rows[key] != nil || o.Create || o.Drop != nil && o.Drop[i] {
			continue
		}
		want = append(want, int32(i))
		whole[s] = false
	}
	for i, key := range keys {
		s := w.stripeOf(key)
		if whole[s] && w.marks[[2]int{s, session}] < seq && w.row(key, o.Create) != nil {
			w.update(key, grads[i*w.cfg.Dim:][:w.cfg.Dim], 0.5)
		}
	}
	for s, ok := range whole {
		if ok {
			w.marks[[2]int{s, session}] = max(w.marks[[2]int{s, session}], seq)
		}
	}
	o.Missing = []int32{-7}
	must(t, w.t.PushOnce(session, seq, keys, grads, 0.5, &o))
	if slices.Sort(o.Missing); !slices.Equal(o.Missing, want) {
		t.Fatalf("push %d of session %d: %d missing, want %d", seq, session, len(o.Missing)-1, len(want)-1)
	}
}

// checkMarks compares the marks of all pieces, which cover all hashes.
func (w *onceTwin) checkMarks(t *testing.T) {
	t.Helper()
	next := uint64(0)
	var at Cursor
	for more := true; more; {
		var err error
		var p Piece
		at, more, err = w.t.WalkPiece(at, 30, func(x *Piece) {
			p = Piece{x.First, x.Last, slices.Clone(x.Marks)}
		}, func(r *Row) Verdict {
			if h := w.t.Hash(r.Key); h < p.First || h > p.Last {
				t.Fatalf("a row with hash %#x in the piece from %#x to %#x", h, p.First, p.Last)
			}
			return Keep
		})
		must(t, err)
		if p.First != next || p.Last < p.First || StripeOf(p.First) != StripeOf(p.Last) {
			t.Fatalf("a piece from %#x to %#x, want from %#x", p.First, p.Last, next)
		}
		next = p.Last + 1
		got := map[int]uint64{}
		for _, m := range p.Marks {
			got[m.Session] = m.Seq
		}
		for session := range 7 {
			if want := w.marks[[2]int{StripeOf(p.First), session}]; got[session] != want {
				t.Fatalf("stripe %d: the mark of session %d is %d, want %d", StripeOf(p.First), session, got[session], want)
			}
		}
		if !slices.IsSortedFunc(p.Marks, func(a, b AppliedSeq) int { return a.Session - b.Session }) {
			t.Fatalf("marks are not sorted: %v", p.Marks)
		}
	}
	if next != 0 {
		t.Fatalf("the pieces end at %#x", next)
	}
}

func TestPushOnceAgainstMap(t *testing.T) {
	for i, c := range []Config{
		{Dim: 2, Rule: testRule{[]int{1}}, Init: rowinit.Uniform(1), Usage: true},
		{Dim: 3, Init: rowinit.Uniform(1), shift: 6, Admit: func(key uint64, _ bool) bool { return key%3 != 0 }},
	} {
		r := rand.New(rand.NewPCG(31, uint64(i)))
		tb := newTable(t, c)
		w := &onceTwin{&twin{t: tb, cfg: tb.cfg, rows: map[uint64]*twinRow{}}, map[[2]int]uint64{}}
		var seqs [7]uint64
		for step := range 300 {
			n := r.IntN(300)
			keys, session := drawKeys(r, n), r.IntN(7)
			grads := randomValues(r, n*c.Dim)
			if r.IntN(3) > 0 || seqs[session] == 0 {
				seqs[session]++
			}
			o := Once{Create: r.IntN(3) == 0}
			if r.IntN(2) == 0 {
				for range keys {
					o.Drop = append(o.Drop, r.IntN(2) == 0)
				}
			}
			w.push(t, session, seqs[session], keys, grads, o)
			if r.IntN(2) == 0 {
				w.pull(t, drawKeys(r, 20))
			}
			if step%20 == 0 || step > 290 {
				w.check(t, fmt.Sprint("step ", step))
				w.checkMarks(t)
			}
		}
	}
}

// Stripes of more keys than a block, some missing in one of their blocks.
func TestPushOnceLargeGroups(t *testing.T) {
	const n = 40_000
	tb := newTable(t, Config{Dim: 1, MaxRows: 1 << 17})
	w := &onceTwin{&twin{t: tb, cfg: tb.cfg, rows: map[uint64]*twinRow{}}, map[[2]int]uint64{}}
	keys, ones := sequence(0, n), slices.Repeat([]float32{1}, n)
	w.push(t, 0, 1, keys[:n-70], ones[:n-70], Once{Create: true})
	w.push(t, 0, 2, keys, ones, Once{})
	w.push(t, 0, 2, keys, ones, Once{Drop: slices.Repeat([]bool{true}, n)})
	w.push(t, 0, 3, keys, ones, Once{Create: true})
	w.push(t, 0, 3, keys, ones, Once{Create: true})
	w.check(t, "large groups")
	w.checkMarks(t)
}

// While sessions push, a piece's rows hold exactly the pushes that its marks say.
func TestPiecesAreExact(t *testing.T) {
	const n, all, rounds = 1500, 4, 60
	tb := newTable(t, Config{Dim: 2, shift: 7})
	keys, ones := sequence(0, n), slices.Repeat([]float32{1}, 2*n)
	var wg sync.WaitGroup
	for session := range all {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(session)))
			own, o := slices.Clone(keys), Once{Create: true}
			for seq := uint64(1); seq <= rounds; seq++ {
				r.Shuffle(n, func(i, j int) { own[i], own[j] = own[j], own[i] })
				for range 1 + r.IntN(2) { // a second time changes nothing
					if err := tb.PushOnce(session*300, seq, own, ones, -1, &o); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	walk := func() (least float32) {
		least = math.MaxFloat32
		var at Cursor
		for more := true; more; {
			want := float32(0)
			var err error
			at, more, err = tb.WalkPiece(at, 25, func(p *Piece) {
				for _, m := range p.Marks {
					want += float32(m.Seq)
				}
			}, func(r *Row) Verdict {
				if r.Weights[0] != want || r.Weights[1] != want {
					t.Errorf("key %d is %v, the marks say %v", r.Key, r.Weights, want)
				}
				least = min(least, want)
				return Keep
			})
			must(t, err)
		}
		return least
	}
	for range 20 {
		walk()
	}
	wg.Wait()
	if least := walk(); least != all*rounds {
		t.Errorf("a row holds %v pushes, want %d", least, all*rounds)
	}
}

func TestPushOnceFaults(t *testing.T) {
	tb := newTable(t, Config{Name: "ads", Dim: 1, MaxRows: 100})
	one := make([]float32, 1)
	for want, err := range map[string]error{
		"session -1":              tb.PushOnce(-1, 1, []uint64{1}, one, 1, &Once{}),
		"session 1024":            tb.PushOnce(MaxSessions, 1, []uint64{1}, one, 1, &Once{}),
		"numbers begin at 1":      tb.PushOnce(0, 0, []uint64{1}, one, 1, &Once{}),
		"2 keys for 1 keys":       tb.PushOnce(0, 1, []uint64{1}, one, 1, &Once{Drop: make([]bool, 2)}),
		"1 values for 2 rows":     tb.PushOnce(0, 1, []uint64{1, 2}, one, 1, &Once{}),
		"stripe 64":               tb.RaiseMark(stripes, AppliedSeq{1, 1}),
		"RaiseMark: session 1024": tb.RaiseMark(0, AppliedSeq{1024, 1}),
		"twice":                   tb.PushOnce(0, 1, []uint64{1, 1}, make([]float32, 2), 1, &Once{Create: true}),
		"PushOnce: key 1: a key ": tb.PushOnce(0, 1, []uint64{1, 1}, make([]float32, 2), 1, &Once{Create: true}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"ads"`) {
			t.Errorf("%v does not hold %q", err, want)
		}
	}
	// A stripe of which not all rows can be made is left as it is; the same call
	// again, with room, makes up for it.
	keys, ones := sequence(0, 150), slices.Repeat([]float32{1}, 150)
	if err := tb.PushOnce(0, 1, keys, ones, -1, &Once{Create: true}); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	applied := map[int]float32{}
	walkAll(t, tb, 100, func(r *Row) Verdict {
		s := StripeOf(tb.Hash(r.Key))
		if v, ok := applied[s]; ok && v != r.Weights[0] {
			t.Errorf("stripe %d was updated in part", s)
		}
		applied[s] = r.Weights[0]
		return Keep
	})
	tb2 := newTable(t, Config{Name: "ads", Dim: 1, MaxRows: 1000})
	must(t, tb2.RaiseMark(5, AppliedSeq{7, 3}))
	must(t, tb2.RaiseMark(5, AppliedSeq{7, 2}))
	must(t, tb2.PushOnce(7, 3, keys, ones, -1, &Once{Create: true}))
	missing := 0
	for _, key := range keys {
		found := false
		must(t, tb2.Visit([]uint64{key}, func(int, *Row) Verdict { found = true; return Keep }))
		if found == (StripeOf(tb2.Hash(key)) == 5) {
			t.Errorf("key %d of stripe %d: made %t", key, StripeOf(tb2.Hash(key)), found)
		}
		if !found {
			missing++
		}
	}
	if missing == 0 {
		t.Error("no key was in the raised stripe")
	}
}

// A session takes 512 bytes, and nothing before it is used.
func TestSessions(t *testing.T) {
	tb := newTable(t, Config{Dim: 1})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { tb.sessions.use(900) })
	}
	wg.Wait()
	used := 0
	for i := range tb.sessions.of {
		if tb.sessions.of[i].Load() != nil {
			used++
		}
	}
	if used != 1 || tb.sessions.top.Load() != 901 {
		t.Errorf("%d sessions in use, top %d", used, tb.sessions.top.Load())
	}
}

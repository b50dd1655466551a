package bucket

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func layersOf(lens ...int) []Param {
	var out []Param
	at := 0
	for i, n := range lens {
		out = append(out, Param{Name: string(rune('a' + i)), Offset: at, Len: n})
		at += n
	}
	return out
}

// groups writes a plan as the layer names of each bucket: "ab|c".
func groups(layers []Param, p Plan) string {
	var parts []string
	for _, b := range p {
		s := ""
		for i := b.First; i <= b.Last; i++ {
			s += layers[i].Name
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "|")
}

func TestPlans(t *testing.T) {
	four := layersOf(16, 16, 64, 16)
	cases := []struct {
		name   string
		layers []Param
		plan   func([]Param) Plan
		want   string
	}{
		{"one", four, One, "abcd"},
		{"one, no layers", nil, One, ""},
		{"per layer", four, PerLayer, "a|b|c|d"},
		{"fixed: reached", four, func(l []Param) Plan { return Fixed(l, 128) }, "ab|c|d"},
		{"fixed: pending bucket is flushed before a large layer", layersOf(16, 64, 16, 16), func(l []Param) Plan { return Fixed(l, 200) }, "a|b|cd"},
		{"fixed: everything fits", four, func(l []Param) Plan { return Fixed(l, 1<<20) }, "abcd"},
		{"fixed: every layer is large", four, func(l []Param) Plan { return Fixed(l, 4) }, "a|b|c|d"},
		{"fixed: no layers", nil, func(l []Param) Plan { return Fixed(l, 4) }, ""},
		{"fixed: default gives several buckets", layersOf(32, 32, 32, 32, 32, 32, 32, 32), func(l []Param) Plan { return Fixed(l, 0) }, "ab|cd|ef|gh"},
	}
	for _, c := range cases {
		p := c.plan(c.layers)
		if got := groups(c.layers, p); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if err := p.Validate(c.layers); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestDefaultBytes(t *testing.T) {
	if got := DefaultBytes(layersOf(100 << 20)); got != 8<<20 {
		t.Errorf("a large model: %d bytes, want 8 MiB", got)
	}
	for _, lens := range [][]int{
		{5008, 400000, 512, 25008, 64, 512, 32}, // a layer with nearly all values
		{1000, 1000, 1000, 1000, 1000, 1000},
		{16, 16, 16, 16, 1 << 22},
	} {
		layers := layersOf(lens...)
		bytes := DefaultBytes(layers)
		if got, twice := len(Fixed(layers, bytes)), len(Fixed(layers, 2*bytes)); got < 4 || twice >= 4 {
			t.Errorf("%v: %d bytes make %d buckets, twice as many make %d: want the first of these sizes with 4", lens, bytes, got, twice)
		}
	}
	if p := Fixed(layersOf(1000, 1000), 0); len(p) != 2 {
		t.Errorf("a model of two layers: %d buckets, want 2", len(p))
	}
	if got := DefaultBytes(nil); got <= 0 {
		t.Errorf("no layers: %d, want a positive size", got)
	}
}

func TestValidateNamesTheFault(t *testing.T) {
	l := layersOf(16, 16, 16)
	bad := map[string]Plan{
		"ends at layer 2":   {span(l, 0, 1)},
		"start at layer 1":  {span(l, 0, 0), span(l, 2, 2)},
		"covers values":     {Bucket{First: 0, Last: 2, Lo: 0, Hi: 47}},
		"start at layer 0":  {span(l, 1, 2)},
		"ends at layer 0":   {},
		"start at layer 3 ": {span(l, 0, 2), Bucket{First: 3, Last: 3}},
	}
	for want, p := range bad {
		if err := p.Validate(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate(%v) = %v, want an error with %q", p, err, want)
		}
	}
}

func TestEncodeRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		lens := make([]int, rng.IntN(20))
		for i := range lens {
			lens[i] = 16 * (1 + rng.IntN(50))
		}
		l := layersOf(lens...)
		p := Fixed(l, 4*(1+rng.IntN(4000)))
		back, err := Decode(p.Encode(), l)
		if err != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("round trip of %v over %v: %v, %v", p, l, back, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	l := layersOf(16, 32, 16, 64)
	f.Add(One(l).Encode())
	f.Add(PerLayer(l).Encode())
	f.Add([]byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Decode(data, l)
		if err == nil && p.Validate(l) != nil {
			t.Fatalf("Decode(%v) accepted %v", data, p)
		}
	})
}

// order marks layers in the given order and returns the buckets in output order, with "." after
// each mark.
func order(q *Queue, layers []int) string {
	out := ""
	for _, i := range layers {
		if err := q.Mark(i); err != nil {
			return err.Error()
		}
		for b, ok := q.Next(); ok; b, ok = q.Next() {
			out += string(rune('0' + b))
		}
		out += "."
	}
	return out
}

func TestQueueHandsOutInPlanOrder(t *testing.T) {
	l := layersOf(16, 16, 16, 16)
	p := Plan{span(l, 0, 1), span(l, 2, 2), span(l, 3, 3)}
	q := NewQueue(p)
	for _, c := range []struct {
		marks []int
		want  string
	}{
		{[]int{0, 1, 2, 3}, ".0.1.2."},
		{[]int{1, 0, 3, 2}, ".0..12."},
		{[]int{3, 2, 1, 0}, "...012."},
	} {
		q.Reset()
		if got := order(q, c.marks); got != c.want {
			t.Errorf("marks %v: %q, want %q", c.marks, got, c.want)
		}
		if _, ok := q.Waiting(); ok {
			t.Errorf("marks %v: still waiting after the last", c.marks)
		}
	}
}

// Whatever the order of marks, the buckets come out complete and in plan order.
// It holds invariant[plan-order].
func TestQueueRandomOrders(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		l := layersOf(make([]int, 1+rng.IntN(12))...)
		for i := range l {
			l[i] = Param{Offset: 16 * i, Len: 16}
		}
		p := Fixed(l, 64*(1+rng.IntN(5)))
		q := NewQueue(p)
		done := make([]bool, len(l))
		next := 0
		for _, i := range rng.Perm(len(l)) {
			done[i] = true
			if err := q.Mark(i); err != nil {
				t.Fatal(err)
			}
			for b, ok := q.Next(); ok; b, ok = q.Next() {
				if b != next {
					t.Fatalf("bucket %d came out, want %d", b, next)
				}
				for k := p[b].First; k <= p[b].Last; k++ {
					if !done[k] {
						t.Fatalf("bucket %d came out before layer %d was final", b, k)
					}
				}
				next++
			}
		}
		if next != len(p) {
			t.Fatalf("%d of %d buckets came out", next, len(p))
		}
	}
}

func TestQueueRefusesWrongMarks(t *testing.T) {
	q := NewQueue(One(layersOf(16, 16)))
	if err := q.Mark(2); err == nil || !strings.Contains(err.Error(), "layers 0 to 1") {
		t.Errorf("Mark(2) = %v", err)
	}
	if q.Mark(0) != nil {
		t.Error("the first mark failed")
	}
	if err := q.Mark(0); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a second Mark(0) = %v", err)
	}
	if i, ok := q.Waiting(); !ok || i != 1 {
		t.Errorf("Waiting() = %d, %v, want layer 1", i, ok)
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	q := NewQueue(PerLayer(layersOf(16, 16, 16)))
	if n := testing.AllocsPerRun(100, func() {
		q.Reset()
		for i := range 3 {
			_ = q.Mark(i)
			q.Next()
		}
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

package compress

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func chains(t *testing.T) []*Chain {
	var out []*Chain
	for _, sel := range []Selector{nil, TopK{0.02}, Threshold{1}, DLGS{Ratio: 0.05, Every: 3}, DLGS{Ratio: 0.05, Every: 3, Rule: RulePaper}, Sampled{Ratio: 0.05}, GaussianK{0.05}, TopK{0.95}} {
		for _, q := range quantisers {
			stages := []Stage{Clip{50}}
			if sel != nil {
				stages = append(stages, sel)
			}
			c, err := NewChain(append(stages, q)...)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, c)
		}
	}
	return out
}

// within tells whether a and b differ by at most one unit in the last place of the
// larger of two magnitudes.
func within(a, b float64, large float32) bool {
	ulp := math.Nextafter32(float32(math.Abs(float64(large))), inf) - float32(math.Abs(float64(large)))
	return math.Abs(a-b) <= float64(ulp)
}

var someParams = []Param{{"a", 0, 3000}, {"b", 3008, 5000}, {"c", 5008, 9001}}

const someLen = 9008

// Whatever the chain, what is sent and what is kept are together the gradient and
// what was kept before: bit for bit where values are sent as they are, else
// within a unit in the last place of the larger. What was sent is what others
// decode. Groups change on the way.
// It holds invariant[nothing-is-lost].
func TestNothingIsLost(t *testing.T) {
	for _, chain := range chains(t) {
		c, err := chain.Bind(someParams, someLen, threads(3))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(51, 52))
		for step := range 8 {
			groups := [][]Bucket{
				{{Lo: 0, Hi: someLen}},
				{{Lo: 0, Hi: 3008}, {Lo: 3008, Hi: someLen, Parts: []int{5008}}},
				{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 1}, {Lo: 1, Hi: someLen}},
			}[step/3]
			if err := c.SetGroups(groups); err != nil {
				t.Fatal(err)
			}
			for i, g := range groups {
				grads := zeros(g.Hi - g.Lo)
				vectors[step%3].fill(r, grads)
				checkStep(t, fmt.Sprintf("%v, step %d, group %d", chain, step, i), c, i, g, grads)
			}
		}
	}
}

func checkStep(t *testing.T, what string, c *Compressor, group int, g Bucket, grads []float32) {
	t.Helper()
	clip(50).Apply(0, grads)
	c.Layout().ClearPadding(g.Lo, grads)
	sum := slices.Clone(grads)
	if kept := c.Residual(g.Lo, g.Hi); kept != nil {
		sum = added(kept, grads)
	}
	sent := zeros(len(grads))
	q := c.Chain().Quantiser()
	if c.Chain().Sparse() {
		var s, got Sparse
		err := c.Select(&s, group, grads)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		p, err := c.Encode(nil, &s)
		if err == nil {
			err = c.Decode(&got, p)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if q.Code() != CodeSign && len(p) > headerBytes+q.Size(len(grads)) {
			t.Errorf("%s: a payload of %d bytes, dense %d", what, len(p), headerBytes+q.Size(len(grads)))
		}
		s.AddTo(sent)
		decoded := zeros(len(grads))
		if got.AddTo(decoded); !slices.Equal(sent, decoded) {
			t.Fatalf("%s: others decode something else", what)
		}
	} else {
		if err := c.Round(group, grads); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		copy(sent, grads)
		decoded := zeros(len(grads))
		p, err := c.EncodeDense(nil, grads)
		if err == nil {
			err = c.DecodeDense(decoded, p)
		}
		if err != nil || !slices.Equal(sent, decoded) {
			t.Fatalf("%s: others decode something else (%v)", what, err)
		}
		if half := len(grads) / 2 / BlockLen * BlockLen; half > 0 { // a chunk of whole blocks
			p, err = c.EncodeDense(nil, grads[half:])
			if err == nil {
				err = c.DecodeDense(decoded[half:], p)
			}
			if err != nil || !slices.Equal(sent, decoded) {
				t.Fatalf("%s: of the second half others decode something else (%v)", what, err)
			}
		}
	}
	kept := c.Residual(g.Lo, g.Hi)
	if kept == nil {
		return
	}
	c.Layout().ClearPadding(g.Lo, sent)
	for i, v := range sum {
		if q.Code() == CodeFP32 {
			if !(same(sent[i], v) && kept[i] == 0 || sent[i] == 0 && same(kept[i], v)) {
				t.Fatalf("%s: %v at %d: %v is sent and %v kept", what, v, i, sent[i], kept[i])
			}
		} else if large := max(abs(v), abs(sent[i])); !within(float64(sent[i])+float64(kept[i]), float64(v), large) {
			t.Fatalf("%s: %v at %d: %v is sent and %v kept", what, v, i, sent[i], kept[i])
		}
	}
}

func abs(x float32) float32 { return float32(math.Abs(float64(x))) }

// The residual is the parameters': one plan after another, it is the same as if
// the chain were applied to plain slices that nobody cuts.
func TestResidualSurvivesAChangeOfGroups(t *testing.T) {
	chain, err := NewChain(Threshold{1.5})
	if err != nil {
		t.Fatal(err)
	}
	c, err := chain.Bind(someParams, someLen, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, naive := rand.New(rand.NewPCG(53, 54)), zeros(someLen)
	for step := range 6 {
		var groups []Bucket
		for lo := 0; lo < someLen; {
			hi := min(someLen, lo+1+r.IntN(4000))
			groups, lo = append(groups, Bucket{Lo: lo, Hi: hi}), hi
		}
		if err := c.SetGroups(groups); err != nil {
			t.Fatal(err)
		}
		grads := zeros(someLen)
		vectors[0].fill(r, grads)
		for i, g := range groups {
			if err := c.Select(&Sparse{}, i, grads[g.Lo:g.Hi]); err != nil {
				t.Fatal(err)
			}
		}
		for i, g := range grads {
			if naive[i] += g; abs(naive[i]) >= 1.5 {
				naive[i] = 0
			}
		}
		if !slices.Equal(c.Residual(0, someLen), naive) {
			t.Fatalf("step %d: the residual is another", step)
		}
	}
}

// A new compressor with the state of another goes on with the same bits.
func TestStateContinues(t *testing.T) {
	for _, stages := range [][]Stage{
		{Momentum{0.9}, DLGS{Ratio: 0.05, Every: 4}, FP16{}}, {Sampled{Ratio: 0.05}}, {Sign{}}, {TopK{0.01}, Int8{}},
	} {
		chain, err := NewChain(stages...)
		if err != nil {
			t.Fatal(err)
		}
		groups := []Bucket{{Lo: 0, Hi: 5008}, {Lo: 5008, Hi: someLen}}
		bind := func() *Compressor {
			c, err := chain.Bind(someParams, someLen, nil)
			if err == nil {
				err = c.SetGroups(groups)
			}
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a, b := bind(), (*Compressor)(nil)
		r := rand.New(rand.NewPCG(55, 56))
		for step := range 7 {
			if step == 3 {
				b = bind()
				names := map[string]bool{}
				for i, s := range a.State() {
					if other := b.State()[i]; other.Name != s.Name || copy(other.Data, s.Data) != len(s.Data) || names[s.Name] {
						t.Fatalf("%v: state %q, %q", chain, s.Name, other.Name)
					}
					names[s.Name] = true
				}
			}
			for i, g := range groups {
				grads := zeros(g.Hi - g.Lo)
				vectors[0].fill(r, grads)
				for at := range grads {
					if _, ok := a.layout.At(g.Lo + at); !ok {
						grads[at] = 0 // padding
					}
				}
				want := oneStep(t, a, i, slices.Clone(grads))
				if b != nil && !slices.Equal(oneStep(t, b, i, grads), want) {
					t.Fatalf("%v: step %d differs", chain, step)
				}
			}
		}
	}
}

// oneStep is what a compressor sends of a group.
func oneStep(t *testing.T, c *Compressor, group int, grads []float32) []byte {
	t.Helper()
	var p []byte
	var err error
	if c.Chain().Sparse() {
		var s Sparse
		if err = c.Select(&s, group, grads); err == nil {
			p, err = c.Encode(nil, &s)
		}
	} else if err = c.Round(group, grads); err == nil {
		p, err = c.EncodeDense(nil, grads)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A change of chain loses nothing, and a dense chain sends what waited.
func TestChangeOfChain(t *testing.T) {
	var last []*Chain
	for _, stages := range [][]Stage{
		{FP32{}}, {Momentum{0.5}, TopK{0.1}}, {Momentum{0.5}, TopK{0.001}, FP16{}}, {Int8{}}, {DLGS{Ratio: 0.01}}, {BF16{}}, {Sampled{Ratio: 0.1}}, {FP32{}},
	} {
		chain, err := NewChain(stages...)
		if err != nil {
			t.Fatal(err)
		}
		last = append(last, chain)
	}
	c, err := last[0].Bind(someParams, someLen, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(61, 62))
	for i, chain := range last {
		if err := c.Change(chain); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if v := c.transforms[0].State()[0].Data; !slices.ContainsFunc(v, func(x float32) bool { return x != 0 }) {
				t.Error("the velocity is lost")
			}
			continue // what follows knows no momentum
		}
		grads := zeros(someLen)
		vectors[0].fill(r, grads)
		c.Layout().ClearPadding(0, grads)
		if i != 1 {
			checkStep(t, chain.String(), c, 0, Bucket{Hi: someLen}, grads)
		} else if err := c.Select(&Sparse{}, 0, grads); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range c.Residual(0, someLen) {
		if v != 0 {
			t.Fatalf("%v waits at %d after a dense step", v, i)
		}
	}
}

func TestAbsorb(t *testing.T) {
	chain, err := NewChain(Momentum{0.5}, Threshold{100})
	if err != nil {
		t.Fatal(err)
	}
	var ranks [2]*Compressor
	for i := range ranks {
		if ranks[i], err = chain.Bind(someParams, someLen, nil); err != nil {
			t.Fatal(err)
		}
		grads := zeros(someLen)
		grads[3008] = float32(8 * (i + 1))
		oneStep(t, ranks[i], 0, grads)
	}
	if err := ranks[0].Absorb(ranks[1].State(), 0.5); err != nil {
		t.Fatal(err)
	}
	if got := ranks[0].Residual(3008, 3009)[0]; got != 16 {
		t.Errorf("8 and half of 16 are %v", got)
	}
	state := ranks[1].State()
	for i, s := range state {
		if s.Name == "residual/b" {
			state[i].Data = s.Data[:5]
		}
	}
	if err := ranks[0].Absorb(state, 1); err == nil {
		t.Error("a residual of another length was absorbed")
	}
	if got := ranks[0].Residual(3008, 3009)[0]; got != 16 {
		t.Errorf("a refused residual changed it to %v", got)
	}
}

// What is handed over to a chain that keeps nothing is an error, and not lost.
func TestAbsorbNeedsRoom(t *testing.T) {
	var made [2]*Compressor
	for i, stage := range []Stage{TopK{0.1}, FP16{}} {
		chain, err := NewChain(stage)
		if err != nil {
			t.Fatal(err)
		}
		if made[i], err = chain.Bind(someParams, someLen, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := made[1].Absorb(made[0].State(), 1); err == nil || !strings.Contains(err.Error(), "residual/") {
		t.Errorf("%v does not name a residual", err)
	}
	if err := made[1].Absorb(made[1].State(), 1); err != nil {
		t.Error(err)
	}
}

// Momentum correction against its definition: velocities sum up, and begin anew
// where an entry was sent.
func TestMomentumCorrection(t *testing.T) {
	chain, err := NewChain(Momentum{0.9}, TopK{0.05})
	if err != nil {
		t.Fatal(err)
	}
	c, err := chain.Bind(someParams, someLen, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, u, v := rand.New(rand.NewPCG(57, 58)), zeros(someLen), zeros(someLen)
	for step := range 5 {
		grads := zeros(someLen)
		vectors[0].fill(r, grads)
		c.Layout().ClearPadding(0, grads)
		for i, g := range grads {
			u[i] = float32(0.9*u[i]) + g
			v[i] += u[i]
		}
		want, _ := topNaive(v, ranked(v), Entries(0.05, c.Layout().Values(0, someLen)))
		var s Sparse
		if err := c.Select(&s, 0, grads); err != nil {
			t.Fatal(err)
		}
		for i, e := range want {
			if s.Count() != len(want) || int(s.Index[i]) != e.index || s.Value[i] != e.value {
				t.Fatalf("step %d: entry %d differs", step, i)
			}
			u[e.index], v[e.index] = 0, 0
		}
	}
}

// A step allocates nothing.
func TestStepsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	const n = 100_000
	for _, chain := range chains(t) {
		c, err := chain.Bind([]Param{{"a", 0, n}}, n, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(59, 60))
		from, grads := zeros(n), zeros(n)
		vectors[0].fill(r, from)
		s, got := Sparse{}, Sparse{}
		s.Reserve(n)
		got.Reserve(n)
		p := make([]byte, 0, PayloadBound(n, chain.Quantiser()))
		step := func() {
			copy(grads, from)
			for i := range from { // steps differ a little
				from[i] = -from[i] * 0.999
			}
			if !chain.Sparse() {
				if err := c.Round(0, grads); err != nil {
					t.Fatal(err)
				}
				p, _ = c.EncodeDense(p[:0], grads)
				_ = c.DecodeDense(grads, p)
				return
			}
			if err := c.Select(&s, 0, grads); err != nil {
				t.Fatal(err)
			}
			p, _ = c.Encode(p[:0], &s)
			if err := c.Decode(&got, p); err != nil {
				t.Fatal(err)
			}
			got.AddTo(grads)
		}
		for range 5 {
			step()
		}
		if got := testing.AllocsPerRun(10, step); got != 0 {
			t.Errorf("%v: %v allocations a step", chain, got)
		}
	}
}

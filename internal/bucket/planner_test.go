package bucket

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomStep makes a step with relevant backward, latency and bandwidth. Half of the steps select,
// and in half of each kind exchange and computation slow each other.
func randomStep(rng *rand.Rand, layers int, selects bool) Step {
	s := Step{Forward: rng.Float64() * float64(rng.IntN(3)), Update: rng.Float64()}
	at := 0
	for range layers {
		n := 16 * (1 + rng.IntN(1<<rng.IntN(12)))
		s.Layers = append(s.Layers, Param{Offset: at, Len: n})
		at += n
		s.Backward = append(s.Backward, rng.ExpFloat64()*float64(rng.IntN(3)))
	}
	scale := float64(layers) * math.Pow(4, rng.Float64()*4-2) / float64(at)
	s.Costs.Sends = []Send{{Name: "ring", Payload: Payload{Unit: 4}, Fixed: rng.ExpFloat64(), PerByte: rng.Float64() * scale / 4}}
	if rng.IntN(2) == 0 {
		s.Costs.Contention = Contention{Share: float64(rng.IntN(5)) / 4, Late: rng.Float64(), Stretch: 1 + rng.Float64(), Cut: rng.Float64() * float64(rng.IntN(2))}
		if !selects {
			s.Costs.Contention.Share *= float64(rng.IntN(2))
			s.Costs.Contention.Cut *= float64(rng.IntN(2))
		}
	}
	if !selects {
		return s
	}
	s.Costs.Select = Curve{Fixed: rng.Float64() / 2, PerValue: rng.Float64() * scale / 4, PerLog: float64(rng.IntN(2)) * scale / 50}
	s.Costs.Sends = append(s.Costs.Sends, Send{Name: "sparse", Payload: Payload{Density: 0.05, Unit: 8}, Fixed: 2 * rng.ExpFloat64(), PerByte: rng.Float64() * scale})
	return s
}

// cut is the plan with a group's end after layer i for bit i.
func cut(layers []Param, bits int) Plan {
	var p Plan
	first := 0
	for i := range layers {
		if bits>>i&1 == 1 || i == len(layers)-1 {
			p = append(p, span(layers, first, i))
			first = i + 1
		}
	}
	return p
}

// Exact is as short as the best of all 2^(L-1) plans, for every L up to 12,
// with selection and without.
func TestExactAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for layers := 1; layers <= 12; layers++ {
		trials := 400
		if layers > 9 {
			trials = 60
		}
		for i := range trials {
			s := randomStep(rng, layers, i%2 == 1)
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			best := math.Inf(1)
			for bits := range 1 << (layers - 1) {
				best = min(best, s.total(cut(s.Layers, bits)))
			}
			p := Exact(s)
			if err := p.Validate(s.Layers); err != nil {
				t.Fatal(err)
			}
			if got := s.total(p); !near(got, best) {
				t.Fatalf("%d layers: exact takes %v, the best plan %v\n%+v", layers, got, best, s)
			}
		}
	}
}

// near is equality up to the rounding of sums in different orders.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*max(math.Abs(a), math.Abs(b)) }

// The two dynamic programmes agree where both apply.
func TestExactDenseIsTheFrontWithoutSelection(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		s := randomStep(rng, 1+rng.IntN(60), false)
		s.Costs.Contention.Share, s.Costs.Contention.Cut = 0, 0
		front, _ := exactFront(s)
		if a, b := s.total(exactDense(s)), s.total(front); !near(a, b) {
			t.Fatalf("dense %v, front %v", a, b)
		}
	}
}

// No planner is ever better than Exact in the model, nor is a fixed bucket of
// any size, and all plans are valid.
func TestNothingIsBetterThanExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range 400 {
		s := randomStep(rng, 1+rng.IntN(50), i%2 == 1)
		exact := s.total(Exact(s))
		check := func(name string, p Plan) {
			t.Helper()
			if err := p.Validate(s.Layers); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := s.total(p); got < exact && !near(got, exact) {
				t.Fatalf("%s takes %v, exact %v", name, got, exact)
			}
		}
		for _, n := range Planners() {
			check(n.Name, n.Plan(s))
		}
		for bytes := 64; bytes <= 1<<22; bytes *= 2 {
			check("fixed", FixedOf(bytes)(s))
		}
		if scan, each := s.total(Scan(s)), s.total(PerLayer(s.Layers)); scan > each {
			t.Fatalf("the scan takes %v, its start per layer %v", scan, each)
		}
	}
}

// For dense gradients the rule of MG-WFBP merges exactly if the step gets shorter: the scan finds
// equally long plans. Both miss the best plan in many instances.
func TestScanIsTheGreedyWithoutSelection(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	missed, most := 0, 1.0
	for range 500 {
		s := randomStep(rng, 2+rng.IntN(20), false)
		s.Costs.Contention = Contention{}
		greedy, scan, exact := s.total(MGWFBP(s)), s.total(Scan(s)), s.total(Exact(s))
		if !near(greedy, scan) {
			t.Fatalf("greedy %v, scan %v, for %+v", greedy, scan, s)
		}
		if exact < scan && !near(exact, scan) {
			missed++
		}
		most = max(most, scan/exact)
	}
	if missed == 0 {
		t.Error("the scan was never worse than exact: the instances are too easy to tell")
	}
	t.Logf("the scan missed the best plan %d times of 500, by up to %.0f %%", missed, 100*(most-1))
}

// A model of 160 layers keeps few states a boundary.
func TestFrontsStayTiny(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	most := 0
	for range 10 {
		_, largest := exactFront(randomStep(rng, 160, true))
		most = max(most, largest)
	}
	if most < 2 || most > 1000 { // of more than 1e13 prefixes
		t.Errorf("fronts of up to %d states, want more than 1 (or nothing is tested) and at most some hundreds", most)
	}
	t.Logf("fronts of up to %d states", most)
}

// Worthwhile by Exact is the plan with the least sum of step and groups' price, of all 2^(L-1).
func TestWorthwhileAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	fewer := 0
	for i := range 400 {
		s := randomStep(rng, 1+rng.IntN(9), i%2 == 1)
		s.Costs.Contention = Contention{}
		exact := Exact(s)
		price := 0.1 * rng.Float64() * s.total(exact)
		priced := func(p Plan) float64 { return s.total(p) + price*float64(len(p)-1) }
		best := math.Inf(1)
		for bits := range 1 << (len(s.Layers) - 1) {
			best = min(best, priced(cut(s.Layers, bits)))
		}
		p := Worthwhile(Exact, s, price)
		if got := priced(p); !near(got, best) {
			t.Fatalf("%v has a price of %v, the best plan %v\n%+v", p, got, best, s)
		}
		if len(p) > len(exact) {
			t.Fatalf("%d groups, and %d where they cost nothing", len(p), len(exact))
		}
		if len(p) < len(exact) {
			fewer++
		}
		if got := Worthwhile(Exact, s, 0); !slices.Equal(got, exact) {
			t.Fatalf("%v at no price, want %v", got, exact)
		}
	}
	if fewer < 40 || fewer > 360 {
		t.Errorf("%d plans of 400 have fewer groups: the instances are too easy to tell", fewer)
	}
}

// The step's extra time is at most the price of the saved groups, and plans independent of costs
// stay.
func TestWorthwhileUnderContention(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	for i := range 300 {
		s := randomStep(rng, 2+rng.IntN(30), i%2 == 1)
		price := 0.01 * rng.Float64() * s.total(One(s.Layers))
		exact, p := Exact(s), Worthwhile(Exact, s, price)
		if err := p.Validate(s.Layers); err != nil {
			t.Fatal(err)
		}
		if got, most := s.total(p), s.total(exact)+price*float64(len(exact)-1); s.Costs.Contention.Share == 0 && got > most && !near(got, most) {
			t.Fatalf("%v takes %v, which %d groups do not gain: want at most %v", p, got, len(exact), most)
		}
		if got := Worthwhile(FixedOf(4096), s, price); !slices.Equal(got, Fixed(s.Layers, 4096)) {
			t.Fatalf("fixed groups became %v", got)
		}
	}
}

// Time after all groups does not affect plans.
func TestExactBeforeALongUpdate(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	for range 100 {
		s := randomStep(rng, 1+rng.IntN(12), true)
		want := Exact(s)
		s.Update, s.Rows = 1e12, 1e11
		if got := Exact(s); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	free := Step{Layers: layersOf(16, 16), Backward: []float64{0, 0}, Update: 0.1, Rows: 0.2, Costs: Costs{Sends: []Send{{Payload: Payload{Unit: 4}}}, Contention: Contention{Share: 0.5}}}
	if p := Exact(free); p.Validate(free.Layers) != nil {
		t.Errorf("a step that costs nothing: %v", p)
	}
}

func TestPlannersOfNoLayers(t *testing.T) {
	s := Step{Forward: 1, Update: 2, Costs: Costs{Sends: []Send{{Payload: Payload{Unit: 4}}}}}
	for _, n := range Planners() {
		if p := n.Plan(s); len(p) != 0 {
			t.Errorf("%s: %v of no layers", n.Name, p)
		}
	}
	if got := Predict(s, nil).Total; got != 3 {
		t.Errorf("a step without gradients takes %v, want 3", got)
	}
}

// Predict and total agree.
func TestPredictTotal(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for i := range 300 {
		s := randomStep(rng, 1+rng.IntN(12), i%2 == 1)
		p := cut(s.Layers, rng.IntN(1<<12))
		got := Predict(s, p)
		if !near(got.Total, s.total(p)) || !near(got.Compute+got.Exposed+s.Update, got.Total) {
			t.Fatalf("predicted %+v, total %v", got, s.total(p))
		}
		sum := s.Forward
		for _, b := range s.Backward {
			sum += b
		}
		if !near(got.Compute, sum+got.Selecting+got.Busy) || len(got.Layers) != len(s.Layers) || len(got.Buckets) != len(p) {
			t.Fatalf("predicted %+v: compute is not forward, backward, selecting and busy, %v", got, sum)
		}
	}
}

func TestLookupPlanner(t *testing.T) {
	for _, n := range Planners() {
		if got, err := LookupPlanner(n.Name); err != nil || got.Name != n.Name {
			t.Errorf("LookupPlanner(%q) = %q, %v", n.Name, got.Name, err)
		}
	}
	if _, err := LookupPlanner("exct"); err == nil || !strings.Contains(err.Error(), "one, per-layer, fixed, mgwfbp, dlgs-scan, exact") {
		t.Errorf("LookupPlanner of an unknown name: %v", err)
	}
}

func TestPayload(t *testing.T) {
	for _, c := range []struct {
		p       Payload
		values  int
		entries int
		bytes   float64
	}{
		{Payload{Unit: 4}, 1000, 1000, 4000},
		{Payload{Unit: 2}, 0, 0, 0},
		{Payload{Density: 0.01, Unit: 8}, 1000, 10, 80},
		{Payload{Density: 0.01, Unit: 8}, 1001, 11, 88},
		{Payload{Density: 0.01, Unit: 8}, 1, 1, 8},
		{Payload{Density: 1e-9, Unit: 8}, 7, 1, 8},
		{Payload{Density: 1, Unit: 8}, 7, 7, 56},
		{Payload{Density: 0.01, Unit: 8}, 0, 0, 0},
	} {
		if e, b := c.p.Entries(c.values), c.p.Bytes(c.values); e != c.entries || b != c.bytes {
			t.Errorf("%+v of %d values: %d entries, %v bytes, want %d and %v", c.p, c.values, e, b, c.entries, c.bytes)
		}
	}
}

func TestCurve(t *testing.T) {
	c := Curve{Fixed: 1, PerValue: 2, PerLog: 3}
	for x, want := range map[int]float64{0: 0, 1: 3, 4: 1 + 8 + 24} {
		if got := c.At(x); got != want {
			t.Errorf("%+v at %d is %v, want %v", c, x, got, want)
		}
	}
	exact, reuse := Curve{8, 4, 2}, Curve{0, 1, 0}
	if got, want := Mean(exact, reuse, 4), (Curve{2, 1.75, 0.5}); got != want {
		t.Errorf("Mean = %+v, want %+v", got, want)
	}
	if got := Mean(exact, reuse, 1); got != exact {
		t.Errorf("Mean with every step exact = %+v", got)
	}
}

func TestStepValidateReportsAllFaults(t *testing.T) {
	s := Step{
		Layers: layersOf(16, 16), Forward: -1, Update: math.NaN(), Backward: []float64{1, math.Inf(1), 2},
		Costs: Costs{Contention: Contention{Share: 2, Late: -3, Cut: math.Inf(1)}, Select: Curve{PerLog: -1}, Sends: []Send{{Name: "ring", Fixed: -2, PerByte: math.NaN(), Payload: Payload{Density: 2}}}},
	}
	err := s.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"forward -1 s", "update NaN s", "3 backward times for 2 layers", "layer 1 +Inf s", "log2 -1 s", `"ring": fixed -2 s`, "per byte NaN s", "density 2", "0 bytes a value", "contention: late -3 s", "contention: cut +Inf s", "share 2"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err := (Step{}).Validate(); err == nil || !strings.Contains(err.Error(), "no cost of sending") {
		t.Errorf("a step without a way to send: %v", err)
	}
}

func TestPlanSHA256(t *testing.T) {
	l := layersOf(16, 16, 16)
	const want = "ad5dc1478de06a4c2728ea528bd9361a4b945e92a414bf4d180cedaaeaa5f4cc" // sha256sum of 00000000 01000000 02000000
	if got := PerLayer(l).SHA256(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	names := []string{One(l).SHA256(), PerLayer(l).SHA256(), cut(l, 1).SHA256(), cut(l, 2).SHA256()}
	slices.Sort(names)
	if len(slices.Compact(names)) != 4 {
		t.Error("two plans have the same hash")
	}
}

func BenchmarkExact(b *testing.B) {
	rng := rand.New(rand.NewPCG(11, 12))
	for name, s := range map[string]Step{"dense": randomStep(rng, 161, false), "sparse": randomStep(rng, 161, true)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Exact(s)
			}
		})
	}
}

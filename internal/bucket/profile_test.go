package bucket

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func testProfile(t testing.TB) Profile {
	t.Helper()
	f := Profile{
		Model: "mnist-cnn", Ranks: 2, Batch: 64, Forward: 0.004, Update: 1e-4,
		Layers: []LayerProfile{{"fc2", 5008, 1e-4}, {"fc1", 400000, 1.5e-3}, {"conv1", 512, 0}},
		Codecs: []CodecProfile{{Name: "topk", Exact: Curve{1e-6, 2e-9, 1e-10}, Reuse: Curve{1e-6, 1e-9, 0}}},
		Links: []LinkProfile{
			{Algorithm: "ring", Payload: DensePayload, Ranks: 2, Hosts: 1, Fixed: 1e-5, PerByte: 1e-9},
			{Algorithm: "ring", Payload: DensePayload, Ranks: 4, Hosts: 2, Fixed: 2e-5, PerByte: 2e-9},
			{Algorithm: "halving", Payload: DensePayload, Code: "fp32", UpTo: 1024, Ranks: 2, Hosts: 1, Fixed: 2e-5, PerByte: 3e-9},
			{Algorithm: "allgather", Payload: SparsePayload, Density: 0.1, Unit: 5.5, Above: 100, Ranks: 2, Hosts: 1, Fixed: 3e-5, PerByte: 4e-9},
		},
	}
	if err := f.SavePlan("exact", cut(f.layers(), 0b010)); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestProfileGivesSteps(t *testing.T) {
	f := testProfile(t)
	s := f.Step()
	p := Payload{Unit: 4}
	ring := Send{Name: "ring", Payload: p, Fixed: 1e-5, PerByte: 1e-9}
	halving := Send{Name: "halving", Payload: p, Fixed: 2e-5, PerByte: 3e-9, UpTo: 1024}
	gather := Send{Name: "allgather", Payload: Payload{Density: 0.1, Unit: 5.5}, Fixed: 3e-5, PerByte: 4e-9, Above: 100}
	dense, sparse := f.Sends("fp32", p, 2, 1, 0), f.Sends("", Payload{Density: 0.1, Unit: 8}, 2, 1, 0)
	if !reflect.DeepEqual(dense, []Send{ring, halving}) || !reflect.DeepEqual(sparse, []Send{gather}) {
		t.Errorf("dense %+v, sparse %+v", dense, sparse)
	}
	if other := f.Sends("fp16", p, 2, 1, 0); !reflect.DeepEqual(other, []Send{ring}) {
		t.Errorf("another code: %+v", other)
	}
	if more := append(f.Sends("", p, 8, 1, 0), f.Sends("", Payload{Density: 0.2, Unit: 8}, 2, 1, 0)...); more != nil {
		t.Errorf("8 ranks, another density: %+v, of which the profile says nothing", more)
	}
	s.Costs.Sends = dense
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if s.Layers[2].Offset != 405008 || s.Backward[1] != 1.5e-3 || s.Forward != 0.004 || s.Update != 1e-4 {
		t.Errorf("%+v", s)
	}
	if c, ok := f.Codec("topk", 0.3); !ok || c != f.Codecs[0] {
		t.Errorf("codec %+v, %v", c, ok)
	}
	f.Codecs = append(f.Codecs, CodecProfile{Name: "dlgs", Density: 0.01})
	if _, ok := f.Codec("dlgs", 0.1); ok {
		t.Error("a codec of another density")
	}
	if c, ok := f.Codec("dlgs", 0.01); !ok || c.Density != 0.01 {
		t.Errorf("codec %+v, %v", c, ok)
	}
	if _, ok := f.Codec("dgc", 0.1); ok {
		t.Error("a codec that the profile does not have")
	}
	if p := f.SavedPlan(); !reflect.DeepEqual(p, cut(f.layers(), 0b010)) {
		t.Errorf("plan %v", p)
	}
	f.Plan = nil
	if f.SavedPlan() != nil {
		t.Error("a plan where there is none")
	}
	if err := f.SavePlan("bad", nil); err == nil || f.Plan != nil {
		t.Errorf("a plan of no layers was saved: %v", err)
	}
}

// All errors are reported together.
func TestProfileValidate(t *testing.T) {
	good := testProfile(t)
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(f *Profile)
		want  []string
	}{
		"figures": {func(f *Profile) {
			f.Ranks, f.Batch, f.Forward, f.Update = 0, -1, math.NaN(), math.Inf(1)
			f.Layers[0].Backward, f.Layers[1].Name, f.Layers[2].Values = -1, "fc2", 0
		}, []string{"0 ranks", "batch -1", "forward NaN s", "update +Inf s", `layer 0 "fc2": backward -1 s`, `layer 1 "fc2": want a name that no other`, "0 values"}},
		"no layers": {func(f *Profile) { f.Layers = nil }, []string{"0 layers: want 1 to 65536"}},
		"too large": {func(f *Profile) { f.Layers[0].Values, f.Layers[1].Values = 1<<40, 1<<40 }, []string{"values in all"}},
		"codecs": {func(f *Profile) {
			f.Codecs = append(f.Codecs, CodecProfile{Name: "topk", Exact: Curve{PerValue: -1}, Reuse: Curve{PerLog: -2}})
		}, []string{`codec 1 "topk": want a name that no other codec of its density`, "exact: per value -1 s", "reuse: per value and log2 -2 s"}},
		"contention": {func(f *Profile) {
			f.Links[0].Contention, f.Links[1].Contention = Contention{Share: 1.5, Late: -1}, Contention{Share: math.NaN(), Stretch: 0.5}
			f.Codecs[0].Sent = -1
		}, []string{`"ring": contention: late -1 s`, "share 1.5, stretch 0", "share NaN, stretch 0.5", "-1 times as many sent"}},
		"links": {func(f *Profile) {
			f.Links = append(f.Links, LinkProfile{Algorithm: "ring", Payload: DensePayload, Ranks: 2, Hosts: 1, Fixed: -1, PerByte: -2},
				LinkProfile{Payload: "spare", Ranks: 1, Hosts: 2, Density: 1.5, Unit: -1, Above: 8, UpTo: 8})
		}, []string{`link 4 "ring" for dense payloads, 2 ranks, 1 hosts`, "fixed -1 s", "per byte -2 s", `link 5 ""`, `payload "spare"`, "1 ranks on 2 hosts",
			"density 1.5", "-1 bytes an entry", "above 8 and up to 8 bytes"}},
		"hash":          {func(f *Profile) { f.Plan.SHA256 = "x" }, []string{`its hash is`, `the file says "x"`}},
		"plan ends":     {func(f *Profile) { f.Plan.Last = []int{1} }, []string{"the plan ends at layer 2 of 3"}},
		"plan too far":  {func(f *Profile) { f.Plan.Last = []int{1, 3} }, []string{"bucket 1 ends at layer 3, want one from 2 to 2"}},
		"plan falls":    {func(f *Profile) { f.Plan.Last = []int{1, 1, 2} }, []string{"bucket 1 ends at layer 1"}},
		"many of costs": {func(f *Profile) { f.Links = make([]LinkProfile, maxProfileCosts+1) }, []string{"1025 links"}},
	} {
		f := testProfile(t)
		c.spoil(&f)
		err := f.Validate()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", name, want, err)
			}
		}
	}
}

// Exchanges have the Contention of their payload, code, ranks, hosts and servers.
func TestProfileContention(t *testing.T) {
	f := testProfile(t)
	f.Links[0].Servers = 3
	for i := range f.Links {
		f.Links[i].Contention = Contention{Share: float64(1+i) / 8}
	}
	for _, c := range []struct {
		code                  string
		p                     Payload
		ranks, hosts, servers int
		want                  int // link
	}{
		{"fp16", Payload{Unit: 2}, 4, 2, 0, 1}, {"fp32", Payload{Unit: 4}, 2, 1, 0, 2}, {"fp16", Payload{Unit: 2}, 2, 1, 0, -1}, {"fp16", Payload{Unit: 2}, 2, 1, 3, 0},
		{"fp32", Payload{Density: 0.1, Unit: 8}, 2, 1, 0, 3}, {"fp32", Payload{Density: 0.2, Unit: 8}, 2, 1, 0, -1},
	} {
		want := Contention{}
		if c.want >= 0 {
			want = f.Links[c.want].Contention
		}
		if got := f.Contention(c.code, c.p, c.ranks, c.hosts, c.servers); got != want {
			t.Errorf("%+v: %+v, want %+v", c, got, want)
		}
		if known := len(f.Sends(c.code, c.p, c.ranks, c.hosts, c.servers)) > 0; known != (c.want >= 0) {
			t.Errorf("%+v: there are sends: %v", c, known)
		}
	}
}

// Exact steps send the requested entries, reuse steps and the mean the codec's Sent.
func TestKinds(t *testing.T) {
	s := Step{Costs: Costs{Sends: []Send{{Payload: Payload{Density: 0.5, Unit: 8}, PerByte: 1}, {Payload: Payload{Unit: 4}, PerByte: 1}}}}
	c := CodecProfile{Exact: Curve{Fixed: 8}, Reuse: Curve{Fixed: 4}, Sent: 1.5}
	exact, reuse, mean := s.Kinds(c, 4)
	for name, k := range map[string]struct {
		step               Step
		sel, sparse, dense float64
	}{"exact": {exact, 8, 4000, 4000}, "reuse": {reuse, 4, 6000, 4000}, "mean": {mean, 5, 6000, 4000}} {
		a, b := k.step.Costs.Sends[0].Seconds(1000), k.step.Costs.Sends[1].Seconds(1000)
		if got := k.step.Costs.Select.At(1000); got != k.sel || a != k.sparse || b != k.dense {
			t.Errorf("%s: selects for %v, sends for %v and %v, want %+v", name, got, a, b, k)
		}
	}
	c.Sent = 3 // more than all values
	if exact, reuse, _ := s.Kinds(c, 4); exact.Costs.Sends[0].Seconds(1000) != 4000 || reuse.Costs.Sends[0].Seconds(1000) != 8000 {
		t.Errorf("%+v, %+v", exact, reuse)
	}
	if _, _, mean := s.Kinds(c, 1); mean.Costs.Select != c.Exact || mean.Costs.Sends[0].Seconds(1000) != 4000 {
		t.Errorf("a codec without reuse: %+v", mean)
	}
}

// A way to send applies to its sizes; for the rest the cheapest of all.
func TestSendsAreForSizes(t *testing.T) {
	p := Payload{Unit: 4}
	c := Costs{Sends: []Send{
		{Name: "short", Payload: p, Fixed: 1, UpTo: 400},
		{Name: "long", Payload: p, PerByte: 1e-9, Above: 400, UpTo: 4000},
		{Name: "slow", Payload: p, Fixed: 9, UpTo: 4000},
	}}
	for values, want := range map[int]string{1: "short", 99: "short", 100: "long", 101: "long", 1000: "long", 1001: "long"} {
		if way, t1 := c.Send(values); way.Name != want || t1 != way.Seconds(values) {
			t.Errorf("%d values: %s in %v s, want %s", values, way.Name, t1, want)
		}
	}
	for _, order := range [][]int{{0, 1}, {1, 0}} { // both orders
		two := Costs{Sends: []Send{c.Sends[order[0]], c.Sends[order[1]]}}
		if way, _ := two.Send(10); way.Name != "short" {
			t.Errorf("10 values by %s", way.Name)
		}
	}
}

package bucket

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
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
			{"ring", DensePayload, 2, 1, 1e-5, 1e-9},
			{"ring", DensePayload, 4, 2, 2e-5, 2e-9},
			{"halving", DensePayload, 2, 1, 2e-5, 3e-9},
			{"allgather", SparsePayload, 2, 1, 3e-5, 4e-9},
		},
	}
	if err := f.SavePlan("exact", cut(f.layers(), 0b010)); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestProfileRoundTrip(t *testing.T) {
	f := testProfile(t)
	path := filepath.Join(t.TempDir(), "profile.json")
	for range 2 { // the second replaces the first
		if err := SaveProfile(path, f); err != nil {
			t.Fatal(err)
		}
	}
	back, err := LoadProfile(path)
	if err != nil || !reflect.DeepEqual(back, f) {
		t.Fatalf("read %+v, %v\nwrote %+v", back, err, f)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files %v, want the profile alone", left)
	}
	if err := SaveProfile(filepath.Join(t.TempDir(), "none", "x"), f); err == nil {
		t.Error("saved in a folder that does not exist")
	}
	if _, err := LoadProfile(path + "x"); err == nil || !strings.Contains(err.Error(), "loading a profile") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestProfileGivesSteps(t *testing.T) {
	f := testProfile(t)
	s := f.Step()
	dense, sparse := f.Sends(Payload{Unit: 2}, 2, 1), f.Sends(Payload{Density: 0.1, Unit: 8}, 2, 1)
	want := []Send{{"ring", Payload{Unit: 2}, 1e-5, 1e-9}, {"halving", Payload{Unit: 2}, 2e-5, 3e-9}}
	if !reflect.DeepEqual(dense, want) || len(sparse) != 1 || sparse[0].Name != "allgather" {
		t.Errorf("dense %+v, sparse %+v", dense, sparse)
	}
	if more := f.Sends(Payload{Unit: 4}, 8, 1); more != nil {
		t.Errorf("8 ranks: %+v, of which the profile says nothing", more)
	}
	s.Costs.Sends = dense
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if s.Layers[2].Offset != 405008 || s.Backward[1] != 1.5e-3 || s.Forward != 0.004 || s.Update != 1e-4 {
		t.Errorf("%+v", s)
	}
	if c, ok := f.Codec("topk"); !ok || c != f.Codecs[0] {
		t.Errorf("codec %+v, %v", c, ok)
	}
	if _, ok := f.Codec("dgc"); ok {
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

// All faults are reported together.
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
		}, []string{`codec 1 "topk": want a name`, "exact: per value -1 s", "reuse: per value and log2 -2 s"}},
		"links": {func(f *Profile) {
			f.Links = append(f.Links, LinkProfile{"ring", DensePayload, 2, 1, -1, -2}, LinkProfile{"", "spare", 1, 2, 0, 0})
		}, []string{`link 4 "ring" for dense payloads, 2 ranks, 1 hosts`, "fixed -1 s", "per byte -2 s", `link 5 ""`, `payload "spare"`, "1 ranks on 2 hosts"}},
		"hash":          {func(f *Profile) { f.Plan.SHA256 = "x" }, []string{`its hash is`, `the file says "x"`}},
		"plan ends":     {func(f *Profile) { f.Plan.Last = []int{1} }, []string{"the plan ends at layer 2 of 3"}},
		"plan too far":  {func(f *Profile) { f.Plan.Last = []int{1, 3} }, []string{"group 1 ends at layer 3, want 2 to 2"}},
		"plan falls":    {func(f *Profile) { f.Plan.Last = []int{1, 1, 2} }, []string{"group 1 ends at layer 1"}},
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
		if _, err := EncodeProfile(f); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func TestDecodeProfileRefuses(t *testing.T) {
	data, err := EncodeProfile(testProfile(t))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, c := range map[string][2]string{
		"nothing":      {"", "not a profile"},
		"not JSON":     {"ringo", "not a profile"},
		"array":        {"[]", "not a profile"},
		"other format": {`{"format":"x","version":1}`, `format "x", version 1: want "ringo-profile", version 1`},
		"newer":        {strings.Replace(text, `"version": 1`, `"version": 2`, 1), "version 2"},
		"unknown":      {strings.Replace(text, `"ranks"`, `"rnks"`, 1), `unknown field "rnks"`},
		"trailing":     {text + "{}", "not a profile"},
		"truncated":    {text[:len(text)/2], "not a profile"},
		"wrong type":   {strings.Replace(text, `"ranks": 2`, `"ranks": 2.5`, 1), "bad profile"},
		"fault":        {strings.Replace(text, `"forward_s": 0.004`, `"forward_s": -4`, 1), "forward -4 s"},
	} {
		if _, err := DecodeProfile([]byte(c[0])); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v, want %q", name, err, c[1])
		}
	}
	path := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(path, []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadProfile(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("a bad file is not named: %v", err)
	}
}

func FuzzDecodeProfile(f *testing.F) {
	good, err := EncodeProfile(testProfile(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":"ringo-profile","version":1}`))
	f.Add([]byte(`{"format":"ringo-profile","version":1,"ranks":1,"layers":[{"name":"a","values":1,"backward_s":1e-3}],"plan":{"name":"x","last_layers":[0]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodeProfile(data)
		if err != nil {
			return
		}
		again, err := EncodeProfile(p)
		if err != nil {
			t.Fatalf("decoded, but not encoded: %v", err)
		}
		back, err := DecodeProfile(again)
		if err != nil || fmt.Sprintf("%+v", back.Step()) != fmt.Sprintf("%+v", p.Step()) {
			t.Fatalf("%+v, %v\n%+v", back, err, p)
		}
		if plan := p.SavedPlan(); p.Plan != nil && plan.Validate(p.Step().Layers) != nil {
			t.Fatalf("a bad plan was read: %v", plan)
		}
	})
}

// A file that the first version wrote is read, and written again byte for byte:
// whoever changes the format raises its version.
func TestProfileFormat(t *testing.T) {
	const file = "testdata/profile-v1.json"
	got, err := EncodeProfile(testProfile(t))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("a profile is written as\n%s, want\n%s", got, want)
	}
	if f, err := DecodeProfile(want); err != nil || !reflect.DeepEqual(f, testProfile(t)) {
		t.Errorf("%+v, %v", f, err)
	}
}

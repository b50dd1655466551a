package tune

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
)

var update = flag.Bool("update", false, "write the golden profile anew, to be read in review")

func testProfile(t testing.TB) Profile {
	t.Helper()
	f := &bucket.Profile{
		Model: "mnist-cnn", Ranks: 2, Batch: 64, Forward: 0.004, Update: 1e-4, Rows: 2e-4,
		Layers: []bucket.LayerProfile{{Name: "fc2", Values: 5008, Backward: 1e-4}, {Name: "fc1", Values: 400000, Backward: 1.5e-3}, {Name: "conv1", Values: 512}},
		Codecs: []bucket.CodecProfile{
			{Name: "fp16", Exact: bucket.Curve{Fixed: 1e-6, PerValue: 1e-9}, After: bucket.Curve{PerValue: 5e-10}},
			{Name: "dlgs", Density: 0.01, Exact: bucket.Curve{Fixed: 1e-6, PerValue: 2e-9, PerLog: 1e-10}, Reuse: bucket.Curve{Fixed: 1e-6, PerValue: 1e-9}, Sent: 1.25},
		},
		Links: []bucket.LinkProfile{
			{Algorithm: "exchange", Payload: bucket.DensePayload, Code: "fp32", UpTo: 131072, Ranks: 2, Hosts: 1, Fixed: 1e-5, PerByte: 1e-9},
			{Algorithm: "ring", Payload: bucket.DensePayload, Code: "fp32", Above: 131072, Ranks: 2, Hosts: 1, Fixed: 2e-5, PerByte: 2e-9},
			{Algorithm: "allgather", Payload: bucket.SparsePayload, Density: 0.01, Unit: 5.5, Ranks: 2, Hosts: 1, Fixed: 3e-5, PerByte: 4e-9, Contention: bucket.Contention{Share: 0.25, Late: 1e-3, Stretch: 1.5}},
			{Algorithm: "servers", Payload: bucket.DensePayload, Code: "fp32", Ranks: 2, Hosts: 1, Servers: 1, Fixed: 4e-5, PerByte: 3e-9},
		},
	}
	if err := f.SavePlan("exact", bucket.PerLayer(f.Step().Layers)); err != nil {
		t.Fatal(err)
	}
	f.Plan.Strategy, f.Plan.Density = "dlgs", 0.01
	return Profile{Planner: f, Collectives: &collective.Profile{
		Ranks: 2, Hosts: 1, SameHost: collective.Link{LatencySeconds: 1e-5, BytesPerSecond: 1e9}, AddBytesPerSecond: 5e9,
		Rules: []collective.Rule{{Operation: "allreduce", UpTo: 4096, Algorithm: "exchange"}, {Operation: "allreduce", Algorithm: "ring"}},
	}}
}

func TestRoundTrip(t *testing.T) {
	whole := testProfile(t)
	path := filepath.Join(t.TempDir(), "profile.json")
	for _, p := range []Profile{whole, {Planner: whole.Planner}, {Collectives: whole.Collectives}} { // each replaces the last
		if err := Save(path, p); err != nil {
			t.Fatal(err)
		}
		if back, err := Load(path); err != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("read %+v, %v\nwrote %+v", back, err, p)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files %v, want the profile alone", left)
	}
	if err := Save(filepath.Join(t.TempDir(), "none", "x"), whole); err == nil {
		t.Error("saved in a folder that does not exist")
	}
	if _, err := Load(path + "x"); err == nil || !strings.Contains(err.Error(), "loading a profile") {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("a bad file is not named: %v", err)
	}
}

// The errors of all parts are reported together.
func TestValidate(t *testing.T) {
	p := testProfile(t)
	p.Planner.Forward, p.Planner.Plan.SHA256, p.Collectives.Rules[1].UpTo = math.NaN(), "x", 5
	err := p.Validate()
	for _, want := range []string{"forward NaN s", "rule 1: up to 5 bytes", "last rule of allreduce must have no bound"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := Encode(p); err == nil {
		t.Error("encoded")
	}
	if err := (Profile{}).Validate(); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("an empty one: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	data, err := Encode(testProfile(t))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, c := range map[string][2]string{
		"nothing":      {"", "not a profile"},
		"not JSON":     {"ringo", "not a profile"},
		"array":        {"[]", "not a profile"},
		"other format": {`{"format":"x","version":6}`, `format "x", version 6: want "ringo-profile", version 6`},
		"older":        {strings.Replace(text, `"version": 6`, `"version": 5`, 1), "version 5"},
		"newer":        {strings.Replace(text, `"version": 6`, `"version": 7`, 1), "version 7"},
		"a bare table": {`{"ranks":2,"hosts":1,"rules":[]}`, `format ""`},
		"unknown":      {strings.Replace(text, `"batch"`, `"btch"`, 1), `unknown field "btch"`},
		"trailing":     {text + "{}", "not a profile"},
		"truncated":    {text[:len(text)/2], "not a profile"},
		"wrong type":   {strings.Replace(text, `"batch": 64`, `"batch": 2.5`, 1), "bad profile"},
		"fault":        {strings.Replace(text, `"forward_s": 0.004`, `"forward_s": -4`, 1), "forward -4 s"},
		"no part":      {`{"format":"ringo-profile","version":6}`, "neither"},
	} {
		if _, err := Decode([]byte(c[0])); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v, want %q", name, err, c[1])
		}
	}
}

func FuzzDecode(f *testing.F) {
	good, err := Encode(testProfile(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":"ringo-profile","version":5}`))
	f.Add([]byte(`{"format":"ringo-profile","version":5,"collectives":{"ranks":1,"hosts":1,"rules":[{"operation":"barrier","algorithm":"doubling"}]}}`))
	f.Add([]byte(`{"format":"ringo-profile","version":5,"planner":{"ranks":1,"layers":[{"name":"a","values":1,"backward_s":1e-3}],"plan":{"name":"x","last_layers":[0]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(p)
		if err != nil {
			t.Fatalf("decoded, but not encoded: %v", err)
		}
		back, err := Decode(again)
		if err != nil || (back.Planner == nil) != (p.Planner == nil) || fmt.Sprintf("%+v", back.Collectives) != fmt.Sprintf("%+v", p.Collectives) {
			t.Fatalf("%+v, %v\n%+v", back, err, p)
		}
		if p.Planner == nil {
			return
		}
		if fmt.Sprintf("%+v", back.Planner.Step()) != fmt.Sprintf("%+v", p.Planner.Step()) {
			t.Fatalf("%+v\n%+v", back.Planner, p.Planner)
		}
		if plan := p.Planner.SavedPlan(); p.Planner.Plan != nil && plan.Validate(p.Planner.Step().Layers) != nil {
			t.Fatalf("a bad plan was read: %v", plan)
		}
	})
}

// The file of this version is read, and written again byte for byte: a change of the format raises
// the version.
func TestFormat(t *testing.T) {
	const file = "testdata/profile-v6.json"
	got, err := Encode(testProfile(t))
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
	if f, err := Decode(want); err != nil || !reflect.DeepEqual(f, testProfile(t)) {
		t.Errorf("%+v, %v", f, err)
	}
}

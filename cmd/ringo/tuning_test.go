package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/tune"
)

// What --tune finds is saved, can be named, and is then what is chosen by.
func TestTuneIsSavedAndUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "links.json")
	const bench = "bench allreduce --np 3 --transport mem --floats 16 --time 1ms "
	status, _, errs := command(t, bench+"--tune --cost-profile "+file)
	if status != 0 {
		t.Fatalf("status %d, %s", status, errs)
	}
	p, err := tune.Load(file)
	if err != nil || p.Collectives == nil || p.Collectives.Ranks != 3 || p.Collectives.SameHost.LatencySeconds <= 0 || len(p.Collectives.Rules) == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	// one that differs from the default rules, to see that it is used
	p.Collectives.Rules = []collective.Rule{{Operation: "allreduce", Algorithm: collective.Pairwise}}
	if err := tune.Save(file, p); err != nil {
		t.Fatal(err)
	}
	status, out, errs := command(t, bench+"--json - --cost-profile "+file)
	if status != 0 {
		t.Fatalf("status %d, %s", status, errs)
	}
	var r struct{ Algorithm string }
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Algorithm != collective.Pairwise {
		t.Errorf("by %q, want the profile's %s: %s", r.Algorithm, collective.Pairwise, out)
	}
	_, out, _ = command(t, bench+"--explain --cost-profile "+file)
	checkHolds(t, "explain", out, "by tuned rules")
	_, out, _ = command(t, bench+"--explain --tune")
	checkHolds(t, "explain", out, "by tuned rules")
	status, _, errs = command(t, "bench allreduce --np 2 --transport mem --floats 16 --cost-profile "+file)
	if status == 0 || !strings.Contains(errs, "the profile is for 3 ranks on 1 hosts, the group has 2 on 1: tune again") {
		t.Errorf("another number of ranks: status %d, %s", status, errs)
	}
}

func TestTuneUsage(t *testing.T) {
	dir := t.TempDir()
	links, planner, bare := filepath.Join(dir, "links"), filepath.Join(dir, "planner"), filepath.Join(dir, "bare")
	table := &collective.Profile{Ranks: 2, Hosts: 1, Rules: []collective.Rule{{Operation: "barrier", Algorithm: "ring"}}}
	text, err := json.Marshal(map[string]any{"format": tune.Format, "version": tune.Version, "collectives": table})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{links: string(text), bare: `{"ranks":2,"hosts":1}`} {
		if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	f := bucket.Profile{Model: "mlp", Ranks: 1, Layers: []bucket.LayerProfile{{Name: "a", Values: 1}}}
	if err := tune.Save(planner, tune.Profile{Planner: &f}); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []string{synthetic, "bench allreduce ", "bench step mnist "} {
		for _, c := range [][]string{
			{"--cost-profile " + links, "--cost-profile " + links, `rule 0: barrier has no algorithm "ring"`},
			{"--cost-profile " + bare, "--cost-profile " + bare, `format ""`, "measure again"},
			{"--cost-profile " + planner, "--cost-profile " + planner + " has no rules for collective algorithms"},
		} {
			checkRefused(t, exitUsage, cmd+c[0], c[1:]...)
		}
	}
	for _, cmd := range []string{synthetic, "bench step mnist "} {
		checkRefused(t, exitUsage, cmd+"--plan exact --cost-profile "+planner, `was measured with model "mlp", not with mnist-cnn`)
	}
	file := filepath.Join(dir, "no", "file")
	checkRefused(t, exitFailed, "bench allreduce --np 2 --transport mem --floats 1 --tune --cost-profile "+file, "--cost-profile: ", file)
	checkRefused(t, exitUsage, "plan mlp --cost-profile "+links+" --np 2", "--cost-profile: "+links)
}

// Auto says what it chose and how steps then went, to a person and to programs, and
// saves it; by the profile the same is chosen again with the same bits.
func TestTrainAuto(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "job.json")
	const run = "train mlp --data synthetic --np 2 --transport mem --threads 1 --batch 16 --train-limit 1280 --eval-limit 64 --epochs 1 --strategy auto --spars 0.1 --verbose --json - "
	status, out, errs := command(t, run+"--tune --cost-profile "+file)
	if status != 0 {
		t.Fatalf("status %d, %s", status, errs)
	}
	checkHolds(t, "auto", errs, "fp32   predicted", "topk   predicted", "ms a step, measured ")
	events := checkEvents(t, out)
	choice, after := events["choice"], events["choice_measured"]
	if len(choice) == 0 || len(after) == 0 || len(choice[0]["candidates"].([]any)) != 5 || !(choice[0]["predicted_ms"].(float64) > 0) || !(after[0]["step_ms"].(float64) > 0) {
		t.Fatalf("choices %v, then %v", choice, after)
	}
	p, err := tune.Load(file)
	if err != nil || p.Planner == nil || p.Planner.Plan.SHA256 != choice[len(choice)-1]["plan_sha256"] {
		t.Fatalf("saved %+v, %v", p, err)
	}
	shas := map[any]bool{}
	for range 2 {
		status, out, errs = command(t, run+"--cost-profile "+file)
		if status != 0 {
			t.Fatalf("status %d, %s", status, errs)
		}
		events = checkEvents(t, out)
		if c := events["choice"]; len(c) != 1 || c[0]["why"] != "by the profile" || c[0]["strategy"] != choice[len(choice)-1]["strategy"] || len(events["choice_measured"]) != 0 {
			t.Errorf("by the profile: %v", events)
		}
		shas[events["summary"][0]["params_sha256"]] = true
	}
	if len(shas) != 1 {
		t.Errorf("by one profile parameters %v", shas)
	}
}

// A benchmark measures until it has chosen, saves that, and shows what was predicted
// beside what it took.
func TestBenchStepTuned(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "job.json")
	const bench = "bench step mlp --batch 4 --threads 1 --steps 3 --np 2 --transport mem --strategy dlgs --spars 0.1 --set exchange.dlgs-every=4 --plan exact --json - "
	status, out, errs := command(t, bench+"--tune --cost-profile "+file)
	if status != 0 {
		t.Fatalf("status %d, %s", status, errs)
	}
	checkHolds(t, "bench step", errs, "  predicted ", " (exact ")
	var tuned, again struct {
		Plan             string
		SHA256           string  `json:"plan_sha256"`
		PredictedMS      float64 `json:"predicted_ms"`
		PredictedExactMS float64 `json:"predicted_exact_ms"`
		PredictedReuseMS float64 `json:"predicted_reuse_ms"`
	}
	if err := json.Unmarshal([]byte(out), &tuned); err != nil {
		t.Fatal(err)
	}
	if tuned.Plan != "exact" || !(tuned.PredictedMS > 0) || !(tuned.PredictedExactMS > 0 && tuned.PredictedReuseMS > 0) {
		t.Errorf("%+v", tuned)
	}
	status, out, errs = command(t, bench+"--cost-profile "+file)
	if err := json.Unmarshal([]byte(out), &again); status != 0 || err != nil || again.SHA256 != tuned.SHA256 || again.PredictedMS != tuned.PredictedMS {
		t.Errorf("by the profile: status %d, %s%+v, measured %+v", status, errs, again, tuned)
	}
}

// checkEvents reads lines of JSON by their event.
func checkEvents(t *testing.T, text string) map[string][]map[string]any {
	t.Helper()
	out := map[string][]map[string]any{}
	for line := range strings.Lines(text) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		name, _ := e["event"].(string)
		out[name] = append(out[name], e)
	}
	return out
}

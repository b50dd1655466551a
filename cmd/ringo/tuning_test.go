package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/bucket"
	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/tune"
)

// What --tune finds is saved, can be named, and is then what is chosen by.
func TestTuneIsSavedAndUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "links.json")
	const bench = "bench allreduce --np 3 --transport mem --floats 16 --time 1ms "
	status, _, errs := command(t, bench+"--tune --save-profile "+file)
	if status != 0 {
		t.Fatalf("status %d, %s", status, errs)
	}
	p, err := tune.Load(file)
	if err != nil || p.Collectives == nil || p.Collectives.Ranks != 3 || p.Collectives.SameHost.LatencySeconds <= 0 || len(p.Collectives.Rules) == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	// one that differs from the fixed table, to see that it is used
	p.Collectives.Rules = []collective.Rule{{Operation: "allreduce", Algorithm: collective.Pairwise}}
	if err := tune.Save(file, p); err != nil {
		t.Fatal(err)
	}
	status, out, errs := command(t, bench+"--json - --profile "+file)
	if status != 0 {
		t.Fatalf("status %d, %s", status, errs)
	}
	var r allReduceResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Algorithm != collective.Pairwise {
		t.Errorf("by %q, want the profile's %s: %s", r.Algorithm, collective.Pairwise, out)
	}
	_, out, _ = command(t, bench+"--explain --profile "+file)
	checkHolds(t, "explain", out, "by a tuned profile")
	_, out, _ = command(t, bench+"--explain --tune")
	checkHolds(t, "explain", out, "by a tuned profile")
	status, _, errs = command(t, "bench allreduce --np 2 --transport mem --floats 16 --profile "+file)
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
			{"--save-profile x", "--save-profile x has nothing to save without --tune"},
			{"--tune --profile " + links, "--tune and --profile " + links + " are two sources for one choice"},
			{"--profile nowhere", "--profile: tune: loading a profile: open nowhere"},
			{"--profile " + links, "--profile: " + links, `rule 0: barrier has no algorithm "ring"`},
			{"--profile " + bare, "--profile: " + bare, `format ""`, "measure again"},
			{"--profile " + planner, "--profile " + planner + " has no table of collectives"},
		} {
			checkRefused(t, exitUsage, cmd+c[0], c[1:]...)
		}
	}
	file := filepath.Join(dir, "no", "file")
	status, _, errs := command(t, "bench allreduce --np 2 --transport mem --floats 1 --tune --save-profile "+file)
	if status == 0 || !strings.Contains(errs, "--save-profile: tune: saving a profile") {
		t.Errorf("a file that cannot be written: status %d, %s", status, errs)
	}
	checkRefused(t, exitUsage, "plan mlp --profile "+links+" --np 2", "--profile: "+links)
}

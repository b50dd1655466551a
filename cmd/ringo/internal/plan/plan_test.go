package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/compress"
	"github.com/ringo-ml/ringo/distopt"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/tune"
	"github.com/ringo-ml/ringo/models"
)

// planOf runs `ringo plan` with a line of flags and returns its objects and its
// text.
func planOf(t *testing.T, line string) (results []result, text string) {
	t.Helper()
	status, out, errs := commandtest.Run(Command(), line+" --json -")
	if status != 0 {
		t.Fatalf("ringo plan %s: status %d, %s", line, status, errs)
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	for d.More() {
		var r result
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		t.Fatalf("ringo plan %s: no object", line)
	}
	return results, errs
}

// lstmCluster is the run whose figures were published: 5 hosts of 8 workers.
const lstmCluster = "lstm-300m --np 40 --hosts 5 --inter 6GB/s --intra 10GB/s --latency 10us --compute-ms 370 "

// 300 million parameters: 1.2 GB of gradients, about 2.4 GB moved by each rank,
// 400 ms at 6 GB/s; a step of 650-700 ms, of which overlap hid 70-120.
func TestPlanPublishedFigures(t *testing.T) {
	for _, batch := range []string{"", "--batch 32"} {
		results, text := planOf(t, lstmCluster+"--plan all "+batch)
		steps := map[string]result{}
		for _, r := range results {
			steps[r.Plan] = r
		}
		one, exact := steps["one"], steps["exact"]
		if exact.StepMS < 650 || exact.StepMS > 700 {
			t.Errorf("%s: a step of %v ms, published as 650-700", batch, exact.StepMS)
		}
		if hidden := one.StepMS - exact.StepMS; hidden < 70 || hidden > 120 {
			t.Errorf("%s: overlap hides %v ms, published as 70-120", batch, hidden)
		}
		if math.Abs(one.ExposedMS-395) > 10 || math.Abs(exact.BytesSent-2.37e9) > 0.04e9 || math.Abs(float64(exact.Bytes)-1.2e9) > 1e6 {
			t.Errorf("%s: %v ms and %v bytes sent for %d, published as about 400 ms, 2.4 GB, 1.2 GB", batch, one.ExposedMS, exact.BytesSent, exact.Bytes)
		}
		commandtest.Holds(t, "plan", text, "300,112,000 parameters", "40 ranks on 5 hosts: 6 GB/s between hosts, 10 GB/s within, 0.010 ms a message", "ring")
	}
}

// The straw man's figures, as quoted and as they are.
func TestPlanNaiveFigures(t *testing.T) {
	for np, want := range map[int]float64{2: 1200, 10: 10800} {
		for _, as := range []string{"--strategy naive", "--algorithm naive"} {
			results, text := planOf(t, fmt.Sprintf("lstm-300m --np %d --hosts %d --inter 1GB/s --compute-ms 370 %s", np, np, as))
			r := results[0]
			if math.Abs(r.NaiveOneWayMS/want-1) > 0.001 || math.Abs(r.NaiveMS/(2*want)-1) > 0.001 {
				t.Errorf("%d ranks: %v ms one way, %v in all, want %v and twice that", np, r.NaiveOneWayMS, r.NaiveMS, want)
			}
			if last := r.Groups[len(r.Groups)-1].AgreedMS; last < 2*want || last > 2*want+370 {
				t.Errorf("%d ranks: agreed after %v ms, which leaves the way back out", np, last)
			}
			commandtest.Holds(t, "plan", text, "ms one way, as it is often quoted", "there and back")
		}
	}
}

// Every model of the zoo is planned, in lines of at most 80 columns. The groups
// are all of its gradients, in order.
func TestPlanEveryModel(t *testing.T) {
	for _, name := range models.Names() {
		for _, flags := range []string{"--plan all", "--strategy dlgs --plan all", "--strategy topk", "--strategy lags", "--strategy fp16"} {
			results, text := planOf(t, name+" --np 4 --hosts 4 --inter 1Gbit/s --compute-ms 100 "+flags)
			for line := range strings.Lines(text) {
				if len(line) > 81 {
					t.Errorf("%s %s: %d columns: %s", name, flags, len(line)-1, line)
				}
			}
			for _, r := range results {
				checkPlanResult(t, r, results[len(results)-1])
			}
		}
	}
}

func checkPlanResult(t *testing.T, r, exact result) {
	t.Helper()
	what := r.Model + " " + r.Strategy + " " + r.Plan
	layers, values, before := 0, 0, 0.0
	for _, g := range r.Groups {
		layers += g.Layers
		values += g.Values
		if g.ReadyMS > g.SelectMS || g.SelectMS > g.SendMS || g.SendMS < before || g.AgreedMS < g.SendMS || g.By == "" {
			t.Errorf("%s: group %+v after %v", what, g, before)
		}
		before = g.AgreedMS
	}
	if layers != r.Layers || 4*values != r.Bytes || len(r.SHA256) != 64 {
		t.Errorf("%s: groups of %d layers and %d values, the model has %d and %d bytes", what, layers, values, r.Layers, r.Bytes)
	}
	if sum := r.ComputeMS + r.SelectMS + r.ExposedMS + r.UpdateMS; math.Abs(sum-r.StepMS) > 1e-6 || math.Abs(r.ComputeMS-100) > 1e-6 {
		t.Errorf("%s: the parts of %v ms sum to %v, compute is %v", what, r.StepMS, sum, r.ComputeMS)
	}
	if r.StepMS < exact.StepMS*(1-1e-9) && exact.Plan == "exact" {
		t.Errorf("%s takes %v ms, exact %v", what, r.StepMS, exact.StepMS)
	}
}

// What each strategy sends and when it selects.
func TestPlanStrategies(t *testing.T) {
	const cluster = "vgg16 --np 4 --hosts 4 --inter 1Gbit/s --compute-ms 200 "
	plan := func(flags string) result {
		t.Helper()
		results, _ := planOf(t, cluster+flags)
		return results[0]
	}
	fp32, fp16 := plan("--plan one"), plan("--plan one --strategy fp16")
	topk, lags, dlgs := plan("--strategy topk --spars 0.01"), plan("--strategy lags --spars 0.01"), plan("--strategy dlgs --spars 0.01")
	if math.Abs(fp16.BytesSent/fp32.BytesSent-0.5) > 1e-9 || fp32.SelectMS != 0 || fp16.SelectMS == 0 {
		t.Errorf("fp32 %+v, fp16 %+v", fp32, fp16)
	}
	if len(topk.Groups) != 1 || len(lags.Groups) != lags.Layers || topk.Plan != "one" || lags.Plan != "per-layer" {
		t.Errorf("topk in %d groups, lags in %d", len(topk.Groups), len(lags.Groups))
	}
	entries := math.Ceil(float64(topk.Bytes/4) * 0.01)
	if sent := topk.Groups[0].Bytes; sent != entryBytes(0.01)*entries || math.Abs(sent/entries-5.2) > 0.005 { // the largest of 128 gaps of 100 takes nine bits and a half
		t.Errorf("topk sends %v bytes of %v entries", sent, entries)
	}
	if topk.StepExactMS != 0 || !(dlgs.StepReuseMS < dlgs.StepMS && dlgs.StepMS < dlgs.StepExactMS) || dlgs.Every != compress.DefaultEvery {
		t.Errorf("dlgs takes %v ms, exact %v, reuse %v; topk says exact %v", dlgs.StepMS, dlgs.StepExactMS, dlgs.StepReuseMS, topk.StepExactMS)
	}
	if !(dlgs.StepMS < lags.StepMS && dlgs.StepMS < topk.StepMS && topk.StepMS < fp32.StepMS) {
		t.Errorf("dlgs %v, lags %v, topk %v, fp32 %v ms", dlgs.StepMS, lags.StepMS, topk.StepMS, fp32.StepMS)
	}
	if all := plan("--strategy dlgs --dlgs-every 1"); math.Abs(all.StepMS-all.StepExactMS) > 1e-9 {
		t.Errorf("every step exact: %v ms, exact %v", all.StepMS, all.StepExactMS)
	}
	if spars := plan("--strategy topk").Spars; spars != distopt.DefaultSpars {
		t.Errorf("a share of %v by default, training has %v", spars, distopt.DefaultSpars)
	}
	// entries have places and are merged: beyond a density the ring is cheaper
	for _, g := range plan("--strategy sparseTopK --plan one --spars 0.9").Groups {
		if g.By != "dense-ring" {
			t.Errorf("at density 0.9 by %s", g.By)
		}
	}
	if by := plan("--strategy topk --spars 0.001 --algorithm allgather").Groups[0].By; by != "allgather" {
		t.Errorf("by %s", by)
	}
}

// What is predicted to be sent is what docs/costs.md has beside what was measured, of
// 100,000 values, in kB.
func TestPlanSparseTraffic(t *testing.T) {
	for _, c := range []struct {
		ranks            int
		density          float64
		allgather, split float64
	}{
		{2, 0.01, 5.1, 7.6}, {4, 0.01, 15.5, 18.5}, {8, 0.01, 36.8, 37.8}, {16, 0.01, 78.5, 71.0}, {4, 0.05, 72.5, 82.0}, {16, 0.05, 361.2, 243.4}, {64, 0.05, 1537.9, 419.0},
	} {
		p := bucket.Payload{Density: c.density, Unit: entryBytes(c.density)}
		sent := map[string]float64{}
		for _, w := range (cluster{np: c.ranks, hosts: 1, inter: 1, intra: 1}).sparse(p, bucket.Payload{Unit: 4}) {
			sent[w.Name] = w.moved * p.Bytes(100_000) / 1e3
		}
		for name, want := range map[string]float64{"allgather": c.allgather, "split": c.split} {
			if got := sent[name]; math.Abs(got/want-1) > 0.03 {
				t.Errorf("%s of %d ranks at density %v: %.1f kB, want about %v", name, c.ranks, c.density, got, want)
			}
		}
	}
}

// The largest cluster that can be named, and the smallest share, overflow nothing.
func TestPlanLimits(t *testing.T) {
	for _, flags := range []string{"--np 1048576 --hosts 1048576", "--np 1048576 --spars 1", "--np 3 --hosts 2 --spars 1e-300"} {
		for _, strategy := range []string{"topk", "dlgs"} {
			results, _ := planOf(t, "mlp --compute-ms 10 --strategy "+strategy+" "+flags)
			if r := results[0]; !(r.BytesSent > 0 && r.StepMS >= 10) || math.IsInf(r.StepMS, 0) {
				t.Errorf("%s %s: %+v", strategy, flags, r)
			}
		}
	}
}

// Where links within a host are fast and messages many, hosts reduce first; a
// long slice takes the ring.
func TestPlanHierarchical(t *testing.T) {
	by := func(flags string) string {
		results, _ := planOf(t, "mlp --compute-ms 10 --plan one "+flags)
		return results[0].Groups[0].By
	}
	for flags, want := range map[string]string{
		"--np 64 --hosts 8 --inter 1GB/s --intra 100GB/s": "hierarchical",
		"--np 40 --hosts 5 --latency 0s --inter 6GB/s":    "ring",
		"--np 16 --latency 10ms":                          "doubling",
		"--np 1":                                          "none",
		"--np 64 --hosts 8 --algorithm ring":              "ring",
	} {
		if got := by(flags); got != want {
			t.Errorf("%s: by %s, want %s", flags, got, want)
		}
	}
}

// A profile that is saved is planned again without its source, and its plan can
// be named.
func TestPlanProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mnist.json")
	const cluster = " --np 2 --hosts 2 --inter 1Gbit/s"
	first, _ := planOf(t, "mnist --measure --threads 1 --batch 8 --save "+file+cluster)
	again, text := planOf(t, "mnist --cost-profile "+file+cluster)
	saved, _ := planOf(t, "mnist --plan saved --cost-profile "+file+cluster)
	for _, r := range [][]result{again, saved} {
		if r[0].SHA256 != first[0].SHA256 || math.Abs(r[0].StepMS-first[0].StepMS) > 1e-9 || r[0].Batch != 8 {
			t.Errorf("%+v, saved from %+v", r[0], first[0])
		}
	}
	if first[0].ComputeMS <= 0 {
		t.Error("forward and backward take no time")
	}
	commandtest.Holds(t, "plan", text, "of the profile")

	whole, err := tune.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	f := whole.Planner
	f.Links = []bucket.LinkProfile{
		{Algorithm: "ring", Payload: bucket.DensePayload, Ranks: 2, Hosts: 2, Fixed: 1},
		{Algorithm: "tree", Payload: bucket.SparsePayload, Code: "fp32", Density: 0.25, Unit: 8, Ranks: 2, Hosts: 2, Fixed: 0.5, Contention: bucket.Contention{Share: 0.5}},
	}
	f.Codecs = []bucket.CodecProfile{{Name: "topk", Exact: bucket.Curve{Fixed: 2}, Reuse: bucket.Curve{Fixed: 0.5}}}
	if err := tune.Save(file, whole); err != nil {
		t.Fatal(err)
	}
	run := func(flags string) result {
		results, _ := planOf(t, "mnist --plan one --cost-profile "+file+flags)
		return results[0]
	}
	if r := run(" --np 2 --hosts 2"); math.Abs(r.ExposedMS-1000) > 1e-6 || r.LinksFrom != "of the profile" || r.BytesSent != float64(r.Bytes) {
		t.Errorf("the profile's link takes %v ms, want its 1000; %+v", r.ExposedMS, r)
	}
	if r := run(cluster); r.ExposedMS > 100 || r.LinksFrom != "described" {
		t.Errorf("the link of the flags takes %v ms", r.ExposedMS)
	}
	if r := run(" --np 4 --hosts 2"); r.ExposedMS > 100 || r.LinksFrom != "described" {
		t.Errorf("a link that the profile does not know takes %v ms", r.ExposedMS)
	}
	if r := run(" --strategy dlgs --dlgs-every 2"); math.Abs(r.SelectMS-1250) > 1e-6 || math.Abs(r.StepExactMS-r.StepReuseMS-1500) > 1e-6 {
		t.Errorf("the profile's codec: %+v", r)
	}

	results, text := planOf(t, "mnist --plan per-layer --np 2 --hosts 2 --strategy sparseTopK --spars 0.25 --cost-profile "+file)
	if r := results[0]; r.Groups[0].By != "tree" || r.SlowedMS <= 0 || !strings.Contains(text, " + slowed ") || math.Abs(r.ComputeMS+r.SlowedMS+r.SelectMS+r.ExposedMS+r.UpdateMS-r.StepMS) > 1e-6 {
		t.Errorf("by the profile's entries: %+v\n%s", r, text)
	}

	commandtest.Refused(t, Command(), cli.UsageError, "mlp --cost-profile "+file, "--cost-profile "+file+` is of model "mnist-cnn", not of mlp`)
	if err := os.WriteFile(file, []byte(`{"format":"x"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	commandtest.Refused(t, Command(), cli.UsageError, "mnist --cost-profile "+file, "--cost-profile: "+file, `format "x"`)
}

// With --measure the codec is timed, too, and its cost is part of the profile that is
// saved; else its figures rest on a rate that is told.
func TestPlanCodec(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mlp.json")
	const job = "mlp --np 4 --strategy dlgs --dlgs-every 8 "
	measured, text := planOf(t, job+"--measure --threads 1 --batch 4 --save "+file)
	commandtest.Holds(t, "plan", text, "codec measured here on 1 thread")
	r := measured[0]
	if r.CodecFrom != "measured here on 1 thread" || r.SelectMS <= 0 || r.StepExactMS <= 0 {
		t.Errorf("%+v", r)
	}
	again, text := planOf(t, job+"--cost-profile "+file)
	commandtest.Holds(t, "plan", text, "codec of the profile")
	if again[0].SHA256 != r.SHA256 || math.Abs(again[0].SelectMS-r.SelectMS) > 1e-9 {
		t.Errorf("by the profile %+v, measured %+v", again[0], r)
	}
	_, text = planOf(t, job+"--compute-ms 10")
	commandtest.Holds(t, "plan", text, "codec at 10 GB/s of memory (--memory)")
	other, text := planOf(t, job+"--dlgs-rule paper --measure --threads 1 --batch 4 --save "+file)
	commandtest.Holds(t, "plan", text, "dlgs at 0.05, rule paper, plan exact", "codec measured here on 1 thread")
	if saved, err := plannerPart(file); r.Rule != "corrected" || other[0].Rule != "paper" || err != nil || len(saved.Codecs) != 1 || saved.Codecs[0].Name != "dlgs-paper" {
		t.Errorf("rules %q and %q, saved %+v, %v", r.Rule, other[0].Rule, saved.Codecs, err)
	}
	if plain, text := planOf(t, "mlp --np 4 --compute-ms 10"); plain[0].CodecFrom != "none" || strings.Contains(text, "codec") {
		t.Errorf("fp32 has a codec: %+v\n%s", plain[0], text)
	}
}

// The page has a picture per plan, and a bar for each bucket's exchange and codec and each layer's
// backward.
func TestPlanPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "plan.html")
	results, _ := planOf(t, "mnist --np 4 --compute-ms 10 --inter 1Gbit/s --hosts 4 --strategy dlgs --spars 0.01 --plan all --html "+page)
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	pictures := strings.Split(string(data), "<svg ")[1:]
	if len(pictures) != len(results) {
		t.Fatalf("%d pictures of %d plans", len(pictures), len(results))
	}
	for i, p := range pictures {
		r := results[i]
		for class, want := range map[string]int{"c0": 1, "c1": r.Layers, "c2": len(r.Groups), "c3": len(r.Groups)} {
			if got := strings.Count(p, `<rect class="`+class+`"`); got != want {
				t.Errorf("plan %s: %d bars of %s, want %d", r.Plan, got, class, want)
			}
		}
	}
}

func TestPlanUsage(t *testing.T) {
	const ok = "mnist --np 4 --compute-ms 10 "
	for _, c := range [][]string{
		{"", "`plan` needs a model"},
		{"mnits", `unknown model "mnits" (did you mean "mnist"?)`},
		{"mnist mlp", "takes one model"},
		{"mnist", "want one of --compute-ms MS, --measure and --cost-profile FILE, got 0"},
		{ok + "--measure", "got 2"},
		{"mnist --compute-ms 0", "--compute-ms 0: want a positive number"},
		{"mnist --compute-ms nan", "--compute-ms NaN"},
		{ok + "--np 0", "--np 0: want 1 to 1048576"},
		{ok + "--hosts 5", "--hosts 5: want 1 to 4"},
		{ok + "--hosts 2 --inter 6", `--inter "6": want a positive number and a unit`},
		{ok + "--hosts 2 --inter 6gb/s", `--inter "6gb/s"`},
		{ok + "--hosts 2 --inter -6GB/s", `--inter "-6GB/s"`},
		{ok + "--intra 0GB/s", `--intra "0GB/s"`},
		{ok + "--intra 1.2.3GB/s", `--intra "1.2.3GB/s"`},
		{ok + "--inter 6GB/s", "--inter 6GB/s has no effect on one host"},
		{ok + "--hosts 4 --intra 6GB/s", "--intra 6GB/s has no effect with one rank on each host"},
		{ok + "--latency 10", `"10" for "--latency"`},
		{ok + "--latency -1us", "--latency -1µs: want 0 or more"},
		{ok + "--strategy fp23", `--strategy "fp23" is not known here (did you mean "fp32"?): use one of fp32, fp16`},
		{ok + "--spars 0.1", "--spars has no effect on strategy fp32"},
		{ok + "--memory 1GB/s", "--memory has no effect on strategy fp32"},
		{ok + "--strategy lags --dlgs-every 3", "--dlgs-every has no effect on strategy lags"},
		{ok + "--strategy lags --dlgs-rule paper", "--dlgs-rule has no effect on strategy lags"},
		{ok + "--strategy dlgs --dlgs-rule printed", `--dlgs-rule "printed" is not known: use corrected or paper`},
		{ok + "--strategy dlgs --spars 0", "--spars 0: want more than 0 and at most 1"},
		{ok + "--strategy dlgs --spars 1.1 --dlgs-every 0 --memory x", "--spars 1.1", "--dlgs-every 0", `--memory "x"`},
		{ok + "--strategy topk --plan exact", "strategy topk selects the largest of the whole model and has plan one alone"},
		{ok + "--plan exct", `--plan "exct" is not known: use one of one, per-layer, fixed, mgwfbp, dlgs-scan, exact, all or saved`},
		{ok + "--plan saved", "--plan saved: no plan was saved"},
		{ok + "--plan all --save x", "--save keeps one plan"},
		{ok + "--bucket-bytes 100", "--bucket-bytes 100: want at least 4, with --plan fixed"},
		{ok + "--plan fixed --bucket-bytes 3", "--bucket-bytes 3"},
		{ok + "--algorithm hierarchical", `--algorithm "hierarchical" is not known for strategy fp32 on 4 ranks on 1 host`, "ring, doubling, naive"},
		{ok + "--strategy naive --algorithm ring", "--algorithm ring: strategy naive has only naive"},
		{ok + "--batch 0", "--batch 0: want 1 to 65536"},
		{ok + "--threads 2", "--threads belongs to --measure"},
		{"mnist --cost-profile nowhere.json --batch 3", "--cost-profile: tune: loading a profile", "--batch has no effect with --cost-profile"},
		// all faults are told together
		{"mnist --np 0 --inter 6 --latency -1s --compute-ms -1 --strategy x --plan y", "--np 0", `"6"`, "--latency -1s", "--compute-ms -1", `"x"`, "; "},
	} {
		commandtest.Refused(t, Command(), cli.UsageError, c[0], c[1:]...)
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"1B/s": 1, "6GB/s": 6e9, "1.5MB/s": 1.5e6, "2kB/s": 2e3, "1TB/s": 1e12, "1GiB/s": 1 << 30, "1Gbit/s": 125e6, "100Mbit/s": 12.5e6, "8bit/s": 1,
	} {
		if got, err := parseRate(text); err != nil || got != want {
			t.Errorf("%s is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "6", "GB/s", "6 GB/s", "6GB", "6Gb/s", "6gbit/s", "+6GB/s", "1e9B/s", "0GB/s", "infGB/s", "NaNB/s", "6GB/sx"} {
		if got, err := parseRate(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// A click model is planned for the samples of a layout, whose slots its first layer has.
func TestPlanSchema(t *testing.T) {
	layers := func(more string) string {
		status, out, errs := commandtest.Run(Command(), "din --compute-ms 10"+more)
		if status != 0 {
			t.Fatalf("status %d, %s", status, errs)
		}
		return out
	}
	if layers("") == layers(" --layout movielens") {
		t.Error("the layout is of no matter")
	}
	for words, says := range map[string]string{"mlp --compute-ms 1 --layout avazu": "no effect on model mlp", "din --compute-ms 1 --layout avazuu": `did you mean "avazu"`} {
		commandtest.Refused(t, Command(), cli.UsageError, words, says)
	}
}

func TestPlanHelpIsReadable(t *testing.T) {
	status, out, errs := commandtest.Run(Command(), "--help")
	if status != 0 || errs != "" {
		t.Fatalf("status %d, %s", status, errs)
	}
	commandtest.Holds(t, "help", out, "dlgs-scan", "--inter rate", "lstm-300m", "sparseTopK", "--json FILE")
}

package plan

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli/commandtest"
	"github.com/ringo-ml/ringo/internal/heter/costmodel"
	"github.com/ringo-ml/ringo/internal/tune"
)

// saved writes costs of ctr-dnn, and returns their file.
func saved(t *testing.T, change func(*costmodel.Costs)) string {
	t.Helper()
	us := func(x float64) costmodel.Cost { return costmodel.Cost{Sample: x * 1e-6} }
	c := costmodel.Costs{
		Model: "ctr-dnn", Batch: 512, Micros: 4, Read: us(1), Pool: us(3), Back: us(3), Part: us(28), Pass: us(70),
		OfSplit: costmodel.Side{Serve: us(4), Rows: us(6), Wait: 1e-3}, OfWhole: costmodel.Side{Serve: us(5), Rows: us(7), Wait: 1e-3},
		RequestBytes: 1096, BackBytes: 1100, PartBytes: 1.7e6,
	}
	if change != nil {
		change(&c)
	}
	path := filepath.Join(t.TempDir(), "costs.json")
	if err := tune.Save(path, tune.Profile{Heter: &c}); err != nil {
		t.Fatal(err)
	}
	return path
}

// splitOf runs `ringo plan ctr-dnn` and returns its object and its text.
func splitOf(t *testing.T, line string) (r heterResult, text string) {
	t.Helper()
	status, out, errs := commandtest.Run(Command(), "ctr-dnn "+line+" --json -")
	if status != 0 {
		t.Fatalf("%s: status %d, %s", line, status, errs)
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r, errs
}

func TestSplitPays(t *testing.T) {
	costs := saved(t, nil)
	r, text := splitOf(t, "--np 4x0.25 --servers 1x0.5 --heter 1x1 --cost-profile "+costs)
	if !r.Pays || r.By != costmodel.HeterTrainer || len(r.Trainers) != 4 || r.Trainers[3] != 0.25 || r.Rate < 18_000 || r.Rate > 1e6/28 {
		t.Errorf("%+v", r)
	}
	commandtest.Holds(t, "plan --heter", text, "4 trainers with 0.25 processors each", "1 heter-trainer with 1 processor", "bound by heter-trainers", "splitting pays: ", "of 5 machines best are ")
	many, _ := splitOf(t, "--np 4x1 --servers 2x4 --heter 1x16 --hosts 12 --inter 10Gbit/s --cost-profile "+costs)
	if many.Best.Trainers+many.Best.Heters != 10 || many.Best.Rate < many.Rate {
		t.Errorf("of 12 hosts %+v, asked for %v samples/s", many.Best, many.Rate)
	}
}

func TestSplitDoesNotPay(t *testing.T) {
	for want, change := range map[string]func(*costmodel.Costs){
		"trainers need ":       func(c *costmodel.Costs) { c.Pool.Sample, c.Part.Sample = 150e-6, 1e-6 },
		"heter-trainers need ": func(c *costmodel.Costs) { c.Part.Sample = 120e-6 },
		"servers need ":        func(c *costmodel.Costs) { c.OfSplit.Serve.Sample, c.OfWhole.Serve.Sample = 200e-6, 50e-6 },
		"links carry ":         func(c *costmodel.Costs) { c.RequestBytes = 1e8 },
		"ms of waiting":        func(c *costmodel.Costs) { c.OfSplit.Wait = 1 },
	} {
		r, text := splitOf(t, "--np 1 --heter 1 --cost-profile "+saved(t, change))
		if r.Pays || !strings.Contains(text, "splitting does not pay: ") || !strings.Contains(text, want) {
			t.Errorf("want %q: %+v\n%s", want, r, text)
		}
	}
}

// What computes is measured here, and saved for another time.
func TestSplitMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.json")
	r, text := splitOf(t, "--np 1 --heter 1 --measure --threads 1 --batch 16 --save "+path)
	commandtest.Holds(t, "plan --heter --measure", text, "measured here on 1 thread", "were not measured, and count nothing")
	again, _ := splitOf(t, "--np 1 --heter 1 --cost-profile "+path)
	if r.Batch != 16 || again.Rate != r.Rate || again.CostsFrom == r.CostsFrom {
		t.Errorf("%+v, saved %+v", r, again)
	}
}

func TestSplitRefused(t *testing.T) {
	costs := saved(t, nil)
	for line, want := range map[string]string{
		"ctr-dnn --heter 1": "want one of --measure and --cost-profile",
		"ctr-dnn --heter 1 --cost-profile " + costs + " --strategy dlgs":            "--strategy has no effect with --heter",
		"ctr-dnn --heter 1 --cost-profile " + costs + " --servers 0":                "want at least one of each",
		"ctr-dnn --heter 5000 --cost-profile " + costs:                              "4096 at most in all",
		"ctr-dnn --heter 1 --hosts 3 --cost-profile " + costs:                       "--hosts 3: want 1",
		"ctr-dnn --heter 1 --inter 1GB/s --cost-profile " + costs:                   "--inter has no effect",
		"ctr-dnn --heter 1 --intra 1GB --cost-profile " + costs:                     "want a positive number and a unit",
		"ctr-dnn --heter 1x0 --cost-profile " + costs:                               "want a number, such as 4",
		"ctr-dnn --heter x --cost-profile " + costs:                                 "want a number, such as 4",
		"ctr-dnn --heter 1 --threads 2 --cost-profile " + costs:                     "--threads belongs to --measure",
		"ctr-dnn --heter 1 --save x --cost-profile " + costs:                        "keeps what --measure finds",
		"deepfm --heter 1 --cost-profile " + costs:                                  `of model "ctr-dnn", not of deepfm`,
		"din --heter 1 --measure":                                                   "nothing in its code is marked",
		"ctr-dnn --cost-profile " + costs:                                           "nothing to plan from",
		"ctr-dnn --compute-ms 1 --np 2x3":                                           "processors have no effect without --heter",
		"ctr-dnn --compute-ms 1 --servers 2":                                        "--servers has no effect without --heter",
		"ctr-dnn --heter 1 --latency -1s --cost-profile " + costs:                   "--latency -1s",
		"ctr-dnn --heter 1 --cost-profile " + filepath.Join(t.TempDir(), "nothing"): "no such file",
	} {
		if status, _, errs := commandtest.Run(Command(), line); status == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, want %q in %s", line, status, want, errs)
		}
	}
}

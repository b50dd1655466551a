package distopt

import (
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/bucket"
)

func TestZeroConfigIsValid(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero configuration: %v", err)
	}
}

// Every fault is in the one error, with the value that is wrong.
func TestValidateReportsAllFaults(t *testing.T) {
	err := Config{
		Strategy: "fp33", Plan: "two", BucketBytes: -1, ClipNorm: math.NaN(), Accumulation: -2, Partitions: -3,
	}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"fp33"`, "fp32, fp16, bf16, int8, partialUpdate, sparseTopK", `"two"`, "one, per-layer, fixed", "exchange.bucket-bytes -1", "clip-norm NaN", "training.accumulate -2", "exchange.partitions -3"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %s:\n%v", want, err)
		}
	}
}

func TestBucketBytesNeedsFixed(t *testing.T) {
	for plan, ok := range map[string]bool{"": true, PlanFixed: true, PlanOne: false, PlanPerLayer: false} {
		if err := (Config{Plan: plan, BucketBytes: 1024}).Validate(); (err == nil) != ok {
			t.Errorf("plan %q with a bucket size: %v", plan, err)
		}
	}
}

func TestParseStrategy(t *testing.T) {
	for _, s := range Strategies() {
		if got, err := parseStrategy(string(s)); err != nil || got != s {
			t.Errorf("parseStrategy(%q) = %q, %v", s, got, err)
		}
	}
	if got, err := parseStrategy(""); err != nil || got != FP32 {
		t.Errorf(`parseStrategy("") = %q, %v`, got, err)
	}
}

func TestConfigPlans(t *testing.T) {
	layers := []bucket.Param{{Name: "a", Offset: 0, Len: 16}, {Name: "b", Offset: 16, Len: 16}, {Name: "c", Offset: 32, Len: 16}}
	for _, c := range []struct {
		cfg  Config
		want int
	}{
		{Config{Plan: PlanOne}, 1},
		{Config{Plan: PlanPerLayer}, 3},
		{Config{Plan: PlanFixed, BucketBytes: 128}, 2},
		{Config{BucketBytes: 4}, 3},
	} {
		if got := c.cfg.plan(layers, c.cfg.planName(Info{})); len(got) != c.want {
			t.Errorf("%+v: %d buckets, want %d", c.cfg, len(got), c.want)
		}
	}
}

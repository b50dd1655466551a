package main

import (
	"encoding/json"
	"testing"
)

// What a black box shows is right only if rank, operation, bucket and step are those of the fault.
func TestJudgeBoxes(t *testing.T) {
	const shown = `{"Seq":7,"What":"allreduce","Bucket":"bucket 1 (layer1.weight)","Step":3,"Missing":[{"Rank":"rank 1"}],"Waited":[{"Rank":"rank 0","For":"rank 1"}]}`
	c := boxCase{Fault: killFault, Way: "tcp", Ranks: 2, Victim: 1, Buckets: []int{1, 1}, Step: 3, Bucket: 1}
	cut, pulls := c, c
	cut.Fault = cutFault
	pulls.Way = "bsp"
	for _, test := range []struct {
		name   string
		c      boxCase
		box    string
		change func(c *boxCase, f *finding)
		right  bool
	}{
		{"right", c, shown, nil, true},
		{"another rank", c, shown, func(c *boxCase, _ *finding) { c.Victim = 0 }, false},
		{"another bucket", c, shown, func(_ *boxCase, f *finding) { f.Bucket = "bucket 0 (layer0.weight)" }, false},
		{"another step", c, shown, func(_ *boxCase, f *finding) { f.Step = 4 }, false},
		{"another operation", c, shown, func(_ *boxCase, f *finding) { f.Seq = 8 }, false},
		{"two are missing", c, shown, func(_ *boxCase, f *finding) { f.Missing = append(f.Missing, struct{ Rank string }{"rank 0"}) }, false},
		{"a cut loses what was sent before", cut, shown, func(_ *boxCase, f *finding) { f.Bucket = "bucket 0 (layer0.weight)" }, true},
		{"a cut does nothing to what is later", cut, shown, func(_ *boxCase, f *finding) { f.Step = 4 }, false},
		{"but over shared memory", cut, shown, func(c *boxCase, f *finding) { c.Way, f.Step = "shm", 4 }, true},
		{"a request", pulls, `{"Request":true,"What":"pull of rows of 8 bytes","Bucket":"table tastes","Step":4,"Missing":[{"Rank":"rank 1"}]}`, nil, true},
		{"a request for another step", pulls, `{"Request":true,"What":"pull of rows of 8 bytes","Bucket":"table tastes","Step":3,"Missing":[{"Rank":"rank 1"}]}`, nil, false},
	} {
		var f finding
		if err := json.Unmarshal([]byte(test.box), &f); err != nil {
			t.Fatal(err)
		}
		if test.change != nil {
			test.change(&test.c, &f)
		}
		var v verdict
		if test.c.judge(&v, &f); (len(v.Wrong) == 0) != test.right {
			t.Errorf("%s: %q", test.name, v.Wrong)
		}
	}
}

// All ways and faults are drawn that there are.
func TestBoxesAreDrawnOfAllKinds(t *testing.T) {
	seen := map[string]bool{}
	for i := range 100 {
		c := drawBox(dice(1, "boxes", i), i)
		seen[c.Fault], seen[c.Way] = true, true
		if c.Victim >= c.Ranks || c.Bucket >= len(c.Buckets) || c.Step < 1 {
			t.Errorf("%d: %v", i, c)
		}
	}
	for _, want := range []string{killFault, stopFault, cutFault, mismatchFault, hangFault, "shm", "tcp", "sum", "bsp", "ssp", "async", "geo"} {
		if !seen[want] {
			t.Errorf("%s was not drawn", want)
		}
	}
}

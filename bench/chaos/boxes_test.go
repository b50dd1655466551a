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
		ended  int
		right  bool
	}{
		{"right", c, shown, nil, 7, true},
		{"another rank", c, shown, func(c *boxCase, _ *finding) { c.Victim = 0 }, 7, false},
		{"another bucket", c, shown, func(_ *boxCase, f *finding) { f.Bucket = "bucket 0 (layer0.weight)" }, 7, false},
		{"another step", c, shown, func(_ *boxCase, f *finding) { f.Step = 4 }, 7, false},
		{"another operation", c, shown, func(_ *boxCase, f *finding) { f.Seq = 8 }, 7, false},
		{"two are missing", c, shown, func(_ *boxCase, f *finding) { f.Missing = append(f.Missing, struct{ Rank string }{"rank 0"}) }, 7, false},
		{"a cut loses what was sent before", cut, shown, func(_ *boxCase, f *finding) { f.Bucket, f.Seq = "bucket 0 (layer0.weight)", 6 }, 6, true},
		{"but that exchange ended", cut, shown, func(_ *boxCase, f *finding) { f.Bucket, f.Seq = "bucket 0 (layer0.weight)", 6 }, 7, false},
		{"and this one did not", cut, shown, nil, 6, false},
		{"a cut long before", cut, shown, func(_ *boxCase, f *finding) { f.Step, f.Seq = 2, 5 }, 5, false},
		{"a cut of which only others are said to have waited", cut, `{"Seq":7,"Bucket":"bucket 1 (layer1.weight)","Step":3,"Ended":["rank 1"],"Within":[{"Rank":"rank 0"}]}`, nil, 7, false},
		{"another operation than ranks count", c, shown, nil, 6, false},
		{"a cut does nothing to what is later", cut, shown, func(_ *boxCase, f *finding) { f.Step, f.Seq = 4, 9 }, 9, false},
		{"but over shared memory", cut, shown, func(c *boxCase, f *finding) { c.Way, f.Step, f.Seq = "shm", 4, 9 }, 9, true},
		{"a request", pulls, `{"Request":true,"What":"pull of rows of 8 bytes","Bucket":"table tastes","Step":4,"Missing":[{"Rank":"rank 1"}]}`, nil, 7, true},
		{"a request for another step", pulls, `{"Request":true,"What":"pull of rows of 8 bytes","Bucket":"table tastes","Step":3,"Missing":[{"Rank":"rank 1"}]}`, nil, 7, false},
	} {
		var f finding
		if err := json.Unmarshal([]byte(test.box), &f); err != nil {
			t.Fatal(err)
		}
		if test.change != nil {
			test.change(&test.c, &f)
		}
		var v verdict
		if test.c.judge(&v, &f, test.ended); (len(v.Wrong) == 0) != test.right {
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

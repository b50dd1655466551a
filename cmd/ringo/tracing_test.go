package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// timelineBox is one of a timeline, in microseconds.
type timelineBox struct {
	name       string
	step       int
	start, end float64
}

// rows reads a timeline: the boxes by rank and row, and by rank how wrong its clock
// may be.
func rows(t *testing.T, file string) (boxes map[string]map[string][]timelineBox, wrong map[string]float64) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Events []struct {
			Ph, Name string
			Pid, Tid int
			TS, Dur  *float64
			Args     struct {
				Name string
				Step int
			}
		} `json:"traceEvents"`
		Other struct {
			Ranks []struct {
				Rank  int
				Wrong float64 `json:"clock_error_us"`
			}
		} `json:"otherData"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	ranks, threads := map[int]string{}, map[[2]int]string{}
	boxes, wrong = map[string]map[string][]timelineBox{}, map[string]float64{}
	for _, e := range f.Events {
		switch {
		case e.Ph == "M" && e.Name == "process_name":
			ranks[e.Pid] = e.Args.Name
			boxes[e.Args.Name] = map[string][]timelineBox{}
		case e.Ph == "M" && e.Name == "thread_name":
			threads[[2]int{e.Pid, e.Tid}] = e.Args.Name
		case e.Ph == "X":
			if e.TS == nil || e.Dur == nil || *e.TS < 0 || *e.Dur < 0 {
				t.Fatalf("%+v has no time", e)
			}
			row := threads[[2]int{e.Pid, e.Tid}]
			boxes[ranks[e.Pid]][row] = append(boxes[ranks[e.Pid]][row], timelineBox{e.Name, e.Args.Step, *e.TS, *e.TS + *e.Dur})
		}
	}
	for _, r := range f.Other.Ranks {
		wrong[fmt.Sprintf("rank %d", r.Rank)] = r.Wrong
	}
	return boxes, wrong
}

// checkCausal wants no allreduce to have ended on one rank before it began on
// another, but for what clocks may be wrong.
func checkCausal(t *testing.T, boxes map[string]map[string][]timelineBox, wrong map[string]float64) {
	t.Helper()
	type key struct {
		name string
		step int
	}
	began, by := map[key]timelineBox{}, map[key]string{}
	each := func(fn func(rank string, k key, b timelineBox)) {
		for rank, tracks := range boxes {
			for row, list := range tracks {
				for _, b := range list {
					if strings.HasPrefix(row, "exchange") {
						fn(rank, key{b.name, b.step}, b)
					}
				}
			}
		}
	}
	each(func(rank string, k key, b timelineBox) {
		if last, ok := began[k]; !ok || b.start > last.start {
			began[k], by[k] = b, rank
		}
	})
	each(func(rank string, k key, b timelineBox) {
		if late, at := began[k].start, by[k]; b.end < late-wrong[rank]-wrong[at]-0.01 {
			t.Errorf("%s of step %d ends at %v µs on %s and begins at %v on %s; clocks are said to be within %v", k.name, k.step, b.end, rank, late, at, wrong)
		}
	})
}

// Every rank's stages are on the timeline, as often as there were steps.
func TestTraceOfATraining(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags             string
		ranks, steps, cut int
	}{
		{"--transport mem --np 1", 1, 12, 0},
		{"--transport mem --np 2 --set output.trace-steps=4", 2, 4, 2},
		{"--transport tcp --np 2 --plan per-layer --checkpoint " + t.TempDir(), 2, 6, 0},
	} {
		file := filepath.Join(t.TempDir(), "trace.json")
		status, _, errs := command(t, "train mlp "+small+c.flags+" --trace "+file)
		if status != 0 || !strings.HasPrefix(errs, "timeline of "+counted(c.ranks, "rank")) || strings.Contains(errs, "cut:") != (c.cut > 0) {
			t.Fatalf("%s: status %d, stderr %q", c.flags, status, errs)
		}
		got, wrong := rows(t, file)
		if len(got) != c.ranks || len(wrong) != c.ranks {
			t.Errorf("%s: %d ranks", c.flags, len(got))
		}
		checkCausal(t, got, wrong)
		for rank, tracks := range got {
			for _, name := range []string{"data wait", "forward", "backward"} {
				if len(tracks[name]) != c.steps {
					t.Errorf("%s, %s: %d boxes of %s in %d steps", c.flags, rank, len(tracks[name]), name, c.steps)
				}
			}
			exchanges := 0
			for name, boxes := range tracks {
				if strings.HasPrefix(name, "exchange") {
					exchanges += len(boxes)
				}
			}
			if updates := len(tracks["update"]); exchanges != updates || exchanges < c.steps || exchanges%c.steps != 0 {
				t.Errorf("%s, %s: %d exchanges and %d updates of buckets in %d steps", c.flags, rank, exchanges, updates, c.steps)
			}
			if want := 1 - min(1, c.cut); len(tracks["evaluation"]) != want {
				t.Errorf("%s, %s: %d evaluations, want %d", c.flags, rank, len(tracks["evaluation"]), want)
			}
			if saves := strings.Contains(c.flags, "--checkpoint"); (len(tracks["checkpoint"]) > 0) != saves {
				t.Errorf("%s, %s: %d checkpoints", c.flags, rank, len(tracks["checkpoint"]))
			}
		}
	}
}

func TestTraceOfABenchmark(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "trace.json")
	status, out, errs := command(t, "bench step mlp --batch 4 --threads 1 --steps 3 --np 2 --transport mem --strategy dlgs --spars 0.01 --layers --trace "+file)
	if status != 0 || !strings.HasPrefix(errs, "timeline of 2 ranks") {
		t.Fatalf("status %d, stderr %q", status, errs)
	}
	checkHolds(t, "stdout", out, "\n  ", "residual norm")
	if !regexp.MustCompile(`ms  density 0\.0(09|1)`).MatchString(out) {
		t.Errorf("stdout: no density of about 0.01 in\n%s", out)
	}
	boxes, _ := rows(t, file)
	for rank, tracks := range boxes {
		if n := len(tracks["forward"]); n != 6 { // three to warm up
			t.Errorf("%s: %d boxes of forward", rank, n)
		}
		if len(tracks["compress"]) < 6 || !strings.HasPrefix(tracks["compress"][0].name, "bucket ") {
			t.Errorf("%s: compress holds %+v", rank, tracks["compress"])
		}
	}
}

func TestTraceFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no", "trace.json")
	checkRefused(t, exitUsage, "train mlp "+small+"--set output.trace-steps=4", "--set output.trace-steps has no effect: it needs --trace")
	checkRefused(t, exitUsage, "train mlp "+small+"--trace "+file+" --set output.trace-steps=-1", "--set output.trace-steps")
	checkRefused(t, exitUsage, "train mlp "+small+"--set output.layers=true", "--set output.layers has no effect: it needs --json")
	for _, np := range []string{"1", "2 --transport mem", "2 --transport tcp"} {
		checkRefused(t, exitFailed, "train mlp "+small+"--trace "+file+" --np "+np, "--trace", file)
	}
	// What fails leaves no file that is no timeline.
	file = filepath.Join(t.TempDir(), "trace.json")
	checkRefused(t, exitFailed, "train mlp "+small+"--batch 193 --trace "+file, "193")
	if _, err := os.Stat(file); err == nil {
		t.Error("a run that failed left a timeline")
	}
}

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/steptrace"
)

// readTrace reads a timeline, and returns the spans by rank and track.
func readTrace(t *testing.T, file string) (line *steptrace.Timeline, tracks []map[string][]steptrace.Span) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if line, err = steptrace.Read(f); err != nil {
		t.Fatal(err)
	}
	for _, r := range line.Ranks {
		all := map[string][]steptrace.Span{}
		for _, s := range r.Spans {
			all[s.Track.String()] = append(all[s.Track.String()], s)
		}
		tracks = append(tracks, all)
	}
	return line, tracks
}

// checkCausal wants no allreduce to have ended on one rank before it began on
// another, but for what clocks may be wrong.
func checkCausal(t *testing.T, line *steptrace.Timeline, tracks []map[string][]steptrace.Span) {
	t.Helper()
	type key struct {
		name string
		step int64
	}
	began, by := map[key]int64{}, map[key]int{}
	for rank, all := range tracks {
		for _, s := range all["exchange"] {
			if k := (key{line.Name(s), s.Step}); s.Start > began[k] {
				began[k], by[k] = s.Start, rank
			}
		}
	}
	for rank, all := range tracks {
		for _, s := range all["exchange"] {
			k := key{line.Name(s), s.Step}
			if wrong := line.Ranks[rank].ClockError + line.Ranks[by[k]].ClockError; s.End < began[k]-wrong-10 {
				t.Errorf("%+v ends at %v ns on rank %d and begins at %v on rank %d; clocks are said to be within %v", k, s.End, rank, began[k], by[k], wrong)
			}
		}
	}
}

// Every rank's stages are on the timeline, as often as there were steps.
func TestTraceOfATraining(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags             string
		ranks, steps, cut int
	}{
		{"--transport mem --np 1", 1, 12, 0},
		{"--transport mem --np 2", 2, 6, 0},
		{"--transport tcp --np 2 --plan per-layer --checkpoint " + t.TempDir(), 2, 6, 0},
	} {
		file := filepath.Join(t.TempDir(), "trace.json")
		status, _, errs := command(t, "train mlp "+small+c.flags+" --trace "+file)
		if status != 0 || !strings.HasPrefix(errs, "timeline of "+cli.Counted(c.ranks, "rank")) || strings.Contains(errs, "cut:") != (c.cut > 0) {
			t.Fatalf("%s: status %d, stderr %q", c.flags, status, errs)
		}
		line, got := readTrace(t, file)
		if len(got) != c.ranks {
			t.Errorf("%s: %d ranks", c.flags, len(got))
		}
		checkCausal(t, line, got)
		for rank, tracks := range got {
			for _, name := range []string{"data wait", "forward", "backward"} {
				if len(tracks[name]) != c.steps {
					t.Errorf("%s, rank %d: %d boxes of %s in %d steps", c.flags, rank, len(tracks[name]), name, c.steps)
				}
			}
			exchanges := len(tracks["exchange"])
			if updates := len(tracks["update"]); exchanges != updates || exchanges < c.steps || exchanges%c.steps != 0 {
				t.Errorf("%s, rank %d: %d exchanges and %d updates of buckets in %d steps", c.flags, rank, exchanges, updates, c.steps)
			}
			if want := 1 - min(1, c.cut); len(tracks["evaluation"]) != want {
				t.Errorf("%s, rank %d: %d evaluations, want %d", c.flags, rank, len(tracks["evaluation"]), want)
			}
			if saves := strings.Contains(c.flags, "--checkpoint"); (len(tracks["checkpoint"]) > 0) != saves {
				t.Errorf("%s, rank %d: %d checkpoints", c.flags, rank, len(tracks["checkpoint"]))
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
	line, got := readTrace(t, file)
	for rank, tracks := range got {
		if n := len(tracks["forward"]); n != 6 { // three to warm up
			t.Errorf("rank %d: %d boxes of forward", rank, n)
		}
		if len(tracks["compress"]) < 6 || !strings.HasPrefix(line.Name(tracks["compress"][0]), "bucket ") {
			t.Errorf("rank %d: compress holds %+v", rank, tracks["compress"])
		}
	}
}

func TestTraceFlags(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "no", "trace.json")
	checkRefused(t, exitUsage, "train mlp "+small+"--set output.layer-stats=true", "--set output.layer-stats has no effect: it needs --json")
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

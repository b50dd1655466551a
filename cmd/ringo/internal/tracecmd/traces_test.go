package tracecmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/cli"
	"github.com/ringo-ml/ringo/internal/cli/commandtest"
)

// file writes a file.
func file(t *testing.T, name string, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// slowData is the timeline of two ranks whose second reads its data slowly.
const slowData = `{"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","name":"process_name","pid":1,"args":{"name":"rank 0"}},
{"ph":"X","name":"data","cat":"data wait","pid":1,"tid":1,"ts":0.000,"dur":1000.000,"args":{"step":0}},
{"ph":"X","name":"backward","cat":"backward","pid":1,"tid":2,"ts":1000.000,"dur":7000.000,"args":{"step":0}},
{"ph":"X","name":"bucket 0\u001b[2J","cat":"exchange","pid":1,"tid":3,"ts":6000.000,"dur":11000.000,"args":{"step":0,"algorithm":"ring","bytes_sent":4096}},
{"ph":"X","name":"data","cat":"data wait","pid":2,"tid":1,"ts":0.000,"dur":9000.000,"args":{"step":0}},
{"ph":"X","name":"backward","cat":"backward","pid":2,"tid":2,"ts":9000.000,"dur":7000.000,"args":{"step":0}},
{"ph":"X","name":"bucket 0\u001b[2J","cat":"exchange","pid":2,"tid":3,"ts":14000.000,"dur":3000.000,"args":{"step":0,"algorithm":"ring","bytes_sent":4096}}
],"otherData":{"ranks":[{"rank":0,"clock_offset_us":0.000,"clock_error_us":0.000,"spans":3,"spans_left_out":0},{"rank":1,"clock_offset_us":5.000,"clock_error_us":1.000,"spans":3,"spans_left_out":0}]}}
`

const slowDataTold = `FILE: 2 ranks, 1 step in 17.00 ms, 17.00 ms a step

rank  computation  exchange  data wait  evaluation    idle  overlap  sent in a step
   0        41.2%     52.9%      5.88%          0%      0%    18.2%  4.1 kB
   1        41.2%     5.88%      52.9%          0%      0%    66.7%  4.1 kB
mean        41.2%     29.4%      29.4%          0%      0%    42.4%  4.1 kB

critical path: rank 0 17.6%, rank 1 82.4%; it goes once from one to another
   52.9%  rank 1 data wait
   29.4%  rank 1 backward
   17.6%  rank 0 exchange

longest waits:
      9.00 ms  rank 1, step 0: the next batch was not there
      9.00 ms  rank 0, step 0, "bucket 0\x1b[2J": rank 1 began it 6.00 ms later, mostly in backward (5.00 ms)
      1.00 ms  rank 0, step 0: the next batch was not there
      1.00 ms  rank 1, step 0, "bucket 0\x1b[2J": exchanging took 1.00 ms (ring, 4.1 kB sent)
`

func TestSummary(t *testing.T) {
	path := file(t, "a.json", slowData)
	status, out, errs := commandtest.Run(Command(), "summary "+path)
	if want := strings.Replace(slowDataTold, "FILE", path, 1); status != 0 || out != want {
		t.Errorf("status %d %s\n%s\nwant\n%s", status, errs, out, want)
	}
}

func TestSummaryOfTwo(t *testing.T) {
	a := file(t, "a.json", slowData)
	b := file(t, "b.json", strings.ReplaceAll(slowData, `"dur":3000.000`, `"dur":20000.000`))
	status, out, errs := commandtest.Run(Command(), "summary "+a+" "+b)
	if status != 0 {
		t.Fatal(errs)
	}
	commandtest.Holds(t, "a comparison", out, "step                                          17.00 ms    34.00 ms   2.00\n",
		"backward                                       7.00 ms     7.00 ms   1.00\n", "critical path: exchange                          17.6%       52.9%   3.00\n")
	_, lines, _ := commandtest.Run(Command(), "summary "+a+" "+b+" --json -")
	summary := "event file wall_ms steps step_ms spans_left_out ranks mean critical_path longest_waits"
	got := commandtest.JSON(t, lines, summary, summary, "event a b figures")
	if got[0]["event"] != "trace_summary" || got[1]["wall_ms"] != 34. || got[2]["event"] != "trace_comparison" || got[2]["b"] != b {
		t.Errorf("%v", got)
	}
	var first struct {
		Ranks []struct {
			Rank      int
			Data      float64 `json:"data_wait"`
			StepBytes float64 `json:"step_bytes_sent"`
		}
		Waits []struct {
			LateRank int     `json:"late_rank"`
			LateMS   float64 `json:"late_ms"`
			Cause    string
		} `json:"longest_waits"`
	}
	line, _, _ := strings.Cut(lines, "\n")
	if err := json.Unmarshal([]byte(line), &first); err != nil || first.Ranks[1].Rank != 1 || first.Ranks[1].StepBytes != 4096 || first.Waits[1].LateRank != 1 || first.Waits[1].LateMS != 6 || first.Waits[1].Cause != "late rank" {
		t.Errorf("%+v, %v", first, err)
	}
}

func TestRefused(t *testing.T) {
	whole := file(t, "whole.json", slowData)
	cut := file(t, "cut.json", slowData[:len(slowData)/2])
	commandtest.Refused(t, Command(), cli.Failed, "summary "+cut, cut+": byte ", "it ends too early")
	commandtest.Refused(t, Command(), cli.Failed, "summary "+file(t, "other.json", `{"schemaVersion":1}`), "no timeline of ringo", "schemaVersion")
	commandtest.Refused(t, Command(), cli.Failed, "summary "+t.TempDir(), "it is a folder")
	commandtest.Refused(t, Command(), cli.Failed, "summary "+whole+"x", "no such file")
	commandtest.Refused(t, Command(), cli.UsageError, "summary", "takes a timeline")
	commandtest.Refused(t, Command(), cli.UsageError, strings.Repeat("summary ", 4), "takes a timeline")
	commandtest.Refused(t, Command(), cli.UsageError, "sumary x", "did you mean summary?")
}
